"""Ports for `reach run`: which are free, and who holds one that is not."""

import os
import socket
from contextlib import suppress
from pathlib import Path

LISTENING = "0A"  # the state column of /proc/net/tcp
# Below what systems hand out to outgoing connections (Linux: from 32768), so a port stays free while we start.
FIRST_PORT, PORTS = 20_000, 10_000


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as trial:
        # As servers do: connections that ended lately do not count.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
            trial.listen(1)
        except OSError:
            return False
    return True


def free_port(preferred: int, taken: frozenset[int] = frozenset()) -> int:
    """The first free port at or after `preferred` (any number: it is taken into our range). OSError if none is."""
    for step in range(PORTS):
        port = FIRST_PORT + (preferred + step) % PORTS
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} is free")


def holder(port: int) -> str | None:
    """Who listens on the port: `python3 (process 4711)`. None where the system does not tell (other users, macOS)."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for descriptor in os.scandir(process / "fd"):
                with suppress(OSError):
                    if os.readlink(descriptor.path) in inodes:
                        return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return None
