"""The log writer: on the path of a call it only notes; everything else is the worker's."""

import asyncio
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from harness.mesh import until

from reach_sidecar.telemetry import log as log_module
from reach_sidecar.telemetry.line import MAX_LINE_BYTES, Line
from reach_sidecar.telemetry.log import LogWriter
from reach_sidecar.telemetry.stderr import StderrSink
from reach_sidecar.telemetry.store import LogStore


class Kept(StderrSink):
    """Keeps what would go to stderr."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[bytes] = []

    def write(self, batch: list[Line]) -> None:
        self.lines += [line[3] for line in batch]

    def records(self) -> list[dict[str, object]]:
        return [orjson.loads(line) for line in self.lines]


@pytest.fixture
def sink() -> Kept:
    return Kept()


@pytest.fixture
def log(tmp_path: Path, sink: Kept) -> Iterator[LogWriter]:
    writer = LogWriter("planner-01", LogStore(tmp_path / "logs.db"), sink=sink)
    yield writer
    writer.close()


def call(number: int = 0, **more: object) -> dict[str, object]:
    return {"level": "info", "event": "call", "trace_id": "ab" * 16, "n": number, **more}


def test_a_line_goes_to_stderr_and_store_alike(log: LogWriter, sink: Kept) -> None:
    log.line(call(status=200, ms=1.5))
    log.close()
    [line] = sink.lines
    assert log.store is not None
    assert [found.data for found in log.store.query(trace_id="ab" * 16)] == [line]
    record = orjson.loads(line)
    assert list(record)[:4] == ["ts", "agent", "level", "event"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["ts"])
    assert record["agent"] == "planner-01"
    assert record["status"] == 200


def test_events_leave_out_what_is_none(log: LogWriter, sink: Kept) -> None:
    log.event("warn", "register", detail="refused", key=None)
    log.close()
    [record] = sink.records()
    assert (record["level"], record["event"], record["detail"]) == ("warn", "register", "refused")
    assert "key" not in record


def test_level_and_agent_can_change(log: LogWriter, sink: Kept) -> None:
    log.event("debug", "unheard")
    log.level = "debug"
    log.agent = "other-02"
    log.event("debug", "heard")
    assert log.level == "debug"
    log.close()
    assert [(record["event"], record["agent"]) for record in sink.records()] == [("heard", "other-02")]


def test_no_record_breaks_a_call(log: LogWriter, sink: Kept) -> None:
    log.line(call(detail="\ud800", path=Path("x"), big=1 << 70))
    log.line({"event": "bare"})
    log.line(call(detail="x" * 100_000))
    log.close()
    first, _, second = sink.records()
    assert first["detail"] == "?"
    assert len(sink.lines[2]) <= MAX_LINE_BYTES
    assert str(second["detail"]).endswith("(100000 characters)")


def test_lines_of_many_threads_all_arrive_in_order(log: LogWriter, sink: Kept) -> None:
    def write(thread: int) -> None:
        for number in range(500):
            log.line(call(number, thread=thread))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    for number in range(4):
        assert [record["n"] for record in sink.records() if record["thread"] == number] == [*range(500)]
    assert log.store is not None
    assert [found.data for found in log.store.query()] == sink.lines


def test_idle_means_asleep(log: LogWriter) -> None:
    log.line(call())
    until("written", lambda: not log._awake and not log._pending)
    assert log._worker is not None
    clock = time.pthread_getcpuclockid(log._worker.ident or 0)

    def sleeps() -> bool:
        before = time.clock_gettime_ns(clock)
        time.sleep(0.35)
        return time.clock_gettime_ns(clock) == before

    until("the worker uses no time at all", sleeps)


async def test_flush_makes_a_query_complete(log: LogWriter) -> None:
    assert log.store is not None
    for number in range(20):
        log.line(call(number))
        started = time.monotonic()
        assert await log.flush(5)
        assert len(log.store.query()) == number + 1
        assert time.monotonic() - started < 2


def test_a_worker_that_is_stuck_costs_lines_not_memory(
    log: LogWriter, sink: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "MAX_PENDING_LINES", 100)
    stuck, go_on = threading.Event(), threading.Event()
    append = LogStore.append_batch

    def slow(store: LogStore, batch: list[Line]) -> tuple[int, str | None]:
        stuck.set()
        go_on.wait(10)
        return append(store, batch)

    monkeypatch.setattr(LogStore, "append_batch", slow)
    log.line(call())
    assert stuck.wait(10)
    for number in range(250):
        log.line(call(number))
    assert len(log._pending) == 100
    assert log.lost_lines()["queue"] == 150
    go_on.set()
    log.close()
    notices = [record for record in sink.records() if record["event"] == "logs_lost"]
    assert [("150 lines lost" in str(record["detail"])) for record in notices] == [True]


async def test_a_full_disk_is_announced_once_a_minute_and_its_end_too(log: LogWriter, sink: Kept) -> None:
    log.line(call())
    await log.flush(5)
    assert log.store is not None
    assert log.store._db is not None
    broken = log.store._db
    log.store._db = Full()  # type: ignore[assignment]
    follower = log.followers.add(None, 0)
    for number in range(3):
        log.line(call(number))
        await log.flush(5)
    assert log.lost_lines()["store"] == 3
    log.store._db = broken
    log.line(call(9))
    await log.flush(5)
    words = [record["event"] for record in sink.records()]
    assert words.count("logs_lost") == 1
    assert words[-1] == "logs_stored_again"
    assert "3 were lost" in str(sink.records()[-1]["detail"])
    assert len(log.store.query()) == 2
    followed = [line for _ in range(4) for line in (await follower.next(0.05) or [])]
    assert [line.seq for line in followed] == [2, 3, 4, 5], "who follows sees them all the same"


async def test_a_damaged_store_is_said(tmp_path: Path, sink: Kept) -> None:
    (tmp_path / "logs.db").write_bytes(b"damaged" * 1000)
    log = LogWriter("a", LogStore(tmp_path / "logs.db"), sink=sink)
    log.line(call())
    await log.flush(5)
    log.close()
    assert [record["event"] for record in sink.records()] == ["call", "log_store_damaged"]
    assert "logs.db.damaged" in str(sink.records()[1]["detail"])
    assert log.lost_lines() == {"queue": 0, "store": 0, "stderr": 0}


class Full:
    """A connection to a disk without room."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None

    def execute(self, *statement: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorname = "SQLITE_FULL"
        raise error


def test_closing_twice_and_logging_afterwards_are_harmless(log: LogWriter) -> None:
    log.line(call())
    log.close()
    log.line(call())
    log.close()


def test_without_a_store(sink: Kept) -> None:
    log = LogWriter("a", None, sink=sink)
    log.line(call())
    assert asyncio.run(log.flush(5))
    log.close()
    assert len(sink.lines) == 1


def test_real_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = LogWriter("a", LogStore(tmp_path / "logs.db"), format="text")
    log.event("info", "ready", detail="x")
    log.close()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} info  ready a detail=x\n", capfd.readouterr().err)
    assert os.path.exists(tmp_path / "logs.db")


async def test_a_batch_that_fails_does_not_end_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = LogStore(tmp_path / "logs.db")
    writer = LogWriter("a", store)
    append = store.append_batch
    monkeypatch.setattr(store, "append_batch", lambda batch: (_ for _ in ()).throw(TypeError("broken")))
    writer.event("info", "first")
    await writer.flush()
    monkeypatch.setattr(store, "append_batch", append)
    writer.event("info", "second", trace_id="0" * 31 + "1")
    await writer.flush()
    assert writer.lost["store"] == 1
    assert [b'"second"' in found.data for found in store.query()] == [True]
    writer.close()
