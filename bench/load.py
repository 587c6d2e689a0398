"""The open-loop load: calls leave at a fixed rate, whether or not earlier ones have been answered.

A closed loop waits for a slow answer before it asks again and so never sees the queue that a stall builds up
(coordinated omission). Here every call has its time in a plan made beforehand; latency counts from that time,
also when no connection was free or this process itself was late. Lateness of its own hits direct calls as
well, and *added* latency is the difference.

A plain loop on epoll and a timerfd: time-outs of epoll itself and uvloop's timers count in milliseconds,
which is more than the figures measured. Run as
`python -m bench.load HOST:PORT PATH RATE SECONDS CONNECTIONS [cold]`; prints one JSON object.
"""

import contextlib
import ctypes
import gc
import json
import random
import re
import select
import socket
import statistics
import sys
import time
from collections import Counter, deque
from typing import Any

from bench.timer import Timer
from bench.wrk import REQUEST_BODY

_PR_SET_TIMERSLACK = 29
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_AGENT = re.compile(rb"\r\nreach-agent:[ \t]*([^\r]+)", re.IGNORECASE)
ANSWERS_WITHIN_S = 10.0
START_S = 0.05


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

    def receive(self) -> int | None:
        """The status of the answer, once it is complete."""
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
        return int(self.answer[9:12])


class Sender:
    """Carries a plan out over `connections` kept-alive connections, and notes each call's latency."""

    def __init__(self, address: str, path: str, connections: int) -> None:
        host, _, port = address.rpartition(":")
        body = REQUEST_BODY.encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self.free = deque(Connection(host, int(port), request) for _ in range(connections))
        self.busy: dict[int, Connection] = {}
        self.latencies_s: list[float] = []
        self.answers: Counter[str] = Counter()  # by status, and what became of calls without one
        self.agents: Counter[str] = Counter()  # by who answered, where the answer says it
        self.timer = Timer()
        self.epoll = select.epoll()
        self.epoll.register(self.timer.descriptor, select.EPOLLIN | select.EPOLLET)
        for one in self.free:
            self.epoll.register(one.socket.fileno(), select.EPOLLIN)

    def prime(self) -> None:
        """Use every connection once, so that no connect or first call counts."""
        self.run([0.0] * len(self.free))
        self.latencies_s.clear()
        self.agents.clear()
        self.answers.pop("200", None)  # failures stay

    def run(self, times: list[float]) -> None:
        sent, start_s = 0, time.perf_counter() + START_S
        deadline_s = start_s + times[-1] + ANSWERS_WITHIN_S
        while (sent < len(times) or self.busy) and (self.free or self.busy):
            now_s = time.perf_counter()
            if now_s > deadline_s:
                break
            while self.free and sent < len(times) and start_s + times[sent] <= now_s:
                self._send(self.free.popleft(), start_s + times[sent])
                sent += 1
            if self.free and sent < len(times):
                self.timer.set(start_s + times[sent] - time.perf_counter())
            for descriptor, _ in self.epoll.poll(0.5):
                if descriptor in self.busy:
                    self._take(descriptor)
        if self.busy:
            self.answers["unanswered"] += len(self.busy)
        if sent < len(times):
            self.answers["unsent"] += len(times) - sent

    def _send(self, one: Connection, intended_s: float) -> None:
        try:
            one.send(intended_s)
        except OSError:
            self.answers["broken"] += 1
            one.socket.close()
        else:
            self.busy[one.socket.fileno()] = one

    def _take(self, descriptor: int) -> None:
        one = self.busy[descriptor]
        try:
            status = one.receive()
        except OSError:
            self.answers["broken"] += 1
            del self.busy[descriptor]
            one.socket.close()
            return
        if status is not None:
            self.latencies_s.append(time.perf_counter() - one.intended_s)
            self.answers[str(status)] += 1
            agent = _AGENT.search(one.answer)
            if agent is not None:
                self.agents[agent[1].decode()] += 1
            del self.busy[descriptor]
            self.free.append(one)

    def close(self) -> None:
        for one in (*self.free, *self.busy.values()):
            one.socket.close()
        self.epoll.close()
        self.timer.close()

    def result(self, seconds: float) -> dict[str, Any]:
        """calls, seconds, lost, answers; mean_ms, p50_ms, p95_ms, p99_ms, max_ms of the answered calls."""
        ordered = sorted(self.latencies_s) or [0.0]
        return {
            "calls": len(self.latencies_s),
            "seconds": seconds,
            "lost": self.answers.total() - self.answers["200"],
            "answers": dict(self.answers),
            "mean_ms": statistics.fmean(ordered) * 1000,
            **{f"p{percent}_ms": percentile(ordered, percent) * 1000 for percent in (50, 95, 99)},
            "max_ms": ordered[-1] * 1000,
        }


def main(address: str, path: str, rate: float, seconds: float, connections: int, cold: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000)  # ns; 50 µs otherwise
    sender = Sender(address, path, connections)
    if not cold:
        sender.prime()
    gc.disable()
    sender.run(plan(rate, seconds))
    print(json.dumps(sender.result(seconds)))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        where, at, per_s, length_s, number, *rest = sys.argv[1:]
        main(where, at, float(per_s), float(length_s), int(number), rest == ["cold"])
