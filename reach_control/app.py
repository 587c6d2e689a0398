"""One control node, wired together: the only place that knows all its parts.

A request of a sidecar: listener -> guard -> api/mesh -> membership/service -> registry (decides) -> log, keeper -> disk
-> spread/seeding -> four sidecars, which tell the others; and -> feed -> the gateways that wait.
Another control node: nodes/pushing -> listener -> guard -> api/gossip -> registry/exchange -> the same way.
"""

import asyncio
import os
import random
import secrets
import time
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from reach_control.api.admin import AdminApi
from reach_control.api.gossip import GossipApi
from reach_control.api.guard import Guard
from reach_control.api.health import Health
from reach_control.api.listeners import Listeners
from reach_control.api.mesh import MAX_BODY, MeshApi
from reach_control.config import ControlConfig, complete
from reach_control.identity.keys import NodeKeys
from reach_control.journal.snapshot import Snapshot
from reach_control.membership.client import Client
from reach_control.membership.feed import Feed
from reach_control.membership.info import Info
from reach_control.membership.keeper import Keeper
from reach_control.membership.looks import Looks
from reach_control.membership.restore import restore
from reach_control.membership.service import Service
from reach_control.membership.tending import Tending
from reach_control.nodes.pushing import Nodes
from reach_control.nodes.tables import Tables
from reach_control.registry.exchange import Exchange
from reach_control.registry.lease import Moment, Terms
from reach_control.registry.registry import Registry
from reach_control.spread.seeding import Seeding
from reach_control.telemetry.log import ControlLog
from reach_control.telemetry.metrics import Figures
from reach_core.gossip.absence import MAX_AWAY_S, Absence
from reach_core.gossip.datagram import MAX_DATAGRAM
from reach_core.keyring import KEY_ID_BYTES
from reach_core.peer import Entry
from reach_core.table import PeerTable
from reach_os.datagrams import DatagramSocket
from reach_os.state_dir import StateDir, lock_state_dir

REACH_PEER_S = 3.0


