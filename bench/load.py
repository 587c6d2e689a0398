"""The open-loop load: calls leave at a fixed rate, whether or not earlier ones have been answered.

A closed loop waits for a slow answer before it asks again and so never sees the queue that a stall builds up
(coordinated omission). Here every call has its time in a plan made beforehand; latency counts from that time,
also when no connection was free or this process itself was late. Lateness of its own hits direct calls as
well, and *added* latency is the difference.

A plain loop on select(2), since its timeout counts in microseconds: epoll and uvloop timers count in
milliseconds, which is more than the figures measured. Run as
`python -m bench.load HOST:PORT PATH RATE SECONDS CONNECTIONS`; prints one JSON object.
"""

import contextlib
import ctypes
import gc
import json
import random
import re
import select
import socket
import sys
import time
from collections import deque

from bench.wrk import REQUEST_BODY

_PR_SET_TIMERSLACK = 29
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
ANSWERS_WITHIN_S = 5.0


def plan(rate: float, seconds: float, seed: int = 1) -> list[float]:
    """When to send, in seconds from the start: `rate` a second, each interval ± 50 % at random.

    Evenly spaced calls would fall in step with timers of the system measured, and then hit or miss its
    periodic work every time.
    """
    rng, at_s, times = random.Random(seed), 0.0, []
    while at_s < seconds:
        times.append(at_s)
        at_s += rng.uniform(0.5, 1.5) / rate
    return times


def percentile(ordered: list[float], percent: float) -> float:
    """Nearest-rank percentile of an ascending list."""
    if not ordered:
        raise ValueError("no values")
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


class Connection:
    """One keep-alive connection with at most one call on its way."""

    def __init__(self, host: str, port: int, request: bytes) -> None:
        self.socket = socket.create_connection((host, port), timeout=5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.request = request
        self.intended_s = 0.0
        self.answer = b""

    def send(self, intended_s: float) -> None:
        self.intended_s, self.answer = intended_s, b""
        if self.socket.send(self.request) != len(self.request):
            raise ConnectionError("a 1 KiB request did not fit into the socket's buffer")

    def receive(self) -> bool | None:
        """None: more to come; else whether the answer was a 200."""
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the connection was closed before the answer")
        self.answer += data
        head = self.answer.find(b"\r\n\r\n")
        if head < 0:
            return None
        length = _LENGTH.search(self.answer, 0, head)
        if length is None:
            raise ConnectionError("an answer without Content-Length")
        if len(self.answer) < head + 4 + int(length[1]):
            return None
        return self.answer.startswith(b"HTTP/1.1 200")


def run(address: str, path: str, times: list[float], connections: int) -> dict[str, float]:
    """Send by the plan. Returns calls, seconds, failed, broken, and p50_ms, p99_ms, max_ms."""
    host, _, port = address.rpartition(":")
    body = REQUEST_BODY.encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    request = head.encode() + b"\r\n\r\n" + body
    free = deque(Connection(host, int(port), request) for _ in range(connections))
    for one in free:  # every connection has been used once before it counts
        one.send(0.0)
        select.select([one.socket], [], [], 5)
        while one.receive() is None:
            select.select([one.socket], [], [], 5)
    busy: dict[socket.socket, Connection] = {}
    latencies_s: list[float] = []
    failed = broken = sent = 0
    gc.disable()
    start_s = time.perf_counter() + 0.05
    deadline_s = start_s + times[-1] + ANSWERS_WITHIN_S
    while sent < len(times) or busy:
        now_s = time.perf_counter()
        if now_s > deadline_s or not (free or busy):
            break
        while free and sent < len(times) and start_s + times[sent] <= now_s:
            one = free.popleft()
            one.send(start_s + times[sent])
            busy[one.socket] = one
            sent += 1
        wait_s = start_s + times[sent] - time.perf_counter() if free and sent < len(times) else 0.5
        ready, _, _ = select.select(list(busy), [], [], max(0.0, wait_s))
        for readable in ready:
            one = busy[readable]
            try:
                success = one.receive()
            except OSError:
                broken += 1
                del busy[readable]
                continue
            if success is not None:
                latencies_s.append(time.perf_counter() - one.intended_s)
                failed += not success
                del busy[readable]
                free.append(one)
    broken += len(busy) + len(times) - sent
    latencies_s.sort()
    return {
        "calls": len(latencies_s),
        "seconds": times[-1],
        "failed": failed,
        "broken": broken,
        "p50_ms": percentile(latencies_s, 50) * 1000,
        "p99_ms": percentile(latencies_s, 99) * 1000,
        "max_ms": latencies_s[-1] * 1000,
    }


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000)  # ns; 50 µs otherwise
        where, at, rate_text, seconds_text, connections_text = sys.argv[1:]
        schedule = plan(float(rate_text), float(seconds_text))
        print(json.dumps(run(where, at, schedule, int(connections_text))))
