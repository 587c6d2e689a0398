"""stderr that stalls, breaks or is closed never holds anybody up."""

import os
import re
import threading
import time

import orjson
import pytest
from harness.mesh import until

from reach_sidecar.telemetry import stderr
from reach_sidecar.telemetry.line import Line
from reach_sidecar.telemetry.stderr import StderrSink


def lines(count: int, text: str = "x") -> list[Line]:
    return [(0, 20, None, orjson.dumps({"n": number, "text": text})) for number in range(count)]


def read_all(fd: int, into: list[bytes]) -> threading.Thread:
    def run() -> None:
        while data := os.read(fd, 65536):
            into.append(data)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_lines_arrive_in_order() -> None:
    reading, writing = os.pipe()
    got: list[bytes] = []
    thread = read_all(reading, got)
    sink = StderrSink(writing)
    for _ in range(3):
        sink.write(lines(100))
    sink.close(5)
    os.close(writing)
    thread.join(5)
    assert [orjson.loads(line)["n"] for line in b"".join(got).splitlines()] == [*range(100)] * 3
    os.close(reading)


def test_a_reader_that_stops_costs_lines_not_memory_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stderr, "MAX_BACKLOG_BYTES", 200_000)
    reading, writing = os.pipe()
    sink = StderrSink(writing)
    started = time.monotonic()
    for _ in range(100):
        sink.write(lines(10, "x" * 1000))
    assert time.monotonic() - started < 2, "write() must not wait for the reader"
    assert 500 < sink.lost < 1000
    assert sink._backlog_bytes <= 200_000
    got: list[bytes] = []
    thread = read_all(reading, got)
    until("the backlog is written", lambda: sink._backlog_bytes == 0)
    sink.close(5)
    os.close(writing)
    thread.join(5)
    seen = [orjson.loads(line) for line in b"".join(got).splitlines()]
    notices = [line for line in seen if line.get("event") == "logs_lost"]
    assert len(seen) - len(notices) + sink.lost == 1000
    told = [int(re.findall(r"(\d+) lines are missing here", notice["detail"])[0]) for notice in notices]
    assert sum(told) == sink.lost
    os.close(reading)


def test_a_reader_that_is_gone_costs_lines_only() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    sink = StderrSink(writing)
    sink.write(lines(7))
    until("they are counted", lambda: sink.lost == 7)
    sink.write(lines(3))
    sink.close(5)
    assert sink.lost == 10
    os.close(writing)


def test_a_description_made_non_blocking_by_others_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    sink = StderrSink(writing)
    sink.write(lines(1000, "x" * 200))  # more than a pipe holds
    time.sleep(0.05)
    got: list[bytes] = []
    thread = read_all(reading, got)
    sink.close(5)
    os.close(writing)
    thread.join(5)
    assert len(b"".join(got).splitlines()) == 1000
    assert sink.lost == 0
    os.close(reading)


def test_closing_leaves_a_stalled_reader_behind() -> None:
    reading, writing = os.pipe()
    sink = StderrSink(writing)
    sink.write(lines(1000, "x" * 200))
    started = time.monotonic()
    sink.close(0.2)
    assert time.monotonic() - started < 2
    os.close(reading)  # the thread gets EPIPE and ends
    assert sink._thread is not None
    sink._thread.join(5)
    assert not sink._thread.is_alive()
    os.close(writing)


def test_text_form() -> None:
    reading, writing = os.pipe()
    sink = StderrSink(writing, text=True)
    sink.write([(0, 20, None, b'{"ts":"2026-01-31T12:00:00.123Z","level":"info","event":"ready"}')])
    sink.close(5)
    assert os.read(reading, 1000) == b"12:00:00.123 info  ready\n"
    os.close(reading)
    os.close(writing)
