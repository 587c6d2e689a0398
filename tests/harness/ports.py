"""Ports that a process gets back after it was killed: below those the kernel gives to outgoing connections."""

import random
import socket

LOWEST, HIGHEST = 20_000, 32_000  # Linux hands out 32768 and up (net.ipv4.ip_local_port_range)
_given: set[int] = set()


def lasting_port() -> int:
    """A free port of 127.0.0.1; no other call in this process gets it."""
    for _ in range(1000):
        port = random.SystemRandom().randrange(LOWEST, HIGHEST)
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise AssertionError(f"no free port between {LOWEST} and {HIGHEST}")


def lasting_doors(*doors: str) -> dict[str, str]:
    """A `listen` section with a lasting port for each door."""
    return {door: f"127.0.0.1:{lasting_port()}" for door in doors}
