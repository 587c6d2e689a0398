"""The journal as a whole: shared syncs, closing, and troubles of the disk that pass."""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from reach_sidecar.journal.database import Journal, JournalError, StoreUnavailable
from reach_sidecar.journal.runs import Answer, Row, Runs


async def test_a_hundred_at_once_share_few_syncs(journal: Journal) -> None:
    runs = Runs(journal, keep_s=60)
    before = journal.commits
    await asyncio.gather(*[runs.begin(b"%d" % n, b"f") for n in range(100)])
    assert journal.commits - before <= 2
    for n in range(100):
        assert await runs.get(b"%d" % n) == Row("running", b"f", None)


async def test_staggered_ones_share_too(journal: Journal) -> None:
    """Workers in loops of their own: what comes during a sync waits for the next one only."""
    runs = Runs(journal, keep_s=60)

    async def work(number: int) -> None:
        for turn in range(20):
            await runs.begin(b"%d %d" % (number, turn), b"f")

    before = journal.commits
    await asyncio.gather(*[work(number) for number in range(50)])
    assert journal.commits - before < 250


async def test_close_commits_what_waits(path: Path) -> None:
    journal = await Journal.open(path)
    runs = Runs(journal, keep_s=60)
    waiting = [asyncio.ensure_future(runs.begin(b"%d" % n, b"f")) for n in range(50)]
    await asyncio.sleep(0)
    await journal.close()
    await journal.close()
    assert await asyncio.gather(*waiting) == [None] * 50
    again = await Journal.open(path)
    assert again.id == journal.id
    assert await Runs(again, keep_s=60).get(b"49") == Row("running", b"f", None)
    await again.close()


async def test_closed(journal: Journal) -> None:
    runs = Runs(journal, keep_s=60)
    await journal.close()
    for call in (runs.get(b"k"), runs.begin(b"k", b"f"), runs.forget(b"k"), runs.expire(0)):
        with pytest.raises(StoreUnavailable, match="closed"):
            await call


async def test_one_that_is_cancelled_leaves_the_others(journal: Journal) -> None:
    runs = Runs(journal, keep_s=60)
    tasks = [asyncio.ensure_future(runs.begin(b"%d" % n, b"f")) for n in range(10)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [type(None)] * 3 + [asyncio.CancelledError] + [type(None)] * 6


async def test_reads_do_not_wait_for_writes(journal: Journal) -> None:
    runs = Runs(journal, keep_s=60)
    await runs.begin(b"k", b"f")
    other = sqlite3.connect(journal.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(runs.begin(b"l", b"f"))
    for _ in range(20):
        assert await runs.get(b"k") == Row("running", b"f", None)
    assert not writing.done()
    other.execute("ROLLBACK")
    other.close()
    await writing


async def test_full_and_room_again(path: Path) -> None:
    journal = await Journal.open(path, max_bytes=200 * 1024)
    runs = Runs(journal, keep_s=60)
    answer = Answer(200, b"OK", (), b"x" * 3000)
    done: list[int] = []

    async def fill() -> None:
        while True:
            await runs.begin(b"%d" % len(done), b"f")
            await runs.done(b"%d" % len(done), answer)
            done.append(len(done))

    with pytest.raises(StoreUnavailable, match="cannot be used now: database or disk is full"):
        await fill()
    kept = len(done)
    assert kept > 20
    for n in range(kept):
        assert await runs.get(b"%d" % n) == Row("done", b"f", answer)
    for n in range(5):
        await runs.forget(b"%d" % n)
    await runs.begin(b"again", b"f")
    await journal.close()


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from reach_sidecar.journal.database import Journal, StoreUnavailable
from reach_sidecar.journal.runs import Answer, Runs

async def main():
    journal = await Journal.open(Path(sys.argv[1]))
    runs = Runs(journal, keep_s=60)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    for turn in range(3):
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, most))
        refused = 0
        for batch in range(200):
            keys = [b"%d %d %d" % (turn, batch, n) for n in range(5)]
            results = await asyncio.gather(*[runs.begin(key, b"x" * 2000) for key in keys], return_exceptions=True)
            assert {type(result) for result in results} <= {type(None), StoreUnavailable}, results
            for key, result in zip(keys, results):
                print("confirmed" if result is None else "refused", key.decode())
                assert (await runs.get(key) is not None) == (result is None), key
            refused += sum(result is not None for result in results)
            if refused >= 20:
                break
        assert refused, "the limit was not met"
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        key = b"%d after" % turn
        await runs.begin(key, b"x")
        print("confirmed", key.decode())
    await journal.close()

asyncio.run(main())
"""


async def test_the_system_refuses_to_write(path: Path) -> None:
    """A limit of the file's size, met in the middle of transactions, and lifted while the process runs."""
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, timeout=50)  # noqa: ASYNC221
    assert done.returncode == 0, done
    said = re.findall(r"^(confirmed|refused) (.*)$", done.stdout, re.M)
    journal = await Journal.open(path)
    runs = Runs(journal, keep_s=60)
    for what, key in said:
        assert (await runs.get(key.encode()) is not None) == (what == "confirmed"), key
    assert sum(what == "refused" for what, _ in said) >= 60
    await journal.close()


async def test_it_cannot_be_opened(path: Path) -> None:
    journal = await Journal.open(path)
    await journal.close()
    os.truncate(path, 0)
    with pytest.raises(JournalError, match="damaged"):
        await Journal.open(path)


async def test_damage_met_while_reading_stops_writing(path: Path) -> None:
    journal = await Journal.open(path)
    runs = Runs(journal, keep_s=60)
    await asyncio.gather(*[runs.begin(b"%d" % n, b"x" * 500) for n in range(1000)])
    await journal.close()
    journal = await Journal.open(path)
    runs = Runs(journal, keep_s=60)
    with path.open("r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xa5" * (300 * 500))
    with pytest.raises(StoreUnavailable, match=r"damaged.*move it away"):
        await asyncio.gather(*[runs.get(b"%d" % n) for n in range(1000)])
    with pytest.raises(StoreUnavailable, match="damaged"):
        await runs.begin(b"new", b"f")
    await journal.close()
