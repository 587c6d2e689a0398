"""Queries: by trace, time, level and number; quick on many lines, exact while segments are merged."""

import threading
import time
from pathlib import Path

import orjson
import pytest

from reach_sidecar.telemetry import query
from reach_sidecar.telemetry.follow import Followed
from reach_sidecar.telemetry.line import Line, rfc3339
from reach_sidecar.telemetry.query import Wanted, find
from reach_sidecar.telemetry.store import LogStore

START_MS = 1_769_860_800_000


def line(number: int, trace_id: str | None = None, level: str = "info") -> Line:
    ms = START_MS + number * 1000
    record = {"ts": rfc3339(ms), "level": level, "event": "call", "trace_id": trace_id, "n": number}
    return (ms, {"debug": 10, "info": 20, "warn": 30, "error": 40}[level], trace_id, orjson.dumps(record))


def numbers(path: Path, **wanted: object) -> list[int]:
    return [orjson.loads(found.data)["n"] for found in find(path, Wanted(**wanted))]  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = LogStore(tmp_path / "logs.db", keep_s=1e9)
    store.append_batch([line(0, "a" * 32), line(1, "b" * 32, "warn"), line(2, None, "error")])
    store.append_batch([line(3, "a" * 32, "error"), line(4, "b" * 32, "debug")])
    store.close()
    return store.path


def test_each_filter(path: Path) -> None:
    assert numbers(path) == [0, 1, 2, 3, 4]
    assert numbers(path, trace_id="a" * 32) == [0, 3]
    assert numbers(path, trace_id="c" * 32) == []
    assert numbers(path, trace_id="no trace id") == []
    assert numbers(path, rank=30) == [1, 2, 3]
    assert numbers(path, since_ms=START_MS + 2000) == [2, 3, 4]
    assert numbers(path, after_seq=2) == [2, 3, 4]
    assert numbers(path, limit=2) == [3, 4]
    assert numbers(path, limit=1, trace_id="a" * 32) == [3]
    assert numbers(path, trace_id="b" * 32, rank=20, since_ms=START_MS) == [1]


def test_an_id_that_shares_its_key_is_not_taken_for_another(tmp_path: Path) -> None:
    mine, other = "1" * 24 + "0" * 8, "2" * 24 + "0" * 8
    store = LogStore(tmp_path / "logs.db", keep_s=1e9)
    store.append_batch([line(1, mine), line(2, other)])
    assert numbers(store.path, trace_id=mine) == [1]
    store.close()


def test_an_absent_store_has_no_lines(tmp_path: Path) -> None:
    assert find(tmp_path / "none.db", Wanted()) == []
    assert not (tmp_path / "none.db").exists()


def test_a_query_sees_each_line_once_while_segments_are_merged(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "logs.db", keep_s=1e9)
    store.append_batch([line(0)])
    stop = threading.Event()

    def write() -> None:
        number = 1
        while not stop.is_set() and number < 20_000:
            store.append_batch([line(number)])
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            seen = numbers(store.path)
            assert seen == [*range(seen[0], seen[0] + len(seen))]
    finally:
        stop.set()
        writer.join()
        store.close()


def test_a_trace_among_100_000_lines_is_found_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by reading them all: the index leads to the segments that may hold it."""
    store = LogStore(tmp_path / "logs.db", keep_s=1e9)
    pad = b'","pad":"' + b"x" * 200 + b'"}'
    for batch in range(500):
        store.append_batch(
            [
                (START_MS, 20, trace_id, b'{"level":"info","trace_id":"' + trace_id.encode() + pad)
                for number in range(200)
                if (trace_id := f"{batch * 200 + number:08x}" * 4)
            ]
        )
    read: list[int] = []
    fitting = query._fitting

    def noted(first_seq: int, blob: bytes, wanted: Wanted) -> list[Followed]:
        read.append(first_seq)
        return fitting(first_seq, blob, wanted)

    monkeypatch.setattr(query, "_fitting", noted)
    for number in (0, 50_000, 99_999):
        assert len(find(store.path, Wanted(trace_id=f"{number:08x}" * 4))) == 1
    assert len(read) < 10, read  # of 500 segments; four bytes of a trace id may fit another, too
    store.close()
