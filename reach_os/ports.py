"""Listening sockets, and who holds the port when it is taken: Linux tells through /proc what `ss -ltnp` shows."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reach_core.address import join_address

_LISTEN = "0A"
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


def address_of(listening: socket.socket) -> str:
    """`host:port` as it really is, IPv6 in brackets."""
    return join_address(*listening.getsockname()[:2])


def describe_bind_error(error: OSError, host: str, port: int) -> str:
    """A sentence that says which address cannot be listened on, why, and what to do about it."""
    where = join_address(host, port)
    if error.errno == errno.EADDRINUSE:
        holder = who_listens(port)
        by = f"by {holder}" if holder else "by another process"
        return f"Cannot listen on {where}: port {port} is in use {by}. Stop it, or configure another port."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Cannot listen on {where}: this user may not use port {port}. Configure a port above 1023."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"Cannot listen on {where}: this machine has no address {host}. Configure one that it has."
    if isinstance(error, socket.gaierror):
        return f"Cannot listen on {where}: {host!r} is not an address of this machine ({error.strerror})."
    return f"Cannot listen on {where}: {error.strerror or error}."


def who_listens(port: int) -> str | None:
    """`pid 1234 (python3 agent.py)`, who listens on that TCP port; None where this user cannot see it."""
    inodes = _listening_inodes(port)
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
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        try:
            lines = (_PROC / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes


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
