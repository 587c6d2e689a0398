"""Checkpoints beside the writer: the write-ahead log stays short, the writer does not wait."""

import sqlite3
import threading
from pathlib import Path

import pytest

from reach_sidecar.telemetry import checkpoint
from reach_sidecar.telemetry.checkpoint import Checkpointer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.db"


def writer(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode=WAL", "wal_autocheckpoint=0", "synchronous=NORMAL"):
        db.execute(f"PRAGMA {pragma}").fetchall()
    db.execute("CREATE TABLE t (b BLOB)")
    return db


def test_the_log_stays_short_while_writing_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "EVERY_BYTES", 1 << 20)
    db, checkpointer = writer(path), Checkpointer(path)
    for _ in range(400):
        db.execute("INSERT INTO t VALUES (zeroblob(100000))")
        checkpointer.wrote(100_000)
        if checkpointer._bytes == 0:
            checkpointer.wait(10)
    wal = path.with_name("x.db-wal")
    assert wal.stat().st_size < 8 << 20, "40 MB were written"
    db.close()
    assert not wal.exists()


def test_one_pass_at_a_time_and_none_for_little(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    go_on = threading.Event()

    def run(self: Checkpointer) -> None:
        runs.append(1)
        go_on.wait(10)

    monkeypatch.setattr(Checkpointer, "_run", run)
    checkpointer = Checkpointer(path)
    checkpointer.wrote(checkpoint.EVERY_BYTES - 1)
    assert not runs
    for _ in range(5):
        checkpointer.wrote(checkpoint.EVERY_BYTES)
    go_on.set()
    checkpointer.wait(10)
    assert len(runs) == 1


def test_trouble_stays_inside(path: Path) -> None:
    path.write_bytes(b"damaged" * 1000)
    checkpointer = Checkpointer(path)
    checkpointer.wrote(checkpoint.EVERY_BYTES)
    checkpointer.wait(10)
    checkpointer = Checkpointer(path.parent / "missing" / "x.db")
    checkpointer.wrote(checkpoint.EVERY_BYTES)
    checkpointer.wait(10)
