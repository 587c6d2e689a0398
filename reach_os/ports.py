"""Listening sockets, and who holds the port when it is taken: Linux tells through /proc what `ss -lntup` shows."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reach_core.address import join_address

_LISTEN = "0A"
_PAIR_TRIES = 50
_PROC = Path("/proc")


class PortError(Exception):
    """A port cannot be listened on; the text names the port, its holder where it can, and what to do."""


@contextmanager
def configured_as(setting: str) -> Iterator[None]:
    """A PortError from within names the setting that says where to listen, such as `listen.outbound`."""
    try:
        yield
    except PortError as error:
        raise PortError(f"{error} The setting is `{setting}`.") from error


def listen(host: str, port: int, backlog: int = 1024) -> socket.socket:
    """A non-blocking listening TCP socket. Raises PortError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(address)
            made.listen(backlog)
            made.setblocking(False)
        except BaseException:
            made.close()
            raise
    except OSError as error:
        raise PortError(describe_bind_error(error, host, port)) from error
    return made


def listen_pair(host: str, port: int, backlog: int = 1024) -> tuple[socket.socket, socket.socket]:
    """A listening TCP socket and a UDP socket of the same address; port 0 takes one that is free for both. Raises
    PortError."""
    for attempt in range(_PAIR_TRIES):
        stream = listen(host, port, backlog)
        taken = stream.getsockname()
        datagrams = socket.socket(stream.family, socket.SOCK_DGRAM)
        try:
            if stream.family == socket.AF_INET6:
                datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            datagrams.bind(taken)
            datagrams.setblocking(False)
        except OSError as error:
            stream.close()
            datagrams.close()
            if port or error.errno != errno.EADDRINUSE or attempt == _PAIR_TRIES - 1:
                raise PortError(describe_bind_error(error, host, taken[1], "UDP")) from error
        else:
            return stream, datagrams
    raise AssertionError("the last try returns or raises")


def address_of(listening: socket.socket) -> str:
    """`host:port` as it really is, IPv6 in brackets."""
    return join_address(*listening.getsockname()[:2])


def describe_bind_error(error: OSError, host: str, port: int, protocol: str = "") -> str:
    """A sentence that says which address cannot be listened on, why, and what to do about it; `protocol` if it is not
    TCP."""
    where = join_address(host, port)
    if error.errno == errno.EADDRINUSE:
        holder = who_listens(port, udp=protocol == "UDP")
        by = f"by {holder}" if holder else "by another process"
        name = f"{protocol} port {port}" if protocol else f"port {port}"
        return f"Cannot listen on {where}: {name} is in use {by}. Stop it, or configure another port."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Cannot listen on {where}: this user may not use port {port}. Configure a port above 1023."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"Cannot listen on {where}: this machine has no address {host}. Configure one that it has."
    if isinstance(error, socket.gaierror):
        return f"Cannot listen on {where}: {host!r} is not an address of this machine ({error.strerror})."
    return f"Cannot listen on {where}: {error.strerror or error}."


def who_listens(port: int, udp: bool = False) -> str | None:
    """`pid 1234 (python3 agent.py)`, who listens on that TCP (or UDP) port; None where this user cannot see it."""
    inodes = _udp_inodes(port) if udp else _listening_inodes(port)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in _PROC.iterdir():
        if process.name.isdigit() and _holds(process / "fd", wanted):
            return f"pid {process.name} ({describe_process(int(process.name))})"
    return None


def describe_process(pid: int) -> str:
    """The command line of a process, shortened; `gone` if it is."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "gone"
    text = " ".join(word.decode("utf-8", "replace") for word in words if word)
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _listening_inodes(port: int) -> set[str]:
    rows = [*_rows("net/tcp"), *_rows("net/tcp6")]
    return {row[9] for row in rows if row[3] == _LISTEN and _port_of(row) == port}


def _udp_inodes(port: int) -> set[str]:
    return {row[9] for row in (*_rows("net/udp"), *_rows("net/udp6")) if _port_of(row) == port}


def _port_of(row: list[str]) -> int:
    return int(row[1].rpartition(":")[2], 16)


def _rows(table: str) -> list[list[str]]:
    try:
        return [line.split() for line in (_PROC / table).read_text().splitlines()[1:]]
    except OSError:
        return []


def _holds(descriptors: Path, wanted: set[str]) -> bool:
    try:
        names = os.listdir(descriptors)
    except OSError:  # another user's process, or it ended meanwhile
        return False
    for name in names:
        try:
            if os.readlink(descriptors / name) in wanted:
                return True
        except OSError:
            continue
    return False