def clock() -> Moment:
    return Moment(time.monotonic(), time.time_ns() // 1_000_000)


class Control:
    """`start()` and `stop()` once each.

    What `start` raises (PortError, StateDirError, SnapshotError, KeyFileError) says what to do; by then everything is
    given back.
    """

    def __init__(self, config: ControlConfig, api_token: str | None = None) -> None:
        self.config = config
        self.log = ControlLog(config.log.level, config.log.format)
        self._token = api_token if api_token is not None else os.environ.get("REACH_API_TOKEN")
        self._listeners = Listeners()
        self._udp: DatagramSocket | None = None
        self._state_dir: StateDir | None = None
        self._snapshot: Snapshot | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._keeping: asyncio.Task[None] | None = None
        self._started_s = time.monotonic()
        self._is_ready = False

    async def start(self) -> dict[str, str]:
        """The addresses that are listened on: `{"api": "host:port", "admin": …}`, and `probe` if there is one."""
        try:
            self._listeners.bind(self.config.listen, self.config.insecure, self.log)
            await self._restore()
            for name in self._listeners.sockets:
                await self._serve(name)
        except BaseException:
            await self.stop()
            raise
        self._is_ready = True
        return self._listeners.addresses

    async def stop(self) -> None:
        """Answer those who wait, note what is known, give everything back."""
        self._is_ready = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._keeping is not None:
            self._keeper.stop()
            await asyncio.gather(self._keeping, return_exceptions=True)
            self._service.feed.close()
            await asyncio.gather(self._looks.stop(), self._seeding.stop(), self._nodes.stop())
        if self._udp is not None:
            self._udp.close()
        await self._listeners.close()
        if self._keeping is not None:
            await self._keeper.flush()  # what came while the listeners closed
            await self._client.close()
        if self._snapshot is not None:
            await self._snapshot.close()
        if self._state_dir is not None:
            self._state_dir.release()

    # -- steps of the start

    def _build(self, registry: Registry) -> None:
        chance, keys = random.Random(os.urandom(16)), self._keys
        table, epoch = registry.table, secrets.token_hex(8)
        self.feed = Feed(table, epoch, self.config.aliases)
        self._spread_upto = 0
        self._absence = Absence(_boot_s())
        self._seeding = Seeding(keys.node, table, lambda: keys.seal(clock().ms), self._client, chance)
        self._info = Info(keys, self.config.aliases, self._announce)
        is_new = self._info.refresh(clock().ms)
        self._seeding.seeds.notice = self.feed.info = self._info.version
        self._service = Service(registry, self.feed, clock, self._note, self.log, lambda: self._info.version)
        self._tending = Tending(keys, self._info, registry, clock, self._service.apply, self.log)
        if is_new:
            self._tending.save()
        self._looks = Looks(self._client, self._service.looked, self.log)
        self._service.on_look, self._service.on_probe = self._looks.begin, self._looks.probe
        self._service.on_heartbeat = lambda: self._absence.goes_on(_boot_s())
        self._tables = Tables(keys.node, table, keys.keyring, chance, self._service.meet, time.monotonic, self._forged)
        exchange = Exchange(registry, keys.node, self._listeners.url, chance, epoch=epoch,
                            verify=lambda entry: self._tables.verify(entry, "another control node"))
        self._nodes = Nodes(self.config.peers, exchange, self._tables, keys, self._client, clock, self._service.apply,
                            self._tending.changed, self._heard, self._is_stale, self.log)

    async def _restore(self) -> None:
        config, now = self.config, clock()
        self._state_dir = lock_state_dir(config.state_dir or complete(config, os.environ).state_dir or "")
        folder = self._state_dir.path
        keys = self._keys = NodeKeys(folder / "identity.json", now.ms)
        self._client = Client(self._token)
        lease = config.lease
        terms = Terms(lease.heartbeat, lease.ttl, lease.down, lease.forget, lease.cooldown)
        registry = Registry(config.cluster, terms, PeerTable(), now, random.Random(os.urandom(16)), sign=self._sign)
        self._build(registry)
        self._snapshot = Snapshot(folder / "table.sqlite")
        on_disk = await restore(self._snapshot, registry, keys, now, self._reach_others, self.log)
        self._keeper = Keeper(registry.table, on_disk, self._snapshot, self._publish, lambda: clock().ms, self.log)
        self.feed.visible = self._spread_upto = on_disk
        self._keeper.note()
        assert self._listeners.datagrams is not None
        self._udp = DatagramSocket(self._listeners.datagrams, self._seeding.received, MAX_DATAGRAM)
        await self._seeding.start(self._udp)
        self._keeping = asyncio.create_task(self._keeper.run(), name="keeper")
        self._run("lease watch", self._service.watch_time())
        self._run("seeds", self._seeding.run())
        self._run("other nodes", self._nodes.run())
        self._run("keys", self._tending.run())

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    async def _serve(self, name: str) -> None:
        health = Health(self._why_not_ready, self._figures)
        if name == "probe":
            await self._listeners.serve(name, health.routes(metrics=True), (), MAX_BODY)
            return
        if name == "api":
            routes = MeshApi(self._service, health, lambda: self._info.encoded).routes()
            routes += GossipApi(self._tables.answer, self._nodes.receive, self._heard).routes()
        else:
            routes = AdminApi(self._service, health, self._status).routes()
        guard = Guard(self._listeners.is_local(name), self._token, self.log)
        await self._listeners.serve(name, routes, (guard.middleware,), MAX_BODY)

    # -- while it runs

    def rename(self, aliases: Mapping[str, list[str]]) -> None:
        """Other mesh-wide aliases from now on."""
        self._info.rename(aliases)
        self._info.refresh(clock().ms)
        self.feed.rename(aliases, secrets.token_hex(8))

    def _sign(self, entry: Entry) -> Entry:
        return self._keys.signer(clock().ms).sign(entry)

    def _note(self) -> None:
        self._keeper.note()
        self._nodes.stir()

    def _announce(self, version: int) -> None:
        """Of what holds mesh-wide: to sidecars by gossip, and to gateways, which nobody tells."""
        self._seeding.announce(version)
        self.feed.inform(version)

    def _publish(self, seq: int) -> None:
        """Everything up to `seq` is on disk. What other nodes decided, they tell sidecars themselves."""
        self.feed.publish(seq)
        since, self._spread_upto = self._spread_upto, seq
        entries = self._service.registry.table.delta_since(since, seq) or []
        own = self._keys.signer(clock().ms).key_id
        self._seeding.tell([entry for entry in entries if entry.signature[:KEY_ID_BYTES] == own])

    def _is_stale(self) -> bool:
        return self._absence.is_too_long(_boot_s())

    def _heard(self) -> None:
        """Another node or a sidecar was heard of. Whoever was away for too long begins anew, before tables are
        compared."""
        if self.config.peers and self._absence.heard(_boot_s()):
            detail = f"Nothing was heard for over {MAX_AWAY_S / 3600:.0f} h: the table is taken from the others anew."
            self.log.event("warn", "stale", detail=detail)
            self._service.registry.begin_anew()
            self._keeper.begin_anew()
            self.feed.rename(self.config.aliases, secrets.token_hex(8))
            self._absence.reset()
            self._note()

    def _forged(self, agent_id: str, source: str) -> None:
        detail = (f"{source} passed on an entry of {agent_id} whose signature is wrong: it was altered or made up, and "
                  "is ignored. Look at what runs there.")
        self.log.event("warn", "forged", agent_id, detail)

    async def _reach_others(self) -> bool:
        return await self._nodes.reach_any(REACH_PEER_S)

    # -- what the listeners show

    def _why_not_ready(self) -> str | None:
        if not self._is_ready:
            return "The node is starting or stopping."
        for task in (*self._tasks, self._keeping):
            if task is not None and task.done():
                return f"The task {task.get_name()!r} of this node has ended: see the log, and restart the node."
        return None

    def _status(self) -> dict[str, Any]:
        path = self._snapshot.path if self._snapshot is not None else None
        return {
            "cluster": self.config.cluster,
            "uptime_s": round(time.monotonic() - self._started_s, 1),
            "ready": self._is_ready,
            "snapshot": {"path": str(path), "batches": self._keeper.batches, "problem": self._keeper.problem},
            "lease": msgspec.to_builtins(self.config.lease),
            "aliases": self.config.aliases,
            "node": {"id": self._keys.node, "url": self._listeners.url},
            "frozen": self._service.registry.frozen(clock()),
            "nodes": [state._asdict() for state in self._nodes.exchange.nodes(clock())],
        }

    def _figures(self) -> Figures:
        service = self._service
        registry = service.registry
        return Figures(
            agents=registry.count_by_status(),
            tombstones=registry.table.tombstones,
            requests=service.counts,
            refused=service.refused,
            entries_refused=registry.table.refused,
            changes=service.changes,
            waiting=service.feed.waiting,
            stalls=registry.stalls,
            snapshot_ok=self._keeper.problem is None,
            looks=self._looks.counts,
            seeds=self._seeding.counts,
            comparisons=self._tables.counts,
            nodes=self._nodes.exchange.nodes(clock()),
            frozen=registry.frozen(clock()) is not None,
        )


def _boot_s() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
