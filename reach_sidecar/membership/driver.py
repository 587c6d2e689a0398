"""Membership: one registration kept alive, one table kept up to date, and both survive a restart.

Loops that never wait for each other (`registrar`, `sync`, `inquiry`, `spread`) share one view of the control nodes,
and one more puts the table on disk when it changed (`saving`). None of them is on the path of a call.

The table comes whole from control at first. Once the agent is registered, gossip brings what changes; until then, and
for a gateway, which is in no table, a long-poll does.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from reach_core.messages import HeartbeatAnswer, Hello, Load, RegisterAnswer, read_entries
from reach_core.peer import Entry, Rank, owner_of
from reach_core.problem import Problem
from reach_core.table import Change, PeerTable
from reach_os.datagrams import DatagramSocket
from reach_sidecar.membership.cache import CachedTable, Instance, load_table, pack_table
from reach_sidecar.membership.controls import Controls, EventLog
from reach_sidecar.membership.facts import MeshFacts
from reach_sidecar.membership.inquiry import Inquiry
from reach_sidecar.membership.local import LocalAgent
from reach_sidecar.membership.registrar import Registrar
from reach_sidecar.membership.saving import Saving
from reach_sidecar.membership.spread import Spread, wall_ms
from reach_sidecar.membership.supervise import supervise
from reach_sidecar.membership.sync import TableSync

KEYS_COUNT_FOR = 2
"""Leases for which a signing key still counts that control no longer names: owners have registered anew by then."""


class Membership:
    """`synced`: there is a table to route on, received or from the disk. `registered`: control has our agent.

    `api_token` is sent to control where it asks for one (REACH_API_TOKEN). `ask` (agents whose load is wanted),
    `on_loads` (what the heartbeat's answer said) and `on_aliases` (the mesh-wide ones, when they change) may be set
    before `start`.
    """

    def __init__(
        self,
        controls: Sequence[str],
        local: LocalAgent,
        table: PeerTable,
        advertise: Callable[[], str],
        on_changes: Callable[[list[Change]], None],
        log: EventLog,
        state_dir: Path,
        *,
        api_token: str | None = None,
    ) -> None:
        self._local = local
        self._table = table
        self._on_changes = on_changes
        self._advertise = advertise
        self._log = log
        self._state_dir = state_dir
        self._instance = Instance(state_dir)
        self._owner = owner_of(self._instance.name)
        self._controls = Controls(controls, log, api_token=api_token)
        self._registrar = Registrar(self._controls, local, advertise, self._instance.name, log)
        self.on_aliases: Callable[[Mapping[str, list[str]]], None] = _ignore
        self.facts = MeshFacts(self._aliases_changed)
        self._inquiry = Inquiry(self.facts, self._controls, table, self._facts_changed)
        self._sync = TableSync(self._controls, table, self._take, self._drop, lambda: self._registrar.lease_ttl_s, log,
                               self._inquiry.ask_first)
        self.spread = Spread(lambda: local.agent_id, table, self.facts, self._controls, log,
                             random.Random(os.urandom(16)), on_changes=self._changes,
                             on_notice=self._inquiry.hear, on_confirmed=self._sync.confirmed,
                             on_absent_too_long=self._was_away)
        self._registrar.on_answer = self._answered
        self._registrar.on_registered = lambda _: self._choose_source()
        self._sync.on_new_epoch = self._control_is_new
        self._sync.on_aliases = self.facts.take_aliases
        self._sync.on_whole = self.spread.absence.reset
        self._sync.on_answer = self._hear_control
        self._saving = Saving(self._path, self._snapshot, lambda: self.connected, log)
        self._cached_age: tuple[float, float] | None = None
        self._speaks_gossip = False
        self._trusted: tuple[frozenset[bytes], bool] = (frozenset(), False)  # keys, and whether this node signs
        self._both_had = ("", "")  # hashes of our table and of control's at the last heartbeat
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def instance(self) -> str:
        """This sidecar's random name, which its state directory keeps."""
        return self._instance.name

    @property
    def synced(self) -> asyncio.Event:
        return self._sync.synced

    @property
    def registered(self) -> asyncio.Event:
        return self._registrar.registered

    @property
    def lease_ttl_s(self) -> float:
        return self._registrar.lease_ttl_s

    @property
    def gen(self) -> int:
        return self._registrar.gen

    def hello(self) -> Hello:
        """Who is here, for those who look whether we are."""
        return Hello(agent_id=self._local.agent_id, owner=self._owner, gen=self._registrar.gen,
                     version=self._local.version)

    @property
    def connected(self) -> bool:
        return self._controls.connected

    @property
    def control_url(self) -> str | None:
        return self._controls.url

    @property
    def problem(self) -> str | None:
        """A sentence about what keeps this sidecar out of the mesh, or None."""
        refusal = self._registrar.refusal
        return refusal.detail if refusal is not None else self._controls.trouble or self._sync.trouble

    @property
    def refusal(self) -> Problem | None:
        """Why control will not have our agent, None unless it said so."""
        return self._registrar.refusal

    @property
    def missing_table(self) -> str:
        """What a caller is told who came before the first table, in sentences."""
        where = " or ".join(self._controls.urls)
        state = "has not sent it yet" if self.connected else "has not been reached"
        mend = "Start it with `reach control`, or correct `control:` in the configuration."
        return f"This sidecar has no table of agents: the control node at {where} {state}. {self.problem or mend}"

    @property
    def address(self) -> str:
        """Where other sidecars reach this one, `host:port`."""
        return self._advertise()

    @property
    def ask(self) -> Callable[[], Iterable[str]]:
        return self._registrar.ask

    @ask.setter
    def ask(self, ask: Callable[[], Iterable[str]]) -> None:
        self._registrar.ask = ask

    @property
    def failures(self) -> Callable[[], Mapping[str, int]]:
        return self._registrar.failures

    @failures.setter
    def failures(self, failures: Callable[[], Mapping[str, int]]) -> None:
        self._registrar.failures = failures

    @property
    def on_loads(self) -> Callable[[dict[str, Load]], None]:
        return self._registrar.on_loads

    @on_loads.setter
    def on_loads(self, on_loads: Callable[[dict[str, Load]], None]) -> None:
        self._registrar.on_loads = on_loads

    @property
    def from_cache(self) -> bool:
        """The table is the one from the disk: control has not confirmed it yet."""
        return self._sync.fresh_at is None and self._cached_age is not None

    def table_age_s(self, now: float) -> float | None:
        """Seconds since control last confirmed the table; None if there is none. `now` is monotonic."""
        if self._sync.fresh_at is not None:
            return max(0.0, now - self._sync.fresh_at)
        if self._cached_age is not None:
            age_s, at = self._cached_age
            return age_s + now - at
        return None

    async def start(self, datagrams: DatagramSocket | None = None) -> None:
        """Load what the disk has, and begin. Returns at once: control need not be there. Without `datagrams` (the UDP
        socket beside the mesh listener) gossip is left to comparisons over TCP."""
        self._load()
        if not self._controls.urls:
            self.synced.set()
            self.registered.set()
            return
        if datagrams is not None:
            await self.spread.start(datagrams)
        self._local.changed.append(self._registrar.wake)
        self._tasks = [
            asyncio.create_task(supervise(name, run, self._log), name=name)
            for name, run in (("registrar", self._registrar.run), ("table sync", self._sync.run),
                              ("mesh info", self._inquiry.run), ("gossip", self.spread.run),
                              ("table cache", self._saving.run))
        ]

    async def stop(self, leave: bool = True) -> None:
        """End within about a second. `leave` tells control that the agent is gone for good."""
        if self._tasks:
            self._local.changed.remove(self._registrar.wake)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if leave:
            await self._registrar.leave()
        await self.spread.stop()
        await self._controls.close()
        await self._saving.finish()
        self._instance.close()

    async def settled(self) -> None:
        """Until control has answered what our agent is now; see `registered` and `refusal` then."""
        await self._registrar.settled()

    # -- what comes in

    def _take(self, entries: list[Entry], url: str) -> None:
        """Of the table of the control node `url`. One that is too old to sign anything is taken at its word."""
        if self.facts.signs(url):
            self.spread.load(entries)
        else:
            self._drop(entries)

    def _drop(self, entries: list[Entry]) -> None:
        """Merge unverified entries: of a control node that signs none, or tombstones of our own."""
        if changes := self._table.merge(entries, wall_ms()):
            self._changes(changes)

    def _changes(self, changes: list[Change]) -> None:
        self._saving.note()
        self._on_changes(changes)
        for _, after in changes:
            if after.agent_id == self._local.agent_id and not self._local.is_gateway:
                self._hear_of_ourselves(after)

    def _hear_of_ourselves(self, entry: Entry) -> None:
        """Our agent as the mesh has it: contradict what is wrong, give way to a process that came later."""
        registrar = self._registrar
        if entry.rank >= Rank.SUSPECT:
            registrar.wake()
        elif self._local.registered and entry.gen > registrar.gen and entry.owner not in ("", self._owner):
            registrar.fence(entry)

    def _answered(self, url: str, answer: RegisterAnswer | HeartbeatAnswer) -> None:
        self._sync.seen(answer.epoch, answer.seq, answer.hash)
        self._speaks_gossip = answer.info > 0
        self._hear_control(url, answer.info)
        self._choose_source()
        both = (self._table.hash, answer.hash)
        if answer.hash and both[0] != both[1] and both == self._both_had:
            self.spread.compare(None)  # neither has changed for a heartbeat, and they differ: something passed us by
        self._both_had = both
        if self.facts.let_go(time.monotonic(), KEYS_COUNT_FOR * self.lease_ttl_s):
            self._forget_unsigned()

    def _hear_control(self, url: str, info: int) -> None:
        """Control answered, by a heartbeat or with a table; `info` is the version of its facts."""
        self.spread.hear_control()
        if info != self.facts.version_of(url):
            self._inquiry.hear(info)

    def _choose_source(self) -> None:
        """Gossip reaches an agent that is registered, and only where control speaks it."""
        self._sync.rest(self._local.registered and self._speaks_gossip and self.facts.is_known)

    def _forget_unsigned(self) -> None:
        """What only a key vouches for that counts no longer: nobody would renew or remove it."""
        gone = [entry.agent_id for entry in self._table.entries(tombstones=True) if not self.facts.keyring.knows(entry)]
        changes = [change for change in map(self._table.forget, gone) if change is not None]
        self.spread.machine.forget_what_was_seen()
        if changes:
            self._log.event("warn", "table", status="unsigned",
                            detail=f"{len(changes)} agents are forgotten: no control node vouches for them any more")
            self._changes(changes)

    def _was_away(self) -> None:
        self._log.event("warn", "table", status="stale",
                        detail="nothing was heard of control for over 12 h: the table is loaded anew")
        self._changes(self._table.clear())
        self.spread.machine.forget_what_was_seen()
        self._sync.begin_again()

    def _facts_changed(self) -> None:
        self._saving.note()
        trusted = (self.facts.keyring.publics, self.facts.signs(self._controls.url or ""))
        if trusted != self._trusted:
            self._trusted = trusted
            if self._sync.polls:  # what could not be believed until now is not told again
                self._sync.begin_again()
        self._choose_source()

    def _aliases_changed(self, aliases: Mapping[str, Sequence[str]]) -> None:
        self._saving.note()
        self.on_aliases({name: list(others) for name, others in aliases.items()})

    def _control_is_new(self) -> None:
        """Another node, or a restarted one: is our agent known there? All sidecars ask, so not all at once."""
        self._saving.note()
        asyncio.get_running_loop().call_later(0.5 * self._controls.chance(), self._registrar.wake)

    # -- the disk

    @property
    def _path(self) -> Path:
        return self._state_dir / "table.json"

    def _load(self) -> None:
        now_ms = wall_ms()
        cached = load_table(self._path, self._controls.urls, now_ms)
        if cached is None:
            return
        self._cached_age = ((now_ms - cached.saved_ms) / 1000, time.monotonic())
        self.facts.take_aliases(cached.aliases)
        self.facts.restore(cached.infos, self._controls.urls, time.monotonic())
        entries, _ = read_entries(cached.entries, cached.signatures)
        changes = self._table.merge(entries, now_ms)
        self._sync.place = (cached.epoch, cached.seq)
        if changes:
            self._on_changes(changes)
            self.synced.set()
            self._log.event("info", "table", status="loaded", detail=f"{len(self._table)} agents from {self._path}")

    def _snapshot(self) -> CachedTable:
        age_s = self.table_age_s(time.monotonic()) or 0.0
        return pack_table(self._table.entries(tombstones=True), controls=self._controls.urls, place=self._sync.place,
                          saved_ms=wall_ms() - int(age_s * 1000), aliases=self.facts.aliases,
                          infos=self.facts.saved())


def _ignore(*_: object) -> None:
    pass
