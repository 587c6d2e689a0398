"""One sidecar, wired top to bottom: the only place that knows all parts."""

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from reach_core import __version__
from reach_core.address import is_loopback, is_wildcard, join_address, split_address
from reach_core.door import Door
from reach_core.gossip.datagram import MAX_DATAGRAM
from reach_core.peer import Rank
from reach_core.table import Change, PeerTable
from reach_os.datagrams import DatagramSocket
from reach_os.ports import PortError, configured_as, listen_pair
from reach_os.state_dir import StateDir, lock_state_dir
from reach_sidecar.config import SidecarConfig
from reach_sidecar.config_unused import without_effect
from reach_sidecar.forward.admit import Room
from reach_sidecar.forward.cancel import Canceller
from reach_sidecar.forward.chain import Chains
from reach_sidecar.forward.deliver import Deliver
from reach_sidecar.forward.egress import Egress
from reach_sidecar.forward.route import Routes, Upstream, upstream_of
from reach_sidecar.forward.running import RunningCalls
from reach_sidecar.forward.send import MESH_IDLE_S
from reach_sidecar.forward.stack import mesh_marks, mesh_stack, outbound_stack, own_load
from reach_sidecar.forward.stores import Stores
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.listener import BACKLOG, Listener
from reach_sidecar.http1.server import Handler, Service
from reach_sidecar.journal.database import JournalError
from reach_sidecar.listen.admin import AdminApp
from reach_sidecar.listen.admin_gauges import gauges
from reach_sidecar.listen.admin_ready import Facts, Readiness, judge
from reach_sidecar.listen.admin_sources import Sources
from reach_sidecar.listen.local_api import LocalApi
from reach_sidecar.listen.mesh import Mesh
from reach_sidecar.listen.mesh_questions import MeshQuestions
from reach_sidecar.listen.outbound import Outbound
from reach_sidecar.membership.declared import declared_agent
from reach_sidecar.membership.driver import Membership
from reach_sidecar.membership.health import HealthChecks
from reach_sidecar.membership.view import PeerView
from reach_sidecar.policy.pick import Weights
from reach_sidecar.telemetry.log import LogWriter
from reach_sidecar.telemetry.metrics import Metrics
from reach_sidecar.telemetry.store import LogStore

ABANDON_AFTER_S = 5.0  # how long a run goes on when the connection it came by broke (design §3)
MESH_HEAD_BYTES = 8 * 1024  # more than a caller may send: the calling sidecar adds fields of its own
TIDY_EVERY_S = 1.0
EXPIRE_EVERY_S = 60.0
DRAIN_CHECK_S = 0.1
LOOPBACK_V6 = "::1"


class InsecureListener(Exception):
    """A listener beyond loopback without TLS, and nobody said that this is meant."""


