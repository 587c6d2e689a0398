"""A UDP socket for messages that may get lost: sent at once or not at all, taken in at a bounded rate.

Names are resolved beside the loop and remembered for a while; what is to go to a name that is not known yet is
dropped, as if the network had lost it. More than MOST_PER_S that come in are dropped unread, and so is what is longer
than any of ours, so a flood costs a share of the CPU and not all of it.
"""

import asyncio
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

from reach_core.address import join_address, split_address

MOST_PER_S = 5_000
KNOWN_FOR_S = 30.0
MOST_KNOWN = 16_384
MOST_RESOLVING = 64

Place = tuple[str, int]


class DatagramSocket:
    """`on_datagram(data, "host:port")` is called for each that comes, of at most `most_bytes`. `counts`: `sent`,
    `received`, `not_sent`, `flooded` (too many, or too long)."""

    def __init__(self, bound: socket.socket, on_datagram: Callable[[bytes, str], None], most_bytes: int) -> None:
        self.counts: Counter[str] = Counter()
        self._socket = bound
        self._most_bytes = most_bytes
        self._is_v6 = bound.family == socket.AF_INET6
        self._on_datagram = on_datagram
        self._transport: asyncio.DatagramTransport | None = None
        self._places: dict[str, tuple[Place | None, float]] = {}  # by address, with the time until which it holds
        self._resolving: set[asyncio.Task[None]] = set()
        self._second = 0
        self._in_second = 0

    async def start(self) -> None:
        """Begin to take in what comes."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: _Protocol(self._received), sock=self._socket)

    def send(self, data: bytes, address: str) -> None:
        """To `host:port`; whatever prevents it is as good as a loss on the way."""
        place = self._place(address)
        if place is None or self._transport is None or self._transport.is_closing():
            self.counts["not_sent"] += 1
            return
        try:
            self._transport.sendto(data, place)
            self.counts["sent"] += 1
        except (OSError, ValueError):
            self.counts["not_sent"] += 1

    def close(self) -> None:
        """Give the port back."""
        for task in self._resolving:
            task.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._socket.close()

    def _received(self, data: bytes, place: tuple[Any, ...]) -> None:
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        if self._in_second > MOST_PER_S or len(data) > self._most_bytes:
            self.counts["flooded"] += 1
            return
        self.counts["received"] += 1
        self._on_datagram(data, join_address(str(place[0]), int(place[1])))

    def _place(self, address: str) -> Place | None:
        loop = asyncio.get_running_loop()
        known = self._places.get(address)
        if known is not None and loop.time() < known[1]:
            return known[0]
        try:
            host, port = split_address(address)
        except ValueError:
            return None
        if len(self._places) >= MOST_KNOWN:
            self._places.clear()
        if _is_numeric(host):
            self._places[address] = ((host, port), float("inf"))
            return host, port
        # one that is too old serves until it is known better
        old = known[0] if known is not None else None
        if len(self._resolving) < MOST_RESOLVING:
            self._places[address] = (old, loop.time() + 1.0)
            task = loop.create_task(self._resolve(address, host, port))
            self._resolving.add(task)
            task.add_done_callback(self._resolving.discard)
        return old

    async def _resolve(self, address: str, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if self._is_v6 else socket.AF_INET
        try:
            found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM)
        except OSError:
            return
        self._places[address] = ((str(found[0][4][0]), port), loop.time() + KNOWN_FOR_S)


class _Protocol(asyncio.DatagramProtocol):
    def __init__(self, received: Callable[[bytes, tuple[Any, ...]], None]) -> None:
        self._received = received

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._received(data, addr)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens at some address we sent to: as good as a loss."""


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
