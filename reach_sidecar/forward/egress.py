"""Calls to hosts outside the mesh: forwarded untouched, or refused. `route` says where they may go."""

import asyncio
import contextlib
from time import perf_counter

from reach_core.problem import Problem
from reach_sidecar.forward import fields
from reach_sidecar.forward.failure import request_broke
from reach_sidecar.forward.observe import CallLog
from reach_sidecar.forward.outgoing import frame, switch
from reach_sidecar.forward.replay import ReplayedBody
from reach_sidecar.forward.route import Address, Routes, split_authority
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.client import (
    AnswerTimeout,
    BadAnswer,
    ClientConnection,
    ConnectFailed,
    ExchangeBroken,
)
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.message import Field, Request, Response
from reach_sidecar.http1.pool import Pool
from reach_sidecar.http1.wire import request_head
from reach_sidecar.policy.naming import Destination

IDLE_S = 1.0
MAX_POOLS = 64
MAX_ADDRESSES = 4  # of one host that are tried
_OURS = frozenset({b"host", b"reach-api-token"})  # the token is for this sidecar alone


class Egress:
    def __init__(self, *, allowed: bool, routes: Routes, limits: Limits, timeout_s: float, log: CallLog) -> None:
        self._allowed = allowed
        self._routes = routes
        self._limits = limits
        self._timeout_s = timeout_s
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._pools: dict[tuple[str, int], Pool] = {}

    async def __call__(self, request: Request, target: Destination) -> Response:
        started = perf_counter()
        if not self._allowed:
            raise Problem("not_allowed", f"{target.name} is outside the mesh, and this sidecar forwards calls into the "
                          "mesh only (`egress: mesh-only`).")
        try:
            response = await self._forward(request, target)
        except Problem as problem:
            self._note(request, target, problem.status, started, problem.detail)
            raise
        self._note(request, target, response.status, started, None)
        return response

    async def _forward(self, request: Request, target: Destination) -> Response:
        host, port = split_authority(target.name, 80)
        addresses, proxied = await self._routes.find(host, port)
        deadline = self._loop.time() + self._timeout_s
        try:
            if request.method == b"CONNECT":
                return await self._tunnel(await self._connect(addresses, None), request, deadline, proxied)
            return await self._exchange(await self._connect(addresses, IDLE_S), request, target, deadline, proxied)
        except ConnectFailed as error:
            raise Problem("bad_gateway", f"{target.name} cannot be reached: {error}.") from None
        except ExchangeBroken:
            if request.body.error is not None:
                raise request_broke(request.body.error) from None
            raise Problem("outcome_unknown", f"{target.name} closed the connection before its answer.") from None
        except AnswerTimeout:
            raise Problem("deadline_exceeded", f"{target.name} did not answer in time.") from None
        except BadAnswer as error:
            raise Problem("bad_agent_response", f"{target.name} answered with something that is not HTTP: "
                          f"{error}") from None

    async def _exchange(self, connection: ClientConnection, request: Request, target: Destination, deadline: float,
                        proxied: bool) -> Response:
        content = ReplayedBody(request.body).for_attempt()
        headers = [header for header in fields.passing(request.headers) if header[0] not in _OURS]
        headers.insert(0, (b"host", b"Host", target.name.encode("latin-1")))
        chunked = frame(headers, content, request)
        path = target.path or b"/"
        if proxied:
            path = b"http://" + target.name.encode("latin-1") + path
            headers += self._authorization()
        head = request_head(request.method, path, headers)
        response = await connection.exchange(request.method, head, content, deadline, chunked=chunked,
                                             interim=request.interim)
        response.headers = fields.passing(response.headers)
        if response.tunnel is not None:
            switch(response.headers, request)
        return response

    async def _tunnel(self, connection: ClientConnection, request: Request, deadline: float,
                      proxied: bool) -> Response:
        if proxied:
            head = request_head(b"CONNECT", request.target, [(b"host", b"Host", request.target),
                                                             *self._authorization()])
            response = await connection.exchange(b"CONNECT", head, b"", deadline)
            if response.tunnel is None:
                if isinstance(response.body, Body):
                    response.body.abandon()
                raise Problem("bad_gateway", f"The next proxy refused the tunnel with status {response.status}.")
        else:
            connection.become_tunnel()
        answer = Response(200, [], b"", reason=b"Connection established")
        answer.length = None
        answer.tunnel = connection
        return answer

    def _authorization(self) -> list[Field]:
        upstream = self._routes.upstream
        given = upstream.authorization if upstream is not None else b""
        return [(b"proxy-authorization", b"Proxy-Authorization", given)] if given else []

    async def _connect(self, addresses: list[Address], idle_s: float | None) -> ClientConnection:
        """The first that can be connected to: of `localhost`, say, `::1` or 127.0.0.1. Without `idle_s` anew."""
        for address in addresses[:MAX_ADDRESSES - 1]:
            if address != addresses[-1]:
                with contextlib.suppress(ConnectFailed):
                    return await self._connect_one(address, idle_s)
        return await self._connect_one(addresses[-1], idle_s)

    async def _connect_one(self, address: Address, idle_s: float | None) -> ClientConnection:
        pool = self._pool(*address)
        return await (pool.connect() if idle_s is None else pool.acquire(idle_s))

    def _pool(self, host: str, port: int) -> Pool:
        pool = self._pools.pop((host, port), None)
        if pool is None:
            pool = Pool(host, port, self._limits)
            if len(self._pools) >= MAX_POOLS:
                self._pools.pop(next(iter(self._pools))).retire()
        self._pools[host, port] = pool  # the last used one is the last in the dict
        return pool

    def _note(self, request: Request, target: Destination, status: int, started: float, detail: str | None) -> None:
        record: dict[str, object] = {
            "level": "info", "event": "egress", "target": target.name, "status": status,
            "method": request.method.decode(), "ms": round((perf_counter() - started) * 1000, 3),
        }
        if detail is not None:
            record["detail"] = detail
        self._log.line(record)

    def prune(self, now: float) -> None:
        for pool in self._pools.values():
            pool.prune(now, IDLE_S)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
