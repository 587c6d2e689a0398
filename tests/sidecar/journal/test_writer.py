"""Groups: shared syncs, and who fails when something fails."""

import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.mesh import until

from reach_sidecar.journal.file import open_file
from reach_sidecar.journal.statements import statements
from reach_sidecar.journal.writer import BULK_BYTES, Value, Write, Writer

BEGIN = "INSERT INTO run (key, state, fingerprint) VALUES (?, 'running', ?)"
PIECE = statements("runs")["add_piece"]


class Desk:
    """A writer on a real file, and the groups it has settled. Small ones: 40 pages."""

    def __init__(self, path: Path, max_bytes: int = 0) -> None:
        opened = open_file(path)
        self.path = path
        self.settled: list[list[Write]] = []
        self.more = threading.Semaphore(0)
        self.writer = Writer(path, opened.db, opened.id, self.settle, max_bytes)

    def settle(self, group: list[Write]) -> None:
        self.settled.append(group)
        self.more.release()

    def wait(self, count: int) -> None:
        while sum(map(len, self.settled)) < count:
            assert self.more.acquire(timeout=20), f"not within 20 s: {count} settled"

    def write(self, *writes: Write) -> list[bool]:
        """Hand over at once; which of them are on the disk."""
        before = sum(map(len, self.settled))
        self.writer.put(list(writes))
        self.wait(before + len(writes))
        return [write.error is None for write in writes]

    def keys(self) -> list[bytes]:
        db = sqlite3.connect(self.path)
        try:
            return [row[0] for row in db.execute("SELECT key FROM run ORDER BY id")]
        finally:
            db.close()

    def stop(self) -> None:
        self.writer.stop()
        self.writer.join()


@pytest.fixture
def desk(path: Path) -> Iterator[Desk]:
    made = Desk(path)
    yield made
    made.stop()


@pytest.fixture
def small(path: Path) -> Iterator[Desk]:
    """Room for little: 60 pages."""
    made = Desk(path, max_bytes=60 * 4096)
    yield made
    made.stop()


def begin(key: bytes | int, fingerprint: Value = b"") -> Write:
    return Write(BEGIN, (b"%d" % key if isinstance(key, int) else key, fingerprint))


def test_what_waits_shares_a_sync(desk: Desk) -> None:
    assert all(desk.write(*[begin(n) for n in range(100)]))
    assert desk.writer.commits == 1
    assert desk.keys() == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize(
    ("what", "wrong", "error"),
    [
        ("its key is taken", begin(3), sqlite3.IntegrityError),
        ("a value of no known type", Write(BEGIN, (b"k", [])), sqlite3.InterfaceError | sqlite3.ProgrammingError),  # type: ignore[arg-type]
        ("a number too large", Write(PIECE, (1 << 70, 1, b"")), OverflowError),
        ("too few values", Write(BEGIN, (b"k",)), sqlite3.ProgrammingError),
        ("null where there must be something", begin(b"k", None), sqlite3.IntegrityError),
    ],
)
def test_what_is_wrong_with_one_fails_that_one(desk: Desk, what: str, wrong: Write, error: type[Exception]) -> None:
    good = [begin(n) for n in range(10)]
    group = [*good[:5], wrong, *good[5:]]
    assert desk.write(*group) == [write is not wrong for write in group]
    assert isinstance(wrong.error, error)
    assert desk.writer.commits == 1
    assert len(desk.keys()) == 10


@pytest.mark.parametrize("seed", range(5))
def test_one_that_has_no_room_fails_alone(small: Desk, seed: int) -> None:
    chance = random.Random(seed)
    group = [begin(n) for n in range(30)]
    large = begin(b"large", b"x" * 400_000)
    group.insert(chance.randrange(31), large)
    assert small.write(*group) == [write is not large for write in group]
    assert getattr(large.error, "sqlite_errorname", "") == "SQLITE_FULL"
    assert len(small.keys()) == 30
    assert small.write(begin(b"next")) == [True]


def test_full_refuses_quickly_and_recovers_when_there_is_room(small: Desk) -> None:
    key = 0
    while small.write(begin(key, b"x" * 3000))[0]:
        key += 1
    assert key > 10
    before = small.writer.commits
    assert not any(small.write(*[begin(n, b"x" * 20_000) for n in range(1000, 1500)]))
    assert small.writer.commits == before
    assert small.keys() == [b"%d" % n for n in range(key)]
    assert small.write(*[Write(statements("runs")["forget"], (b"%d" % n,)) for n in range(10)]) == [True] * 10
    assert small.write(begin(b"again", b"x" * 3000)) == [True]


