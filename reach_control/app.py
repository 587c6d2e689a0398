"""One control node, wired together: the only place that knows all its parts.

A request of a sidecar: listener -> guard -> api/mesh -> membership/service -> registry (decides) -> log, keeper -> disk
-> spread/seeding -> four sidecars, which tell the others; and -> feed -> the gateways that wait.
Another control node: nodes/pushing -> listener -> guard -> api/gossip -> registry/exchange -> the same way.
"""

import asyncio
import os
import random
import secrets
import socket
import time
from collections.abc import Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from reach_control.api.admin import AdminApi
from reach_control.api.gossip import GossipApi
from reach_control.api.guard import Guard
from reach_control.api.health import Health
from reach_control.api.mesh import MAX_BODY, MeshApi
from reach_control.config import ControlConfig, complete
from reach_control.identity.keyfile import KeyFileError
from reach_control.identity.keys import NodeKeys
from reach_control.journal.snapshot import Snapshot
from reach_control.membership.client import Client
from reach_control.membership.feed import Feed
from reach_control.membership.info import Info
from reach_control.membership.keeper import Keeper
from reach_control.membership.looks import Looks
from reach_control.membership.service import Service
from reach_control.nodes.pushing import Nodes
from reach_control.nodes.tables import Tables
from reach_control.registry.exchange import Exchange
from reach_control.registry.lease import Moment, Terms
from reach_control.registry.registry import Registry
from reach_control.spread.seeding import Seeding
from reach_control.telemetry.log import ControlLog
from reach_control.telemetry.metrics import Figures
from reach_core.address import is_loopback, join_address, split_address
from reach_core.gossip.absence import MAX_AWAY_S, Absence
from reach_core.keyring import KEY_ID_BYTES
from reach_core.peer import Entry
from reach_core.table import PeerTable
from reach_os.datagrams import DatagramSocket
from reach_os.ports import PortError, address_of, configured_as, listen, listen_pair
from reach_os.state_dir import StateDir, lock_state_dir

