"""The gossip machine on real sockets: datagrams sealed and opened, tables compared and entries fetched over TCP.

The machine decides (`reach_core/gossip/machine.py`); this file only carries. Comparisons and fetches run beside, few at
a time, and what goes wrong with one is counted and left: the next comes within seconds.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from reach_core.gossip.absence import Absence
from reach_core.gossip.compare import (
    CompareError,
    Differences,
    Opening,
    Transfer,
    Transferred,
    decode_question,
    differences,
    encode,
    is_all,
    opening,
    transfer,
    transferred,
)
from reach_core.gossip.compare import decode as decode_comparison
from reach_core.gossip.datagram import Datagram, DatagramError
from reach_core.gossip.datagram import decode as decode_datagram
from reach_core.gossip.datagram import encode as encode_datagram
from reach_core.gossip.machine import Gossip, How
from reach_core.messages import unpack_entries
from reach_core.peer import Entry
from reach_core.table import Change, PeerTable
from reach_os.datagrams import DatagramSocket
from reach_sidecar.membership.ask import Unanswered, ask
from reach_sidecar.membership.controls import Controls, EventLog, Refused, Unreachable
from reach_sidecar.membership.facts import MeshFacts

GOSSIP = "application/vnd.reach.gossip"
MAX_ROUNDS = 8
MAX_UNDER_WAY = 4
TIMEOUT_S = 3.0
MAX_BYTES = 1024 * 1024
CHUNK = 25
"""Entries verified at once: under 5 ms."""
NONCE_BYTES = 12
SAY_EVERY_S = 10.0

Post = Callable[[bytes], Awaitable[bytes]]


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def boot_s() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Spread:
    """`start` with the UDP socket of the mesh listener's address. `own_id` is the agent's. `on_confirmed` is called
    when a comparison found nothing, `on_absent_too_long` when the table must be loaded anew.
    """

    def __init__(
        self,
        own_id: Callable[[], str],
        table: PeerTable,
        facts: MeshFacts,
        controls: Controls,
        log: EventLog,
        random: Random,
        *,
        on_changes: Callable[[list[Change]], None],
        on_notice: Callable[[int], None],
        on_confirmed: Callable[[], None],
        on_absent_too_long: Callable[[], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.absence = Absence(boot_s())
        self._own_id = own_id
        self._table = table
        self._facts = facts
        self._controls = controls
        self._log = log
        self._random = random
        self._on_confirmed = on_confirmed
        self._on_absent_too_long = on_absent_too_long
        self.machine = Gossip(own_id, table, facts.keyring, self, random, on_changes=on_changes, on_notice=on_notice,
                              on_forged=self._forged)
        self._socket: DatagramSocket | None = None
        self._stirred = asyncio.Event()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._say_again_at: dict[str, float] = {}

    async def start(self, datagrams: DatagramSocket) -> None:
        """Take in what comes from now on; `run` sends."""
        self._socket = datagrams
        await datagrams.start()

    async def run(self) -> None:
        while True:
            self._stirred.clear()
            wait_s = self.machine.tick(self._loop.time()) if self.is_current else 1.0
            try:
                async with asyncio.timeout(wait_s):
                    await self._stirred.wait()
            except TimeoutError:
                pass

    async def stop(self) -> None:
        """End what is under way."""
        under_way = list(self._under_way.values())
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def datagrams(self) -> dict[str, float]:
        """How many were `sent`, `received`, `unreadable`, `flooded`, `not_sent`; for the metrics."""
        own = self._socket.counts if self._socket is not None else Counter[str]()
        return {"sent": own["sent"], "received": own["received"], "unreadable": self.counts["datagrams_unreadable"],
                "flooded": own["flooded"], "not_sent": own["not_sent"]}

    def entries(self) -> dict[str, float]:
        """How many were `new`, `known`, `forged`, `unknown_key`, `unverified`, `unreadable`."""
        counts = self.machine.counts
        found = {one: counts[f"entries_{one}"] for one in ("new", "known", "forged", "unknown_key", "unverified")}
        return {**found, "unreadable": counts["entries_unreadable"] + self.counts["entries_unreadable"]}

    def exchanges(self) -> dict[str, float]:
        """How many were `done`, `failed`, `skipped`, because enough are under way."""
        counts = self.counts
        return {"done": counts["exchanges"], "failed": counts["exchanges_failed"],
                "skipped": counts["exchanges_skipped"]}

    def load(self, entries: Sequence[Entry]) -> list[Change]:
        """Take in a part of a whole table that control sent."""
        return self.machine.learn(entries, "snapshot", "control", self._loop.time(), wall_ms())

    def hear_control(self) -> None:
        """Control answered. After an absence that was too long the table is loaded anew."""
        was_ended = self.absence.ended
        if self.absence.heard(boot_s()) and not was_ended:
            self._on_absent_too_long()

    @property
    def is_current(self) -> bool:
        """May what is known be told, and what others say be used? Only control knows what was removed long ago, so
        contact with control counts: of a group that was cut off together, each hears the others."""
        return not self.absence.ended and not self.absence.is_too_long(boot_s())

    def received(self, data: bytes, source: str) -> None:
        """A datagram came."""
        keys = self._facts.keys
        plain = keys.open(data) if keys is not None else None
        if plain is None:
            self.counts["datagrams_unreadable"] += 1
            return
        try:
            datagram = decode_datagram(plain)
        except DatagramError:
            self.counts["datagrams_unreadable"] += 1
            return
        if self.is_current:
            self.machine.receive(datagram, source, self._loop.time(), wall_ms())
            self._stirred.set()

    async def answer(self, data: bytes, source: str) -> bytes:
        """To a comparison that another node began over TCP. Raises CompareError."""
        message = decode_question(data)
        if not self.is_current:
            raise CompareError("this node loads its table anew")
        if isinstance(message, Opening):
            return encode(differences(self._table, message, self._random))
        await self._learn(message.entries, source, "told")
        return encode(transferred(self._table, message))

    # -- what the machine asks for

    def send(self, address: str, datagram: Datagram) -> None:
        keys = self._facts.keys
        if self._socket is not None and keys is not None:
            self._socket.send(keys.seal(encode_datagram(datagram), os.urandom(NONCE_BYTES)), address)

    def pull(self, address: str, agent_ids: list[str]) -> None:
        self._begin(f"pull {address}", self._pull(address, agent_ids))

    def compare(self, address: str | None) -> None:
        self._begin(f"compare {address}", self._compare(address))

    # -- over TCP

    def _begin(self, name: str, work: Awaitable[None] | object) -> None:
        if name in self._under_way or len(self._under_way) >= MAX_UNDER_WAY:
            work.close()  # type: ignore[union-attr]
            self.counts["exchanges_skipped"] += 1
            return
        task = self._loop.create_task(self._counted(work), name=name)  # type: ignore[arg-type]
        self._under_way[name] = task
        task.add_done_callback(lambda _: self._under_way.pop(name, None))

    async def _counted(self, work: Awaitable[None]) -> None:
        try:
            await work
            self.counts["exchanges"] += 1
        except (Unanswered, Unreachable, Refused, CompareError):
            self.counts["exchanges_failed"] += 1

    async def _compare(self, address: str | None) -> None:
        post, source = self._way_to(address)
        for _ in range(MAX_ROUNDS):
            said = await post(encode(opening(self._table, self._own_id())))
            found = decode_comparison(Differences, said)
            if not self.is_current:
                return
            if found.same:
                self._on_confirmed()
                return
            ours = transfer(self._table, found, self._own_id(), self._random)
            answer = decode_comparison(Transferred, await post(encode(ours)))
            await self._learn(answer.entries, source, "compared")
            if is_all(found, ours, answer):
                self._on_confirmed()
                return

    async def _pull(self, address: str, agent_ids: list[str]) -> None:
        wanted = encode(Transfer(sender=self._own_id(), want=tuple(agent_ids)))
        try:
            said = await self._way_to(address)[0](wanted)
        except Unanswered:
            said = await self._controls.gossip(wanted)
        await self._learn(decode_comparison(Transferred, said).entries, address, "compared")

    def _way_to(self, address: str | None) -> tuple[Post, str]:
        if address is None:
            return self._controls.gossip, "control"

        async def post(data: bytes) -> bytes:
            return await ask(address, "POST", "/v1/gossip", data, content_type=GOSSIP, timeout_s=TIMEOUT_S,
                             most_bytes=MAX_BYTES)

        return post, address

    async def _learn(self, packed: Sequence[bytes], source: str, how: How) -> None:
        """In parts, for verifying many signatures at once would hold calls up."""
        entries, unreadable = unpack_entries(packed)
        self.counts["entries_unreadable"] += unreadable
        for start in range(0, len(entries), CHUNK):
            if start:
                await asyncio.sleep(0)
            part = entries[start : start + CHUNK]
            if self.machine.learn(part, how, source, self._loop.time(), wall_ms()):
                self._stirred.set()

    def _forged(self, source: str, sender: str, agent_id: str) -> None:
        now = self._loop.time()
        if len(self._say_again_at) > 256:
            self._say_again_at.clear()
        if now >= self._say_again_at.get(sender, 0.0):
            self._say_again_at[sender] = now + SAY_EVERY_S
            self._log.event("warn", "forged", target=agent_id, caller=sender,
                            detail=f"{sender} at {source} passed on an entry of {agent_id} whose signature is wrong: "
                            "it was altered or made up, and is ignored. Look at what runs there.")
