"""Where a call to a host outside goes: its own addresses, or those of the next proxy.

Never to this sidecar's own listeners and never to link-local addresses, where clouds serve credentials: the
addresses a name resolves to are checked, and the connection goes to the very address that was checked. An
`http_proxy` that was inherited from the environment is used in turn.
"""

import asyncio
import base64
import ipaddress
import socket
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from reach_core.problem import Problem

Address = tuple[str, int]


class Upstream(NamedTuple):
    """A proxy to go through, from `http_proxy`; `exempt` are the host suffixes of `no_proxy`.

    `authorization` is the value of `Proxy-Authorization`, empty where the URL names no user.
    """

    host: str
    port: int
    exempt: tuple[str, ...] = ()
    authorization: bytes = b""


class Routes:
    """`own_ports` are those this sidecar listens on; `upstream` is the next proxy, if there is one."""

    def __init__(self, own_ports: Callable[[], Collection[int]], upstream: Upstream | None) -> None:
        self._own_ports = own_ports
        self.upstream = upstream
        self._loop = asyncio.get_running_loop()

    async def find(self, host: str, port: int) -> tuple[list[Address], bool]:
        """Where to connect, and whether that is the next proxy. Raises Problem where it may not be connected to."""
        through = self.upstream
        if through is not None and not _exempt(host, through.exempt):
            addresses = await self._resolve(through.host, through.port)
            if not any(self._is_own(address) for address in addresses):  # one that leads back here goes round for ever
                if _is_literal(host):
                    await self._checked(host, port)  # names are the next proxy's to resolve
                return addresses, True
        return await self._checked(host, port), False

    async def _checked(self, host: str, port: int) -> list[Address]:
        allowed = [address for address in await self._resolve(host, port)
                   if not _is_special(address[0]) and not self._is_own(address)]
        if not allowed:
            raise Problem("not_allowed", f"{host}:{port} is one of this sidecar's own listeners or a link-local "
                          "address: calls there are not forwarded.")
        return allowed

    async def _resolve(self, host: str, port: int) -> list[Address]:
        try:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise Problem("bad_gateway", f"The host {host!r} cannot be resolved: {reason}.") from None
        return [(str(address[0]), port) for _, _, _, _, address in found]

    def _is_own(self, address: Address) -> bool:
        return address[1] in self._own_ports() and _is_local(address[0])


def split_authority(authority: str, default_port: int) -> tuple[str, int]:
    """`host:port` taken apart, brackets of IPv6 removed. Raises Problem."""
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, ""
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise Problem("bad_request", f"{port!r} is not a port.")
    return host.strip("[]"), int(port) if port else default_port


def _exempt(host: str, suffixes: tuple[str, ...]) -> bool:
    host = host.lower().rstrip(".")
    return any(suffix == "*" or host == suffix.lstrip(".") or host.endswith("." + suffix.lstrip("."))
               for suffix in suffixes)


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return mapped or ip


def _is_special(address: str) -> bool:
    ip = _plain(address)
    return ip.is_link_local or ip.is_multicast


def _is_local(address: str) -> bool:
    """Is it this machine's? Only those can be bound to."""
    ip = _plain(address)
    with socket.socket(socket.AF_INET if ip.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(ip), 0))
        except OSError:
            return False
    return True


def _is_literal(host: str) -> bool:
    """An address in any spelling that connecting accepts (such as 2130706433), or a name that means this machine."""
    if host.lower().rstrip(".").endswith("localhost"):
        return True
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return True


def upstream_of(environment: Mapping[str, str]) -> Upstream | None:
    """The proxy that `http_proxy` names, if any. Raises ValueError with a sentence where it cannot be one."""
    text = environment.get("http_proxy") or ""
    if not text:
        return None
    scheme, mark, authority = text.rpartition("://")
    user, _, place = authority.partition("/")[0].rpartition("@")
    try:
        host, port = split_authority(place, 80)
    except Problem as problem:
        raise ValueError(f"http_proxy cannot be used: {problem.detail}") from None
    if not host or (mark and scheme.lower() != "http"):
        raise ValueError("http_proxy cannot be used: it must be an http:// URL with a host.")
    exempt = tuple(part.strip().strip("[]").lower() for part in environment.get("no_proxy", "").split(",")
                   if part.strip())
    authorization = b"Basic " + base64.b64encode(unquote_to_bytes(user)) if user else b""
    return Upstream(host, port, exempt, authorization)
