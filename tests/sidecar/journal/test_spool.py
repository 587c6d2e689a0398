"""Answers that stream to disk: whole or not at all, and bounded."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reach_sidecar.journal import spool as spool_module
from reach_sidecar.journal.answer import Answer
from reach_sidecar.journal.database import Journal, StoreUnavailable
from reach_sidecar.journal.runs import Row, Runs
from reach_sidecar.journal.spool import MOST_BYTES, MOST_WAITING_BYTES, MOST_WAITING_IN_ALL_BYTES, PIECE_BYTES

HEADERS = ((b"A", b"a", b"1"), (b"B", b"b", b"2"))
MIB = 1 << 20


@pytest.fixture
async def runs(journal: Journal) -> Runs:
    made = Runs(journal, keep_s=60)
    await made.begin(b"k", b"f")
    return made


@pytest.fixture
async def held(journal: Journal) -> AsyncIterator[sqlite3.Connection]:
    """The disk is busy: nothing is written until this is rolled back, which it must be within 2 s."""
    db = sqlite3.connect(journal.path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    yield db
    db.close()


async def pieces(journal: Journal) -> int:
    return await journal.read(lambda db: int(db.execute("SELECT count(*) FROM piece").fetchone()[0]))


async def no_pieces(journal: Journal, runs: Runs) -> None:
    """Nor any that still wait."""
    async with asyncio.timeout(20):
        while runs._waiting.size or await pieces(journal):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("what", "chunks", "rows"),
    [
        ("nothing", [], 0),
        ("small ones make no piece", [b"ab", b"", b"c"], 0),
        ("just under a piece", [b"x" * (PIECE_BYTES - 1)], 0),
        ("a piece and no rest", [b"x" * PIECE_BYTES], 1),
        ("a rest", [b"x" * PIECE_BYTES, b"y"], 1),
        ("small ones gather", [bytes([n % 256]) * 1000 for n in range(200)], 3),
        ("large ones stay whole", [b"x" * MIB, b"y" * MIB, b"z" * 5], 2),
    ],
)
async def test_kept_as_it_came(journal: Journal, runs: Runs, what: str, chunks: list[bytes], rows: int) -> None:
    spool = runs.spool(b"k")
    assert all(spool.add(chunk) for chunk in chunks)
    assert await spool.done(201, b"Made", HEADERS) is True
    assert await runs.get(b"k") == Row("done", b"f", Answer(201, b"Made", HEADERS, b"".join(chunks)))
    assert await pieces(journal) == rows


async def fill(spool: spool_module.Spool, size: int) -> bool:
    """In the pace of the disk."""
    chunk = bytes(MIB)
    for _ in range(size // MIB):
        if not spool.add(chunk):
            return False
        while spool._waiting > 4 * MIB:
            await asyncio.sleep(0.001)
    return True


async def test_as_much_as_it_may_hold_and_no_byte_more(journal: Journal, runs: Runs) -> None:
    spool = runs.spool(b"k")
    assert await fill(spool, MOST_BYTES)
    assert await spool.done(200, b"OK", ()) is True
    row = await runs.get(b"k")
    assert row is not None
    assert row.answer is not None
    assert len(row.answer.body) == MOST_BYTES

    await runs.begin(b"l", b"f")
    spool = runs.spool(b"l")
    assert await fill(spool, MOST_BYTES)
    assert spool.add(b"x") is False
    assert spool.add(b"") is False
    assert await spool.done(200, b"OK", ()) is False
    assert await runs.get(b"l") == Row("not_kept", b"f", None)
    await runs.forget(b"k")
    await no_pieces(journal, runs)


async def test_what_waits_for_the_disk_is_bounded(journal: Journal, runs: Runs, held: sqlite3.Connection) -> None:
    spool = runs.spool(b"k")
    chunk = bytes(MIB)
    assert [spool.add(chunk) for _ in range(17)] == [True] * (MOST_WAITING_BYTES // MIB) + [False]
    held.execute("ROLLBACK")
    assert await spool.done(200, b"OK", ()) is False
    assert await runs.get(b"k") == Row("not_kept", b"f", None)
    await no_pieces(journal, runs)


async def test_what_all_have_waiting_is_bounded(journal: Journal, runs: Runs, held: sqlite3.Connection) -> None:
    spools = [runs.spool(b"%d" % n) for n in range(9)]
    chunk = bytes(8 * MIB)
    took = [spool.add(chunk) for spool in spools]
    assert took == [True] * (MOST_WAITING_IN_ALL_BYTES // len(chunk)) + [False]
    held.execute("ROLLBACK")
    for spool in spools:
        spool.drop()
    await no_pieces(journal, runs)
    again = runs.spool(b"k")
    assert again.add(chunk)
    assert await again.done(200, b"OK", ())


@pytest.mark.parametrize("size", [10, 3 * MIB])
async def test_dropped(journal: Journal, runs: Runs, size: int) -> None:
    spool = runs.spool(b"k")
    assert spool.add(bytes(size))
    spool.drop()
    spool.drop()
    assert spool.add(b"x") is False
    await no_pieces(journal, runs)
    assert await runs.get(b"k") == Row("running", b"f", None)


async def test_the_call_was_forgotten_meanwhile(journal: Journal, runs: Runs) -> None:
    spool = runs.spool(b"k")
    assert spool.add(bytes(MIB))
    await runs.forget(b"k")
    assert await spool.done(200, b"OK", ()) is False
    assert await runs.get(b"k") is None
    await no_pieces(journal, runs)


@pytest.mark.parametrize("how", ["forget", "not_kept", "unknown", "done", "expire"])
async def test_pieces_go_with_their_answer(journal: Journal, runs: Runs, how: str) -> None:
    spool = runs.spool(b"k")
    assert spool.add(bytes(MIB))
    assert await spool.done(200, b"OK", ())
    assert await pieces(journal) == 1
    if how == "done":
        await runs.done(b"k", Answer(200, b"OK", (), b"other"))
    elif how == "expire":
        assert await Runs(journal, keep_s=-1).expire(0) == 1
    else:
        await getattr(runs, how)(b"k")
    assert await pieces(journal) == 0


async def test_pieces_of_a_crash_go_at_the_next_start(path: Path) -> None:
    journal = await Journal.open(path)
    runs = Runs(journal, keep_s=60)
    await runs.begin(b"kept", b"f")
    spool = runs.spool(b"kept")
    assert spool.add(bytes(MIB))
    assert await spool.done(200, b"OK", ())
    await runs.begin(b"k", b"f")
    spool = runs.spool(b"k")
    assert spool.add(bytes(MIB))
    await journal.close()
    journal = await Journal.open(path)
    assert await pieces(journal) == 1
    assert await Runs(journal, keep_s=60).get(b"k") == Row("running", b"f", None)
    await journal.close()


async def test_no_room_for_the_answer_but_for_saying_so(path: Path) -> None:
    journal = await Journal.open(path, max_bytes=4 * MIB)
    runs = Runs(journal, keep_s=60)
    await runs.begin(b"k", b"f")
    spool = runs.spool(b"k")
    for _ in range(8):
        spool.add(bytes(MIB))
    assert await spool.done(200, b"OK", ()) is False
    assert await runs.get(b"k") == Row("not_kept", b"f", None)
    await no_pieces(journal, runs)
    await journal.close()


async def test_a_piece_is_missing(journal: Journal, runs: Runs) -> None:
    spool = runs.spool(b"k")
    assert spool.add(bytes(MIB))
    assert spool.add(bytes(MIB))
    assert await spool.done(200, b"OK", ())
    await journal.write("DELETE FROM piece WHERE seq = 0", ())
    with pytest.raises(StoreUnavailable, match="1 of 2 pieces"):
        await runs.get(b"k")


async def test_after_closing(journal: Journal, runs: Runs) -> None:
    spool = runs.spool(b"k")
    await journal.close()
    assert spool.add(bytes(MIB)) is False
    with pytest.raises(StoreUnavailable, match="closed"):
        await spool.done(200, b"OK", ())
    spool.drop()