class Sidecar:
    """`start` returns the addresses it listens on; `stop` ends running calls within the grace period.

    `state` is its directory where the caller has locked it already; `stop` gives it back all the same.
    """

    def __init__(self, config: SidecarConfig, env: Mapping[str, str] | None = None,
                 state: StateDir | None = None) -> None:
        self.config = config
        self._env = dict(os.environ if env is None else env)
        self.addresses: dict[str, str] = {}
        self.local = declared_agent(config)
        self.table = PeerTable()
        self._state = state
        self._listeners: list[Listener] = []
        self._own_doors: list[AdminApp] = []
        self._datagrams: DatagramSocket | None = None
        self._tidier: asyncio.TimerHandle | None = None
        self._expire_at = 0.0
        self._expiry: asyncio.Task[None] | None = None
        self._stop_asked = asyncio.Event()

    async def start(self) -> dict[str, str]:
        """Raises PortError, StateDirError, InsecureListener or JournalError: each says in a sentence what to do."""
        config = self.config
        _refuse_open_listeners(config)
        if self._state is None:
            self._state = lock_state_dir(config.state_dir or ".")
        state_dir = self._state.path
        store = LogStore(state_dir / "logs.db", keep_s=config.log.keep, max_bytes=config.log.max_size)
        self.log = LogWriter(self.local.agent_id, store, level=config.log.level, format=config.log.format)
        try:
            await self._open(state_dir)
        except BaseException:
            for listener in self._listeners:
                await listener.stop(0.0)
            for door in self._own_doors:
                await door.stop()
            await self._close_quickly()
            raise
        return self.addresses

    async def _open(self, state_dir: Path) -> None:
        config, local = self.config, self.local
        limits = Limits(head_bytes=config.limits.head, url_bytes=config.limits.url,
                        head_timeout_s=config.limits.head_timeout, max_connections=config.limits.connections)
        mesh_limits = limits._replace(head_bytes=limits.head_bytes + MESH_HEAD_BYTES,
                                      idle_timeout_s=MESH_IDLE_S + 10.0)  # so that callers let go first
        self.view = PeerView(self.table, mesh_limits)
        self.metrics = Metrics()
        self.membership = Membership(config.control, local, self.table, self._advertised, self._table_changed,
                                     self.log, state_dir, api_token=self._env.get("REACH_API_TOKEN"))
        self.membership.on_aliases = self.view.take_aliases
        loop = asyncio.get_running_loop()
        self.membership.ask = lambda: self.view.lately_called(loop.time())
        self.membership.failures = lambda: self.view.failing(loop.time())
        self.membership.on_loads = lambda loads: self.view.hear_loads(loads, loop.time())
        self.local_api = LocalApi(local, self.view, self.membership, lambda request: self._call_locally(request),
                                  proxy=self._proxy_name, about=self._about)
        self.documents = self.local_api.documents
        self.health = HealthChecks(local, self.log, on_change=self._fitness_changed)
        self.stores = Stores(state_dir / "delivery.db", config.dedup)
        await self._open_stores(state_dir / "delivery.db")
        self._build_called_side(limits, mesh_limits)
        self._build_calling_side(limits)
        self.metrics.gauges += gauges(
            table=self.table, view=self.view, membership=self.membership, local=local, stores=self.stores,
            listeners={"mesh": self._mesh, "outbound": self._outbound}, has_control=bool(config.control))
        await self._bind()
        self.admin = AdminApp(self._sources(), allowed_hosts=config.allowed_hosts,
                              allowed_origins=config.allowed_origins, api_token=self._env.get("REACH_API_TOKEN"))
        self._own_doors.append(self.admin)
        with configured_as("listen.admin"):
            self.addresses["admin"] = await self.admin.start(*split_address(config.listen.admin))
        if config.listen.probe is not None:
            self._own_doors.append(AdminApp(self._sources(), probe=True))
            with configured_as("listen.probe"):
                self.addresses["probe"] = await self._own_doors[-1].start(*split_address(config.listen.probe))
        local.changed.append(self._local_changed)
        await self.membership.start(self._datagrams)
        await self.health.start()
        self._tidy()
        self.log.event("info", "start", detail=f"version {__version__}, outbound {self.addresses['outbound']}, "
                       f"mesh {self.addresses['mesh']}, admin {self.addresses['admin']}")
        if idle := without_effect(config):
            self.log.event("warn", "config", detail=f"Without effect in this version: {', '.join(idle)}.")
        if config.insecure:
            self.log.event("warn", "insecure", detail="Listening beyond loopback is allowed without TLS: whoever "
                           "reaches the port can call the agent. Remove `insecure: true` outside trials.")

    async def _open_stores(self, path: Path) -> None:
        """A capability that is `durable` must not be served without its store; a caller can do without for now."""
        if any(capability.dedup == "durable" for capability in self.local.declared):
            await self.stores.open()
        elif await asyncio.to_thread(path.exists):
            try:
                await self.stores.open()
            except JournalError as error:
                self.log.event("error", "journal", detail=str(error))

    def _build_called_side(self, limits: Limits, mesh_limits: Limits) -> None:
        local, config = self.local, self.config
        mark = mesh_marks(local)
        self.chains = Chains()
        self.running = RunningCalls(self.chains)
        self.deliver = Deliver(local=local, health=self.health, limits=limits)
        stack = mesh_stack(local=local, deliver=self.deliver, room=Room(local), running=self.running,
                           stores=self.stores, mark=mark, default_timeout_s=config.default_timeout, log=self.log,
                           metrics=self.metrics, random=random.Random(os.urandom(16)))
        self.questions = MeshQuestions(hello=self.membership.hello, compare=self.membership.spread.answer,
                                       probe=self.health.check_now)
        mesh = Mesh(call=stack, running=self.running, proxy=self._proxy_name, mark=mark, load=lambda: own_load(local),
                    chains=self.chains, questions=self.questions)
        service = self._service("mesh", mesh, mesh_limits, ABANDON_AFTER_S)
        service.mark = mark
        self._mesh = Listener(service)
        self._listeners.append(self._mesh)

    def _build_calling_side(self, limits: Limits) -> None:
        local, config = self.local, self.config
        self.canceller = Canceller()
        weights = Weights(**msgspec.structs.asdict(config.weights))
        stack = outbound_stack(local=local, view=self.view, first_table=self.membership, canceller=self.canceller,
                               running=self.running, stores=self.stores, instance=self.membership.instance,
                               weights=weights,
                               default_timeout_s=config.default_timeout, log=self.log, metrics=self.metrics,
                               chains=self.chains, random=random.Random(os.urandom(16)))
        beyond = not is_loopback(split_address(config.listen.outbound)[0])
        allowed = config.egress != "mesh-only" and not beyond
        self.egress = Egress(allowed=allowed, routes=Routes(self._own_ports, self._next_proxy()), limits=limits,
                             timeout_s=config.default_timeout, log=self.log)
        self.door = Door(config.allowed_hosts, config.allowed_origins, any_address=beyond)
        outbound = Outbound(call=stack, egress=self.egress, door=self.door, proxy=self._proxy_name, is_own=self._is_own,
                            local_api=self.local_api, api_token=self._env.get("REACH_API_TOKEN"))
        self._call_locally = outbound.call
        self._outbound = Listener(self._service("outbound", outbound, limits))
        self._listeners.append(self._outbound)

    async def _bind(self) -> None:
        """Outbound on both loopbacks where it is one of them; a machine without `::1` only gets a warning."""
        with configured_as("listen.mesh"):
            stream, datagrams = listen_pair(*split_address(self.config.listen.mesh), backlog=BACKLOG)
        self._datagrams = DatagramSocket(datagrams, self.membership.spread.received, MAX_DATAGRAM)
        self.addresses["mesh"] = join_address(*await self._mesh.serve(stream))
        host, port = split_address(self.config.listen.outbound)
        with configured_as("listen.outbound"):
            bound = await self._outbound.bind(host, port)
        self.addresses["outbound"] = join_address(*bound)
        if host in ("127.0.0.1", "localhost"):
            try:
                await self._outbound.bind(LOOPBACK_V6, bound[1])
            except PortError as error:
                self.log.event("warn", "no_ipv6_loopback", detail=str(error))

    async def drain(self, hurry: asyncio.Event) -> None:
        """Ask the others to call this agent no more, and serve what they send until they know: for `drain.wait`, or
        until `hurry`. Nobody is waited for where nobody can be told or there is nobody else."""
        self.local.set_draining(True)
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self.config.drain.wait
        if self._others_are_told() and self.config.drain.wait:
            self.log.event("info", "drain", detail=f"Calls are taken for {self.config.drain.wait:g} s more.")
        while self._others_are_told() and loop.time() < give_up and not hurry.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(give_up, loop.time() + DRAIN_CHECK_S)):
                    await hurry.wait()

    def _others_are_told(self) -> bool:
        local = self.local
        return self.membership.connected and local.registered and any(
            peer.agent_id != local.agent_id and peer.entry.rank < Rank.DOWN for peer in self.view.peers())

    async def stop(self, *, leave: bool = True) -> None:
        """Take no more calls, let running ones end, tell control, flush the log."""
        self.local.set_draining(True)
        self.local.closing = True
        self.local_api.close()
        grace_s = self.config.drain.grace
        self._mesh.refuse_new()
        await self.membership.stop(leave=leave)
        await asyncio.gather(self._mesh.stop(grace_s), self._outbound.stop(grace_s))
        await self.canceller.stop()
        for door in self._own_doors:
            await door.stop()
        await self.health.stop()
        self.view.close()
        self.deliver.close()
        await self.stores.close()
        self.egress.close()
        self.log.event("info", "stop")
        await self._close_quickly()

    async def _close_quickly(self) -> None:
        if self._tidier is not None:
            self._tidier.cancel()
        if self._datagrams is not None:
            self._datagrams.close()
        await asyncio.to_thread(self.log.close)
        if self._state is not None:
            self._state.release()

    async def wait_for_stop(self) -> None:
        """Until somebody asks for it through the admin door (`POST /v1/drain`)."""
        await self._stop_asked.wait()

    # -- what the parts ask for

    def _proxy_name(self) -> str:
        return self.local.agent_id

    def _own_ports(self) -> set[int]:
        return {int(address.rpartition(":")[2]) for address in self.addresses.values()}

    def _is_own(self, authority: str) -> bool:
        host, _, port = authority.rpartition(":")
        return is_loopback(host.strip("[]")) and port == self.addresses["outbound"].rpartition(":")[2]

    def _advertised(self) -> str:
        if self.config.advertise is not None:
            return self.config.advertise
        host, port = split_address(self.addresses["mesh"])
        if is_wildcard(host):
            host = _address_towards(self.config.control)
        return join_address(host, port)

    def _next_proxy(self) -> Upstream | None:
        try:
            return upstream_of(self._env)
        except ValueError as error:
            self.log.event("warn", "http_proxy", detail=f"{error} Calls to hosts outside go there directly.")
            return None

    def _service(self, listener: str, handler: Handler, limits: Limits, abandon_after_s: float = 0.0) -> Service:
        def refused(peer: str, code: str, detail: str) -> None:
            self.log.event("info", "refused", caller=peer, outcome=code, detail=f"{listener}: {detail}")

        def crashed(error: BaseException) -> None:
            self.log.event("error", "defect", detail=f"{listener}: {error!r}")

        return Service(handler, limits, proxy=self.local.agent_id, abandon_after_s=abandon_after_s,
                       on_refused=refused, on_crash=crashed)

    def _table_changed(self, changes: list[Change]) -> None:
        self.view.changed_at = asyncio.get_running_loop().time()
        self.view.apply(changes)
        self.local_api.table_changed(changes)
        for before, after in changes:
            if before is None or before.rank is not after.rank or before.flags != after.flags:
                self.log.event("info", "status", target=after.agent_id, status=after.rank.label,
                               detail=", ".join(after.flags) or None)

    def _fitness_changed(self, unfit: bool, result: str) -> None:
        if unfit:
            self.log.event("warn", "unfit", detail=f"The agent at {self.local.address} fails its health check "
                           f"({result}); peers are told not to call it.")
        else:
            self.log.event("info", "fit", detail=f"The agent at {self.local.address} answers its health check.")

    def _local_changed(self) -> None:
        self.log.agent = self.local.agent_id
        for listener in self._listeners:
            listener.service.proxy = self.local.agent_id

    def _readiness(self) -> Readiness:
        membership, local = self.membership, self.local
        readiness = judge(Facts(
            connected=membership.connected or not self.config.control,
            table_age_s=membership.table_age_s(time.monotonic()) if self.config.control else 0.0,
            from_cache=membership.from_cache, has_agent=not local.is_gateway,
            registered=membership.registered.is_set(), unfit=local.unfit, draining=local.draining,
            controls=tuple(self.config.control)))
        if membership.problem is not None:
            readiness.lines.append(membership.problem)
        return readiness

    def _sources(self) -> Sources:
        return Sources(log=self.log, metrics=self.metrics, ready=self._readiness, peers=self.documents.listing,
                       about=self._about, config=self._shown_config, drain=self._ask_stop, version=__version__)

    def _ask_stop(self) -> None:
        self.local.set_draining(True)
        self._stop_asked.set()

    def _shown_config(self) -> dict[str, object]:
        from reach_core.settings.show import show

        return show(self.config)

    def _about(self) -> dict[str, object]:
        return {**self.documents.about(), **self.addresses, "pid": os.getpid()}

    def _tidy(self) -> None:
        """Once a second: close connections that grew too old to be used again."""
        loop = asyncio.get_running_loop()
        self._tidier = loop.call_later(TIDY_EVERY_S, self._tidy)
        now = loop.time()
        for peer in self.view.peers():
            peer.pool.prune(now, MESH_IDLE_S)
        self.deliver.prune(now)
        self.egress.prune(now)
        self.table.expire(time.time_ns() // 1_000_000)
        if now >= self._expire_at:
            self._expire_at = now + EXPIRE_EVERY_S
            self._expiry = asyncio.create_task(self.stores.expire(), name="expiry of answered calls")


def _refuse_open_listeners(config: SidecarConfig) -> None:
    if config.insecure:
        return
    for name in ("outbound", "mesh", "admin"):
        address = getattr(config.listen, name)
        if not is_loopback(split_address(address)[0]):
            raise InsecureListener(
                f"listen.{name} is {address}, beyond loopback, and there is no TLS: whoever reaches the port could "
                "call the agent. Listen on 127.0.0.1, or set `insecure: true` on a closed network.")


def _address_towards(controls: list[str]) -> str:
    """This machine's address as the control plane sees it: that of a socket routed there; nothing is sent."""
    for url in controls:
        parts = urlsplit(url)
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((parts.hostname or "127.0.0.1", parts.port or 80))
            return str(probe.getsockname()[0])
    return "127.0.0.1"
