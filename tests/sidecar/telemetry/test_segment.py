"""Segments: what the index row says about the lines, however they were cut and merged."""

import sqlite3
from pathlib import Path

import pytest

from reach_sidecar.telemetry.line import Line
from reach_sidecar.telemetry.segment import (
    SEGMENT_LINES,
    SQL,
    cut,
    is_damage,
    is_full,
    is_small,
    merged,
    trace_key,
    trace_keys,
)

A, B = "a" * 32, "b" * 32


def line(ms: int, trace_id: str | None = None, rank: int = 20) -> Line:
    return (ms, rank, trace_id, b"{}")


def test_a_batch_is_one_segment() -> None:
    [(row, lines)] = cut(7, [line(10, A), line(20, None, 40), line(30, A)])
    assert row == (7, 3, 9, 10, 30, 40, b"\xaa" * 4)
    assert lines == b"{}\n{}\n{}\n"
    assert is_small(row)


def test_a_long_batch_is_cut() -> None:
    rows = [row for row, _ in cut(1, [line(1)] * (2 * SEGMENT_LINES + 5))]
    assert [(row[0], row[1]) for row in rows] == [(1, 512), (513, 512), (1025, 5)]
    assert [is_small(row) for row in rows] == [False, False, True]


def test_merging_keeps_what_a_query_looks_for() -> None:
    [(first, _)], [(second, _)] = cut(1, [line(50, A, 20)]), cut(2, [line(40, A, 30), line(60, B, 10)])
    seq, count, size, first_ms, last_ms, worst, traces = merged([first, second])
    assert (seq, count, size, first_ms, last_ms, worst) == (1, 3, 9, 40, 60, 30)
    assert {traces[:4], traces[4:]} == {b"\xaa" * 4, b"\xbb" * 4}


def test_keys_of_ids() -> None:
    assert trace_key("0" * 24 + "01020304") == b"\x01\x02\x03\x04"
    assert trace_key("nonsense") == b""
    assert trace_keys({None}) == b""
    assert trace_keys({None, A}) == b"\xaa" * 4
    # One that is no trace id spoils none of the others.
    for odd in ("short", "", "z" * 32, "ab cd ef ", "é" * 32):
        assert trace_keys({odd, A}) == b"\xaa" * 4


def test_statements_are_valid_sql() -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(SQL["schema"])
    for name, statement in SQL.items():
        if name != "schema":
            names = {"trace": b"", "since_ms": 0, "worst": 0, "after_seq": 0}
            db.execute(f"EXPLAIN {statement}", names if ":" in statement else [None] * statement.count("?"))
    db.close()


def test_what_an_error_means(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"no database at all" * 100)
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.DatabaseError) as raised:
        db.execute("SELECT * FROM sqlite_master")
    db.close()
    assert is_damage(raised.value)
    assert not is_full(raised.value)