STOP_S = 2.0
REACH_PEER_S = 3.0
TEND_KEYS_S = 30.0
MOST_SIGNED_ANEW = 100  # in a second


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
        self._sockets: dict[str, socket.socket] = {}
        self._datagrams: socket.socket | None = None
        self._udp: DatagramSocket | None = None
        self._state_dir: StateDir | None = None
        self._snapshot: Snapshot | None = None
        self._runners: list[web.AppRunner] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._keeping: asyncio.Task[None] | None = None
        self._started_s = time.monotonic()
        self._is_ready = False

    async def start(self) -> dict[str, str]:
        """The addresses that are listened on: `{"api": "host:port", "admin": …}`, and `probe` if there is one."""
        try:
            self._bind()
            await self._restore()
            for name, taken in self._sockets.items():
                await self._serve(name, taken)
        except BaseException:
            await self.stop()
            raise
        self._is_ready = True
        return {name: address_of(taken) for name, taken in self._sockets.items()}

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
        for runner in self._runners:
            await runner.cleanup()
        for taken in self._sockets.values():
            taken.close()
        if self._udp is not None:
            self._udp.close()
        elif self._datagrams is not None:
            self._datagrams.close()
        if self._keeping is not None:
            await self._keeper.flush()  # what came while the listeners closed
            await self._client.close()
        if self._snapshot is not None:
            await self._snapshot.close()
        if self._state_dir is not None:
            self._state_dir.release()

    # -- steps of the start

    def _bind(self) -> None:
        wanted = self.config.listen
        for name, address in (("api", wanted.api), ("admin", wanted.admin), ("probe", wanted.probe)):
            if address is None:
                continue
            host, port = split_address(address)
            if name != "probe" and not is_loopback(host):
                self._check_exposure(name, address)
            with configured_as(f"listen.{name}"):
                if name == "api":
                    self._sockets[name], self._datagrams = listen_pair(host, port)
                else:
                    self._sockets[name] = listen(host, port)

    def _check_exposure(self, name: str, address: str) -> None:
        if not self.config.insecure:
            raise PortError(
                f"`listen.{name}: {address}` would be reachable from other machines without TLS. "
                "Listen on 127.0.0.1, or write `insecure: true` for a closed network."
            )
        detail = f"{name} listens on {address} without TLS: whoever reaches it can register agents (insecure: true)."
        self.log.event("warn", "insecure", detail=detail)

    def _build(self, registry: Registry) -> None:
        chance, keys = random.Random(os.urandom(16)), self._keys
        table, epoch = registry.table, secrets.token_hex(8)
        self.feed = Feed(table, epoch, self.config.aliases)
        self._spread_upto = 0
        self._absence = Absence(_boot_s())
        self._seeding = Seeding(keys.node, table, lambda: keys.seal(clock().ms), self._client, chance)
        self._info = Info(keys, self.config.aliases, self._seeding.announce)
        if self._info.refresh(clock().ms):
            self._save_keys()
        self._seeding.seeds.notice = self._info.version
        self._service = Service(registry, self.feed, clock, self._note, self.log, lambda: self._info.version)
        self._looks = Looks(self._client, self._service.looked, self.log)
        self._service.on_look, self._service.on_probe = self._looks.begin, self._looks.probe
        self._tables = Tables(keys.node, table, keys.keyring, chance, self._service.meet, time.monotonic, self._forged)
        exchange = Exchange(registry, keys.node, self._own_url(), chance, epoch=epoch,
                            verify=lambda entry: self._tables.verify(entry, "another control node"))
        self._nodes = Nodes(self.config.peers, exchange, self._tables, keys, self._client, clock, self._service.apply,
                            self._keys_changed, self._heard, self.log)

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
        away_s = _seconds_since_written(folder / "table.sqlite")
        self._snapshot = Snapshot(folder / "table.sqlite")
        noted = await self._snapshot.open(now.ms)
        entries = noted.entries
        if away_s > MAX_AWAY_S and entries and await self._nodes.reach_any(REACH_PEER_S):
            entries = []
            await self._snapshot.clear()
            detail = f"Nothing was noted for {away_s / 3600:.0f} h: the table is taken from another control node."
            self.log.event("warn", "restored", detail=detail)
        registry.restore([entry for entry in entries if keys.keyring.knows(entry)], now)
        self._keeper = Keeper(registry.table, self._snapshot, self._publish, lambda: clock().ms, self.log)
        self.feed.visible = self._spread_upto = registry.table.seq
        registry.meet((self._sign(_next(entry)) for entry in entries if not keys.keyring.knows(entry)), now)
        self._keeper.note()
        if noted.unreadable:
            detail = f"{noted.unreadable} entries on disk could not be read; their agents will register again."
            self.log.event("warn", "restored", detail=detail)
        self.log.event("info", "restored", detail=f"{len(registry.table)} agents from {self._snapshot.path}")
        assert self._datagrams is not None
        self._udp = DatagramSocket(self._datagrams, self._seeding.received)
        await self._seeding.start(self._udp)
        self._keeping = asyncio.create_task(self._keeper.run(), name="keeper")
        self._run("lease watch", self._service.watch_time())
        self._run("seeds", self._seeding.run())
        self._run("other nodes", self._nodes.run())
        self._run("keys", self._tend_keys())

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    async def _serve(self, name: str, taken: socket.socket) -> None:
        health = Health(self._why_not_ready, self._figures)
        middlewares: list[Middleware] = []
        if name == "probe":
            routes = health.routes(metrics=True)
        else:
            guard = Guard(is_loopback(taken.getsockname()[0]), self._token, self.log)
            middlewares.append(guard.middleware)
            if name == "api":
                routes = MeshApi(self._service, health, lambda: self._info.encoded).routes()
                routes += GossipApi(self._tables.answer, self._nodes.receive, self._heard).routes()
            else:
                routes = AdminApi(self._service, health, self._status).routes()
        app = web.Application(middlewares=middlewares, client_max_size=MAX_BODY)
        app.add_routes(routes)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_S)
        await runner.setup()
        self._runners.append(runner)
        await web.SockSite(runner, taken, backlog=1024).start()

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

    def _publish(self, seq: int) -> None:
        """Everything up to `seq` is on disk. What other nodes decided, they tell sidecars themselves."""
        self.feed.publish(seq)
        since, self._spread_upto = self._spread_upto, seq
        entries = self._service.registry.table.delta_since(since, seq) or []
        own = self._keys.signer(clock().ms).key_id
        self._seeding.tell([entry for entry in entries if entry.signature[:KEY_ID_BYTES] == own])

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

    def _keys_changed(self) -> None:
        self._info.refresh(clock().ms)
        self._save_keys()

    def _save_keys(self) -> None:
        try:
            self._keys.save()
        except KeyFileError as error:
            self.log.event("error", "identity", detail=str(error))

    async def _tend_keys(self) -> None:
        """Keys change with time: announce new ones, sign anew what is signed with old ones, drop those."""
        registry, keys = self._service.registry, self._keys
        while True:
            now = clock()
            is_new = keys.rotate(now.ms)
            good = keys.good_ids(now.ms)
            changes = registry.resign(partial(_is_signed_otherwise, good), MOST_SIGNED_ANEW, now)
            self._service.apply(changes)
            if not changes:
                in_use = {entry.signature[:KEY_ID_BYTES] for entry in registry.table.entries(tombstones=True)}
                is_new = keys.retire(in_use, now.ms) or is_new
            if self._info.refresh(now.ms) or is_new:
                self._save_keys()
            await asyncio.sleep(1.0 if changes else TEND_KEYS_S)

    def _own_url(self) -> str:
        host, port = self._sockets["api"].getsockname()[:2]
        return f"http://{join_address(str(host), int(port))}"

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
            "node": {"id": self._keys.node, "url": self._own_url()},
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
            seeds={**self._seeding.counts, "unheard": self._seeding.seeds.unheard,
                   "left_to_comparison": self._seeding.seeds.dropped},
            comparisons=self._tables.counts,
            nodes=self._nodes.exchange.nodes(clock()),
            frozen=registry.frozen(clock()) is not None,
        )


def _is_signed_otherwise(good: frozenset[bytes], entry: Entry) -> bool:
    return entry.signature[:KEY_ID_BYTES] not in good


def _next(entry: Entry) -> Entry:
    """With a new version, so that its new signature gets around."""
    return entry if entry.is_tombstone else msgspec.structs.replace(entry, ver=entry.ver + 1)


def _boot_s() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _seconds_since_written(path: Path) -> float:
    """By the wall clock; 0 if there is nothing."""
    times = [one.stat().st_mtime for one in (path, path.with_name(path.name + "-wal")) if one.exists()]
    return max(0.0, time.time() - max(times)) if times else 0.0
