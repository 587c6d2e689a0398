"""Membership: one registration kept alive, one table kept up to date, and both survive a restart.

Two loops that never wait for each other (`registrar`, `sync`) share one view of the control nodes, and a third
puts the table on disk when it changed. None of them is on the path of a call.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from reach_core.messages import Load, read_entries
from reach_core.problem import Problem
from reach_core.table import Change, PeerTable
from reach_sidecar.membership.cache import CachedTable, Instance, load_table, save_table
from reach_sidecar.membership.controls import Controls, EventLog
from reach_sidecar.membership.local import LocalAgent
from reach_sidecar.membership.registrar import Registrar
from reach_sidecar.membership.supervise import supervise
from reach_sidecar.membership.sync import TableSync

SAVE_AFTER_S = 1.0
SAVE_AT_LEAST_EVERY_S = 600.0
SAVE_SHARE = 20
"""Writing may take 1/20 of the time: a table of 20,000 entries that changes all the time is written less often."""


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
        self._controls = Controls(controls, log, api_token=api_token)
        self._registrar = Registrar(self._controls, local, advertise, self._instance.name, log)
        self._sync = TableSync(self._controls, table, self._changes, lambda: self._registrar.lease_ttl_s, log)
        self._registrar.on_seen = self._sync.seen
        self._sync.on_new_epoch = self._control_is_new
        self._sync.on_aliases = self._aliases_changed
        self.on_aliases: Callable[[Mapping[str, list[str]]], None] = _ignore
        self._dirty = asyncio.Event()
        self._cannot_save: str | None = None
        self._cached_age: tuple[float, float] | None = None
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

    async def start(self) -> None:
        """Load what the disk has, and begin. Returns at once: control need not be there."""
        self._load()
        if not self._controls.urls:
            self.synced.set()
            self.registered.set()
            return
        self._local.changed.append(self._registrar.wake)
        self._tasks = [
            asyncio.create_task(supervise(name, run, self._log), name=name)
            for name, run in (("registrar", self._registrar.run), ("table sync", self._sync.run),
                              ("table cache", self._keep_saved))
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
        await self._controls.close()
        if self._dirty.is_set():
            await self._save()
        self._instance.close()

    async def settled(self) -> None:
        """Until control has answered what our agent is now; see `registered` and `refusal` then."""
        await self._registrar.settled()

    def _changes(self, changes: list[Change]) -> None:
        self._dirty.set()
        self._on_changes(changes)

    def _aliases_changed(self, aliases: Mapping[str, list[str]]) -> None:
        self._dirty.set()
        self.on_aliases(aliases)

    def _control_is_new(self) -> None:
        """Another node, or a restarted one: is our agent known there? All sidecars ask, so not all at once."""
        self._dirty.set()
        asyncio.get_running_loop().call_later(0.5 * self._controls.chance(), self._registrar.wake)

    @property
    def _path(self) -> Path:
        return self._state_dir / "table.json"

    def _load(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        cached = load_table(self._path, self._controls.urls, now_ms)
        if cached is None:
            return
        self._cached_age = ((now_ms - cached.saved_ms) / 1000, time.monotonic())
        entries, _ = read_entries(cached.entries)
        changes = self._table.merge(entries, now_ms)
        self._sync.place = (cached.epoch, cached.seq)
        self._sync.take_aliases(cached.aliases)
        if changes:
            self._on_changes(changes)
            self.synced.set()
            self._log.event("info", "table", status="loaded", detail=f"{len(self._table)} agents from {self._path}")

    async def _keep_saved(self) -> None:
        wait_s = SAVE_AFTER_S
        while True:
            try:
                async with asyncio.timeout(SAVE_AT_LEAST_EVERY_S):
                    await self._dirty.wait()
            except TimeoutError:
                if not self.connected:  # the table grows old, and the file must say so
                    continue
            await asyncio.sleep(wait_s)
            began = time.monotonic()
            await self._save()
            wait_s = max(SAVE_AFTER_S, SAVE_SHARE * (time.monotonic() - began))

    async def _save(self) -> None:
        self._dirty.clear()
        epoch, seq = self._sync.place
        age_s = self.table_age_s(time.monotonic()) or 0.0
        cached = CachedTable(
            controls=tuple(self._controls.urls),
            epoch=epoch,
            seq=seq,
            saved_ms=time.time_ns() // 1_000_000 - int(age_s * 1000),
            entries=[msgspec.Raw(entry.encoded) for entry in self._table.entries(tombstones=True)],
            aliases=self._sync.aliases,
        )
        try:
            await asyncio.to_thread(save_table, self._path, cached)
        except OSError as error:
            if str(error) != self._cannot_save:
                self._cannot_save = str(error)
                self._log.event("warn", "table", status="not_saved",
                                detail=f"{error}: after a restart this sidecar routes only once control answers")


def _ignore(*_: object) -> None:
    pass
