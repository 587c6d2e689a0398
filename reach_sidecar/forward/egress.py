"""Calls to hosts outside the mesh: forwarded untouched, or refused.

Never to this sidecar's own listeners and never to link-local addresses, where clouds serve credentials: the
addresses a name resolves to are checked, and the connection goes to the very address that was checked. An
`http_proxy` that was inherited from the environment is used in turn.
"""

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Callable, Collection
from time import perf_counter
from typing import NamedTuple

from reach_core.problem import Problem
from reach_sidecar.forward import fields
from reach_sidecar.forward.observe import CallLog
from reach_sidecar.forward.replay import ReplayedBody
from reach_sidecar.http1.client import (
    AnswerTimeout,
    BadAnswer,
    ClientConnection,
    ConnectFailed,
    ExchangeBroken,
)
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.message import Request, Response
from reach_sidecar.http1.pool import Pool
from reach_sidecar.http1.wire import request_head
from reach_sidecar.policy.naming import Destination

IDLE_S = 1.0
MAX_POOLS = 64


class Upstream(NamedTuple):
    """A proxy to go through, from `http_proxy`; `exempt` are the host suffixes of `no_proxy`."""

    host: str
    port: int
    exempt: tuple[str, ...] = ()


class Egress:
    def __init__(self, *, allowed: bool, own_ports: Callable[[], Collection[int]], upstream: Upstream | None,
                 limits: Limits, timeout_s: float, log: CallLog) -> None:
        self._allowed = allowed
        self._own_ports = own_ports
        self._upstream = upstream
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
        through = self._upstream if self._upstream is not None and not _exempt(host, self._upstream.exempt) else None
        if through is not None:
            pool = self._pool(*await self._checked(through.host, through.port, proxy=True))
        else:
            pool = self._pool(*await self._checked(host, port))
        deadline = self._loop.time() + self._timeout_s
        try:
            if request.method == b"CONNECT":
                return await self._tunnel(pool, request, deadline, through is not None)
            connection = await pool.acquire(IDLE_S)
            return await self._exchange(connection, request, target, deadline, through is not None)
        except ConnectFailed as error:
            raise Problem("bad_gateway", f"{target.name} cannot be reached: {error}.") from None
        except ExchangeBroken:
            raise Problem("outcome_unknown", f"{target.name} closed the connection before its answer.") from None
        except AnswerTimeout:
            raise Problem("deadline_exceeded", f"{target.name} did not answer in time.") from None
        except BadAnswer as error:
            raise Problem("bad_agent_response", f"{target.name} answered with something that is not HTTP: "
                          f"{error}") from None

    async def _exchange(self, connection: ClientConnection, request: Request, target: Destination, deadline: float,
                        absolute: bool) -> Response:
        content = ReplayedBody(request.body).for_attempt()
        headers = [header for header in fields.passing(request.headers) if header[0] != b"host"]
        headers.insert(0, (b"host", b"Host", target.name.encode("latin-1")))
        length = request.header(b"content-length")
        chunked = not isinstance(content, bytes) and length is None
        if chunked:
            headers.append((b"transfer-encoding", b"Transfer-Encoding", b"chunked"))
        elif isinstance(content, bytes) and (content or length is not None):
            headers.append((b"content-length", b"Content-Length", b"%d" % len(content)))
        elif length is not None:
            headers.append((b"content-length", b"Content-Length", length))
        if request.upgrade is not None:
            headers += [(b"connection", b"Connection", b"Upgrade"), (b"upgrade", b"Upgrade", request.upgrade)]
        path = target.path or b"/"
        if absolute:
            path = b"http://" + target.name.encode("latin-1") + path
        head = request_head(request.method, path, headers)
        response = await connection.exchange(request.method, head, content, deadline, chunked=chunked,
                                             interim=request.interim)
        response.headers = fields.passing(response.headers)
        if response.tunnel is not None:
            response.headers += [(b"connection", b"Connection", b"Upgrade"),
                                 (b"upgrade", b"Upgrade", request.upgrade or b"websocket")]
        return response

    async def _tunnel(self, pool: Pool, request: Request, deadline: float, through_proxy: bool) -> Response:
        connection = await pool.connect()
        if through_proxy:
            head = request_head(b"CONNECT", request.target, [(b"host", b"Host", request.target)])
            response = await connection.exchange(b"CONNECT", head, b"", deadline)
            if response.tunnel is None:
                raise Problem("bad_gateway", f"The next proxy refused the tunnel with status {response.status}.")
        else:
            connection.become_tunnel()
        answer = Response(200, [], b"", reason=b"Connection established")
        answer.length = None
        answer.tunnel = connection
        return answer

    async def _checked(self, host: str, port: int, *, proxy: bool = False) -> tuple[str, int]:
        """The address to connect to. Raises Problem where it may not be connected to."""
        try:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise Problem("bad_gateway", f"The host {host!r} cannot be resolved: {error.strerror or error}.") from None
        for _, _, _, _, address in found:
            ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
            if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
                ip = ip.ipv4_mapped
            local = ip.is_loopback or ip.is_unspecified or str(ip) in _own_addresses()
            if ip.is_link_local or ip.is_multicast or (local and not proxy and port in self._own_ports()):
                continue
            return str(address[0]), port
        raise Problem("not_allowed", f"{host}:{port} is one of this sidecar's own listeners or a link-local address: "
                      "calls there are not forwarded.")

    def _pool(self, host: str, port: int) -> Pool:
        pool = self._pools.pop((host, port), None)
        if pool is None:
            pool = Pool(host, port, self._limits)
            if len(self._pools) >= MAX_POOLS:
                self._pools.pop(next(iter(self._pools))).close_idle()
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


def split_authority(authority: str, default_port: int) -> tuple[str, int]:
    """`host:port` taken apart, brackets of IPv6 removed. Raises Problem."""
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, ""
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        raise Problem("bad_request", f"{port!r} is not a port.")
    return host.strip("[]"), int(port) if port else default_port


def _exempt(host: str, suffixes: tuple[str, ...]) -> bool:
    return any(suffix == "*" or host == suffix.lstrip(".") or host.endswith("." + suffix.lstrip("."))
               for suffix in suffixes)


@functools.cache
def _own_addresses() -> set[str]:
    """Addresses of this machine under its own name; enough to notice a detour around loopback."""
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return set()


def upstream_of(environment: dict[str, str]) -> Upstream | None:
    """The proxy that `http_proxy` names, if any."""
    text = environment.get("http_proxy") or ""
    if not text:
        return None
    authority = text.partition("://")[2] or text
    host, port = split_authority(authority.rstrip("/").rpartition("@")[2], 80)
    exempt = tuple(part.strip().lower() for part in environment.get("no_proxy", "").split(",") if part.strip())
    return Upstream(host, port, exempt)
