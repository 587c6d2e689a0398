"""Streams: when the first chunk arrives, and what 1 GiB on its way through does to memory."""

import socket
import statistics
import time
from collections.abc import Callable

from bench import accounting
from bench.daemon import BenchError
from bench.pair import Pair

GIB = 1 << 30
PIECE = memoryview(bytes(256 << 10))
ANSWERS_WITHIN_S = 120.0


def first_chunk_ms(pair: Pair, count: int = 50) -> float:
    """Median ms from sending a request to holding the first chunk of its answer, on one connection."""
    request = f"GET {pair.prefix}/stream HTTP/1.1\r\nHost: {pair.address}\r\n\r\n".encode()
    times_ms = []
    with _connect(pair) as connection:
        for _ in range(count):
            start_s = time.perf_counter()
            connection.sendall(request)
            answer = _until(connection, b"data: chunk 1", b"")
            times_ms.append((time.perf_counter() - start_s) * 1000)
            _until(connection, b"\r\n0\r\n\r\n", answer)
    return statistics.median(times_ms)


def download(pair: Pair, size: int = GIB) -> float:
    """MiB/s of `size` bytes of answer."""
    request = f"GET {pair.prefix}/bytes/{size} HTTP/1.1\r\nHost: {pair.address}\r\nConnection: close\r\n\r\n"
    buffer = bytearray(256 << 10)
    start_s = time.perf_counter()
    with _connect(pair) as connection:
        connection.sendall(request.encode())
        answer = _until(connection, b"\r\n\r\n", b"")
        _require_ok(answer, pair)
        taken = len(answer) - answer.index(b"\r\n\r\n") - 4
        while taken < size:
            more = connection.recv_into(buffer)
            if not more:
                raise BenchError(f"{pair.name}: the answer was cut off after {taken} of {size} bytes.")
            taken += more
    return size / (1 << 20) / (time.perf_counter() - start_s)


def upload(pair: Pair, size: int = GIB) -> float:
    """MiB/s of `size` bytes of request body."""
    request = f"POST {pair.prefix}/sink HTTP/1.1\r\nHost: {pair.address}\r\nContent-Length: {size}\r\n\r\n"
    start_s = time.perf_counter()
    with _connect(pair) as connection:
        connection.sendall(request.encode())
        left = size
        while left:
            piece = PIECE[: min(left, len(PIECE))]
            connection.sendall(piece)
            left -= len(piece)
        _require_ok(_until(connection, b"\r\n\r\n", b""), pair)
    return size / (1 << 20) / (time.perf_counter() - start_s)


def extra_memory_mib(pair: Pair, transfer: Callable[[Pair], float]) -> tuple[float, float]:
    """(the most that a hop grew during `transfer`, MiB; speed, MiB/s). The size before counts as idle."""
    before = {pid: accounting.rss_bytes(pid) for pid in pair.pids}
    for pid in pair.pids:
        accounting.forget_peak(pid)
    speed = transfer(pair)
    grown = [accounting.peak_rss_bytes(pid) - idle for pid, idle in before.items()]
    return max(grown, default=0) / (1 << 20), speed


def _connect(pair: Pair) -> socket.socket:
    host, _, port = pair.address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=ANSWERS_WITHIN_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _until(connection: socket.socket, mark: bytes, seen: bytes) -> bytes:
    while mark not in seen:
        more = connection.recv(65536)
        if not more:
            raise BenchError(f"the connection was closed while waiting for {mark!r}; before that came {seen[:300]!r}")
        seen += more
    return seen


def _require_ok(answer: bytes, pair: Pair) -> None:
    if not answer.startswith(b"HTTP/1.1 200"):
        raise BenchError(f"{pair.name} answered {answer[:500].decode('latin-1')}")
