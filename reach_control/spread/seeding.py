"""Seeds at work: sealed datagrams out, acknowledgements in, and over TCP what nobody acknowledged."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from reach_control.membership.client import Client, Unanswered
from reach_core.gossip.compare import encode as encode_step
from reach_core.gossip.compare import push
from reach_core.gossip.datagram import ACK, DatagramError, decode, encode
from reach_core.gossip.seal import NONCE_BYTES, MeshKeys
from reach_core.gossip.seeds import Push, Seeds
from reach_core.peer import Entry
from reach_core.table import PeerTable
from reach_os.datagrams import DatagramSocket

GATHER_S = 0.005
"""Changes that come within this time go into one datagram."""


class Seeding:
    """`keys` gives those of the moment."""

    def __init__(self, node: str, table: PeerTable, keys: Callable[[], MeshKeys], client: Client,
                 random: Random) -> None:
        self._counts: Counter[str] = Counter()
        self.seeds = Seeds(table, random, node)
        self._node = node
        self._keys = keys
        self._client = client
        self._socket: DatagramSocket | None = None
        self._stirred = asyncio.Event()
        self._pushing: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    @property
    def counts(self) -> dict[str, int]:
        """What became of changes: those of `Seeds`, and of their pushes the `failed` ones; datagrams that were
        `unreadable`, not even looked at (`flooded`) or could not be sent (`not_sent`)."""
        udp = self._socket.counts if self._socket is not None else Counter()
        return {**self.seeds.counts, **self._counts, **{name: udp[name] for name in ("flooded", "not_sent")}}

    async def start(self, datagrams: DatagramSocket) -> None:
        """Send through this socket, and take in what comes."""
        self._socket = datagrams
        await datagrams.start()

    def tell(self, entries: Sequence[Entry]) -> None:
        """These changed."""
        self.seeds.add(entries, self._loop.time())
        self._stirred.set()

    def announce(self, version: int) -> None:
        """What holds mesh-wide has this version now."""
        self.seeds.announce(version, self._loop.time())
        self._stirred.set()

    def received(self, data: bytes, source: str) -> None:
        """A datagram came: only acknowledgements are of interest."""
        plain = self._keys().open(data)
        try:
            datagram = decode(plain) if plain is not None else None
        except DatagramError:
            datagram = None
        if datagram is None:
            self._counts["unreadable"] += 1
        elif datagram.kind == ACK:
            self.seeds.acknowledged(datagram.number, datagram.sender)

    async def run(self) -> None:
        while True:
            due = self.seeds.tick(self._loop.time())
            keys = self._keys()
            for address, datagram in due.sends:
                self._send(keys.seal(encode(datagram), os.urandom(NONCE_BYTES)), address)
            for one in due.pushes:
                self._begin_push(one)
            try:
                async with asyncio.timeout(due.next_s):
                    await self._stirred.wait()
                    self._stirred.clear()
                    await asyncio.sleep(GATHER_S)
            except TimeoutError:
                pass

    async def stop(self) -> None:
        for task in self._pushing:
            task.cancel()
        await asyncio.gather(*self._pushing, return_exceptions=True)

    def _send(self, data: bytes, address: str) -> None:
        if self._socket is not None:
            self._socket.send(data, address)

    def _begin_push(self, one: Push) -> None:
        task = self._loop.create_task(self._push(one))
        self._pushing.add(task)
        task.add_done_callback(self._pushing.discard)

    async def _push(self, one: Push) -> None:
        data = encode_step(push(one.entries, self._node))
        try:
            await self._client.tell(one.address, data)
        except Unanswered:
            self._counts["failed"] += 1
            self.seeds.failed(one.number, one.agent_id, self._loop.time())
        else:
            self.seeds.acknowledged(one.number, one.agent_id)
        self._stirred.set()