def test_bulk_waits_for_small_ones_and_takes_turns(desk: Desk) -> None:
    hold = sqlite3.connect(desk.path, isolation_level=None)
    hold.execute("BEGIN IMMEDIATE")  # so that all of it gathers behind one group
    desk.writer.put([begin(b"first")])
    pieces = [Write(PIECE, (1, n, b"x" * 1000), bulk=BULK_BYTES // 2) for n in range(6)]
    desk.writer.put(pieces)
    desk.writer.put([begin(b"later")])
    hold.execute("ROLLBACK")
    desk.wait(8)
    bulk = [[write for write in group if write.bulk] for group in desk.settled]
    assert [write for group in bulk for write in group] == pieces
    assert max(map(len, bulk)) == 2
    later = next(n for n, group in enumerate(desk.settled) if any(write.values[0] == b"later" for write in group))
    assert later <= 1
    hold.close()


def test_damage_stops_all_writing(desk: Desk) -> None:
    desk.write(*[begin(n) for n in range(500)])
    desk.writer.damage = sqlite3.DatabaseError("found by the reader")
    assert desk.write(begin(b"a"), begin(b"b")) == [False, False]
    assert len(desk.keys()) == 500


def test_damage_that_the_writer_meets(path: Path) -> None:
    first = Desk(path)
    first.write(*[begin(n, b"x" * 200) for n in range(2000)])
    first.stop()
    desk = Desk(path)  # the check at the start finds all well
    try:
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xa5" * (path.stat().st_size - 4096))
        assert desk.writer._db is not None
        desk.writer._db.execute("PRAGMA shrink_memory")  # what it has read is not read again
        assert desk.write(begin(b"a"), begin(b"b")) == [False, False]
        assert desk.writer.damage is not None
        assert desk.write(begin(b"c")) == [False]
    finally:
        desk.stop()


def test_a_removed_file_is_not_written_to(desk: Desk) -> None:
    away = desk.path.with_name("away.db")
    assert desk.write(begin(1)) == [True]
    for suffix in ("", "-wal", "-shm"):
        Path(f"{desk.path}{suffix}").rename(f"{away}{suffix}")
    assert desk.write(begin(2)) == [False]
    assert not desk.path.exists()
    for suffix in ("", "-wal", "-shm"):
        if Path(f"{away}{suffix}").exists():
            Path(f"{away}{suffix}").rename(f"{desk.path}{suffix}")
    assert desk.write(begin(3)) == [True]
    assert desk.keys() == [b"1", b"3"]


def test_another_file_in_its_place_is_not_written_to(desk: Desk) -> None:
    assert desk.write(begin(1)) == [True]
    other = desk.path.with_name("other.db")
    open_file(other).db.close()
    for suffix in ("-wal", "-shm"):
        Path(f"{desk.path}{suffix}").unlink()
    other.rename(desk.path)
    for _ in range(2):
        assert desk.write(begin(2)) == [False]
    assert desk.keys() == []


def test_somebody_else_holds_the_lock(desk: Desk) -> None:
    other = sqlite3.connect(desk.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert desk.write(begin(1)) == [False]
    assert isinstance(desk.settled[-1][0].error, sqlite3.OperationalError)
    other.execute("ROLLBACK")
    other.close()
    assert desk.write(begin(2)) == [True]


def test_stop_writes_what_waits(desk: Desk) -> None:
    threads = [threading.Thread(target=desk.writer.put, args=([begin(n)],)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    desk.stop()
    assert len(desk.keys()) == 20
    assert not Path(f"{desk.path}-wal").exists()


def test_the_log_stays_small(desk: Desk) -> None:
    for n in range(60):
        desk.write(begin(n, b"x" * 500_000))
    until("moved", lambda: Path(f"{desk.path}-wal").stat().st_size <= 17 << 20)


def test_a_full_disk_has_the_log_moved_so_that_its_room_is_used_again(small: Desk) -> None:
    key = 0
    while small.write(begin(key, b"x" * 3000))[0]:
        key += 1
    small.write(begin(b"after", b"x" * 3000))  # once this is refused, tidying after the first one is over
    assert small.path.stat().st_size > 50 * 4096


def test_free_room_is_given_back(desk: Desk) -> None:
    for n in range(30):
        desk.write(begin(n, b"x" * 500_000))
    large = desk.path.stat().st_size
    desk.write(Write("DELETE FROM run", ()))

    def smaller() -> bool:
        desk.writer._give_back_at = 0.0  # each time: its thread may just have put the next one off
        desk.write(Write("DELETE FROM run", ()))
        return desk.path.stat().st_size < large // 2

    until("smaller", smaller)
