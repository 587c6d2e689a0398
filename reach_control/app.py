"""One control node, wired together: the only place that knows all its parts.

A request of a sidecar: listener -> guard -> api/mesh -> membership/service -> registry (decides) -> log, keeper -> disk
-> feed -> the sidecars that wait.
"""

import asyncio
import os
import random
import secrets
import socket
import time
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from reach_control.api.admin import AdminApi
from reach_control.api.guard import Guard
from reach_control.api.health import Health
from reach_control.api.mesh import MAX_BODY, MeshApi
from reach_control.config import ControlConfig, complete, without_effect
from reach_control.journal.snapshot import Snapshot
from reach_control.membership.feed import Feed
from reach_control.membership.keeper import Keeper
from reach_control.membership.service import Service
from reach_control.registry.lease import Moment, Terms
from reach_control.registry.registry import Registry
from reach_control.telemetry.log import ControlLog
from reach_control.telemetry.metrics import Figures
from reach_core.address import is_loopback, split_address
from reach_core.table import PeerTable
from reach_os.ports import PortError, address_of, configured_as, listen
from reach_os.state_dir import StateDir, lock_state_dir

STOP_S = 2.0


def clock() -> Moment:
    return Moment(time.monotonic(), time.time_ns() // 1_000_000)


class Control:
    """`start()` and `stop()` once each.

    What `start` raises (PortError, StateDirError, SnapshotError) says what to do; by then everything is given
    back.
    """

    def __init__(self, config: ControlConfig, api_token: str | None = None) -> None:
        self.config = config
        self.log = ControlLog(config.log.level, config.log.format)
        self._token = api_token if api_token is not None else os.environ.get("REACH_API_TOKEN")
        self._sockets: dict[str, socket.socket] = {}
        self._state_dir: StateDir | None = None
        self._snapshot: Snapshot | None = None
        self._runners: list[web.AppRunner] = []
        self._watching: asyncio.Task[None] | None = None
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
        if idle := without_effect(self.config):
            self.log.event("warn", "config", detail=f"Without effect in this version: {', '.join(idle)}.")
        return {name: address_of(taken) for name, taken in self._sockets.items()}

    async def stop(self) -> None:
        """Answer those who wait, note what is known, give everything back."""
        self._is_ready = False
        if self._watching is not None and self._keeping is not None:
            self._watching.cancel()
            self._keeper.stop()
            await asyncio.gather(self._watching, self._keeping, return_exceptions=True)
            self._service.feed.close()
        for runner in self._runners:
            await runner.cleanup()
        for taken in self._sockets.values():
            taken.close()
        if self._keeping is not None:
            await self._keeper.flush()  # what came while the listeners closed
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
                self._sockets[name] = listen(host, port)

    def _check_exposure(self, name: str, address: str) -> None:
        if not self.config.insecure:
            raise PortError(
                f"`listen.{name}: {address}` would be reachable from other machines without TLS. "
                "Listen on 127.0.0.1, or write `insecure: true` for a closed network."
            )
        detail = f"{name} listens on {address} without TLS: whoever reaches it can register agents (insecure: true)."
        self.log.event("warn", "insecure", detail=detail)

    async def _restore(self) -> None:
        config, now = self.config, clock()
        self._state_dir = lock_state_dir(config.state_dir or complete(config, os.environ).state_dir or "")
        self._snapshot = Snapshot(self._state_dir.path / "table.sqlite")
        noted = await self._snapshot.open(now.ms)
        lease = config.lease
        terms = Terms(lease.heartbeat, lease.ttl, lease.down, lease.forget)
        registry = Registry(config.cluster, terms, PeerTable(), now, random.Random())
        registry.restore(noted.entries, now)
        if noted.unreadable:
            detail = f"{noted.unreadable} entries on disk could not be read; their agents will register again."
            self.log.event("warn", "restored", detail=detail)
        self.log.event("info", "restored", detail=f"{len(registry.table)} agents from {self._snapshot.path}")
        feed = self.feed = Feed(registry.table, secrets.token_hex(8), config.aliases)
        self._keeper = Keeper(
            registry.table, self._snapshot, lambda agent_id: "", feed.publish, lambda: clock().ms, self.log
        )
        self._service = Service(registry, feed, clock, self._keeper.note, self.log)
        self._keeping = asyncio.create_task(self._keeper.run(), name="keeper")
        self._watching = asyncio.create_task(self._service.watch_time(), name="lease watch")

    async def _serve(self, name: str, taken: socket.socket) -> None:
        health = Health(self._why_not_ready, self._figures)
        middlewares: list[Middleware] = []
        if name == "probe":
            routes = health.routes(metrics=True)
        else:
            guard = Guard(is_loopback(taken.getsockname()[0]), self._token, self.log)
            middlewares.append(guard.middleware)
            api = MeshApi(self._service, health) if name == "api" else AdminApi(self._service, health, self._status)
            routes = api.routes()
        app = web.Application(middlewares=middlewares, client_max_size=MAX_BODY)
        app.add_routes(routes)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_S)
        await runner.setup()
        self._runners.append(runner)
        await web.SockSite(runner, taken, backlog=1024).start()

    # -- what the listeners show

    def _why_not_ready(self) -> str | None:
        if not self._is_ready:
            return "The node is starting or stopping."
        for task in (self._watching, self._keeping):
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
        )
