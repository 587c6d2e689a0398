"""Ports for `reach run`: which are free."""

import socket

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
