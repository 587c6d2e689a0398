"""What ran here: against a model, over restarts, jumps of the clock and floods."""

import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reach_sidecar.journal.database import Journal, StoreUnavailable
from reach_sidecar.journal.runs import EXPIRE_AT_ONCE, Answer, KeyExists, Row, Runs

ANSWER = Answer(200, b"OK", ((b"Content-Type", b"content-type", b"text/plain"),), b"hello")
NOW = 1_900_000_000_000
DAY = 86_400_000


def size(path: Path | str) -> int:
    return Path(path).stat().st_size


class Hands:
    """A monotonic clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


async def test_a_call(journal: Journal) -> None:
    runs = Runs(journal, keep_s=60)
    assert await runs.get(b"k") is None
    await runs.begin(b"k", b"f")
    assert await runs.get(b"k") == Row("running", b"f", None)
    await runs.done(b"k", ANSWER)
    assert await runs.get(b"k") == Row("done", b"f", ANSWER)


@pytest.mark.parametrize("state", ["running", "done", "not_kept", "unknown"])
async def test_only_what_is_unknown_may_begin_again(journal: Journal, state: str) -> None:
    runs = Runs(journal, keep_s=60)
    await runs.begin(b"k", b"f")
    if state == "done":
        await runs.done(b"k", ANSWER)
    elif state != "running":
        await getattr(runs, state)(b"k")
    before = await runs.get(b"k")
    assert before is not None
    assert before.state == state
    if state == "unknown":
        await runs.begin(b"k", b"g")
        assert await runs.get(b"k") == Row("running", b"g", None)
    else:
        with pytest.raises(KeyExists):
            await runs.begin(b"k", b"g")
        assert await runs.get(b"k") == before


async def test_of_a_hundred_that_begin_with_one_key_one_does(journal: Journal) -> None:
    runs = Runs(journal, keep_s=60)
    results = await asyncio.gather(*[runs.begin(b"k", b"%d" % n) for n in range(100)], return_exceptions=True)
    assert results[0] is None
    assert all(isinstance(result, KeyExists) for result in results[1:])


async def test_running_rows_outlive_the_process_and_all_time(path: Path) -> None:
    hands = Hands()
    journal = await Journal.open(path, now_ms=NOW, monotonic=hands)
    runs = Runs(journal, keep_s=60)
    await runs.begin(b"k", b"f")
    await journal.close()
    journal = await Journal.open(path, now_ms=NOW + 400 * DAY, monotonic=hands)
    runs = Runs(journal, keep_s=60)
    assert await runs.expire(NOW + 400 * DAY) == 0
    assert await runs.get(b"k") == Row("running", b"f", None)
    await runs.unknown(b"k")
    assert await runs.expire(NOW + 400 * DAY) == 0
    hands.s += 61
    assert await runs.expire(NOW + 400 * DAY) == 1
    await journal.close()


@pytest.mark.parametrize("jump_ms", [0, -400 * DAY, 400 * DAY, -1])
async def test_the_time_of_day_jumps_while_it_runs(path: Path, jump_ms: int) -> None:
    hands = Hands()
    journal = await Journal.open(path, now_ms=NOW, monotonic=hands)
    runs = Runs(journal, keep_s=3600)
    await runs.begin(b"k", b"f")
    await runs.done(b"k", ANSWER)
    for minute in range(1, 60):
        hands.s += 60
        assert await runs.expire(NOW + jump_ms + minute * 60_000) == 0
    hands.s += 60
    assert await runs.expire(NOW + jump_ms + DAY) == 1
    await journal.close()


@pytest.mark.parametrize(
    ("what", "away_ms", "runs_s", "goes"),
    [
        ("away for less than it is kept", 3_500_000, 0, False),
        ("away for longer", 3_600_000, 0, True),
        ("set back a year, then running for less", -365 * DAY, 3500, False),
        ("set back a year, then running for longer", -365 * DAY, 3600, True),
    ],
)
async def test_the_time_of_day_at_a_restart(path: Path, what: str, away_ms: int, runs_s: float, goes: bool) -> None:
    hands = Hands()
    journal = await Journal.open(path, now_ms=NOW, monotonic=hands)
    await Runs(journal, keep_s=3600).begin(b"k", b"f")
    await Runs(journal, keep_s=3600).done(b"k", ANSWER)
    await journal.close(NOW)
    journal = await Journal.open(path, now_ms=NOW + away_ms, monotonic=hands)
    hands.s += runs_s
    assert bool(await Runs(journal, keep_s=3600).expire(NOW + away_ms)) is goes
    await journal.close()


async def test_expiring_is_done_in_small_transactions(path: Path) -> None:
    hands = Hands()
    journal = await Journal.open(path, now_ms=NOW, monotonic=hands)
    runs = Runs(journal, keep_s=1)
    keys = [b"%d" % n for n in range(10 * EXPIRE_AT_ONCE)]
    await asyncio.gather(*[runs.begin(key, b"") for key in keys])
    await asyncio.gather(*[runs.not_kept(key) for key in keys])
    hands.s += 1
    before = journal.commits
    assert await runs.expire(NOW) == len(keys)
    assert journal.commits - before >= 10
    await journal.close()


async def test_a_flood_leaves_the_file_bounded(path: Path) -> None:
    """Three keep times of calls: the file stays as large as after the first."""
    hands = Hands()
    journal = await Journal.open(path, now_ms=NOW, monotonic=hands)
    runs = Runs(journal, keep_s=60)
    sizes = []
    for minute in range(6):
        for batch in range(10):
            keys = [b"%d %d %d" % (minute, batch, n) for n in range(200)]
            await asyncio.gather(*[runs.begin(key, b"f" * 16) for key in keys])
            await asyncio.gather(*[runs.done(key, ANSWER._replace(body=b"x" * 500)) for key in keys])
        hands.s += 60
        await runs.expire(NOW)
        sizes.append(size(path) + size(f"{path}-wal"))
    await journal.close()
    assert max(sizes) < 12 << 20, sizes
    assert size(path) < 4 << 20


KEYS = st.sampled_from([b"a", b"b", b"c", b""])
BODIES = st.sampled_from([b"", b"short", b"x" * 70_000])
OPS = st.one_of(
    st.tuples(st.just("begin"), KEYS, st.binary(max_size=3)),
    st.tuples(st.just("done"), KEYS, BODIES),
    st.tuples(st.just("spool"), KEYS, st.lists(BODIES, max_size=4)),
    st.tuples(st.sampled_from(["not_kept", "unknown", "forget"]), KEYS, st.none()),
    st.tuples(st.just("restart"), st.just(b""), st.none()),
    st.tuples(st.just("expire"), st.just(b""), st.integers(0, 90)),
)


@settings(max_examples=40)
@given(st.lists(OPS, max_size=25))
def test_as_the_model(ops: list[tuple[str, bytes, Any]]) -> None:
    asyncio.run(against_model(ops))


async def against_model(ops: list[tuple[str, bytes, Any]]) -> None:
    model: dict[bytes, tuple[Row, float]] = {}
    hands = Hands()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "delivery.db"
        journal = await Journal.open(path, now_ms=NOW, monotonic=hands)
        runs = Runs(journal, keep_s=60)
        for op, key, value in ops:
            row = model[key][0] if key in model else None
            if op == "begin":
                if row is None or row.state == "unknown":
                    await runs.begin(key, value)
                    model[key] = (Row("running", value, None), 0)
                else:
                    with pytest.raises(KeyExists):
                        await runs.begin(key, value)
            elif op == "restart":
                await journal.close(NOW)
                journal = await Journal.open(path, now_ms=NOW, monotonic=hands)
                runs = Runs(journal, keep_s=60)
            elif op == "expire":
                hands.s += value
                gone = [k for k, (r, at) in model.items() if r.state != "running" and hands.s - at >= 60]
                assert await runs.expire(NOW) == len(gone)
                for k in gone:
                    del model[k]
            elif op == "spool":
                spool = runs.spool(key)
                assert all(spool.add(data) for data in value)
                assert await spool.done(200, b"OK", ()) is (row is not None)
                if row is not None:
                    model[key] = (Row("done", row.fingerprint, Answer(200, b"OK", (), b"".join(value))), hands.s)
            elif op == "done":
                await runs.done(key, ANSWER._replace(body=value))
                if row is not None:
                    model[key] = (Row("done", row.fingerprint, ANSWER._replace(body=value)), hands.s)
            else:
                await getattr(runs, op)(key)
                if row is not None and op == "forget":
                    del model[key]
                elif row is not None:
                    model[key] = (Row(op, row.fingerprint, None), hands.s)  # type: ignore[arg-type]
            for k in (b"a", b"b", b"c", b""):
                assert await runs.get(k) == (model[k][0] if k in model else None)
        pieces = await journal.read(lambda db: db.execute("SELECT count(DISTINCT spool) FROM piece").fetchone()[0])
        kept = [r for r, _ in model.values() if r.answer is not None and len(r.answer.body) >= 65536]
        assert pieces <= len(kept)
        await journal.close()


@pytest.mark.parametrize("seed", range(3))
async def test_many_at_once(path: Path, seed: int) -> None:
    """Tasks with keys of their own, each against its own model; reads see each confirmed write."""
    journal = await Journal.open(path)
    runs = Runs(journal, keep_s=0)

    async def one(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        key = b"%d" % number
        for turn in range(10):
            await runs.begin(key, b"%d" % turn)
            row = await runs.get(key)
            assert row is not None
            assert row.state == "running"
            if chance.random() < 0.5:
                body = chance.randbytes(chance.choice([10, 1000, 100_000]))
                await runs.done(key, ANSWER._replace(body=body))
                row = await runs.get(key)
                assert row == Row("done", b"%d" % turn, ANSWER._replace(body=body))
            await runs.forget(key)
            assert await runs.get(key) is None

    await asyncio.gather(*[one(number) for number in range(30)])
    await journal.close()


async def test_a_head_that_cannot_be_read_is_no_answer(journal: Journal) -> None:
    runs = Runs(journal, keep_s=60)
    await runs.begin(b"k", b"f")
    await runs.done(b"k", ANSWER)
    await journal.write("UPDATE run SET head = x'00'", ())
    with pytest.raises(StoreUnavailable, match="the head of an answer"):
        await runs.get(b"k")


async def test_expire_notes_the_time(journal: Journal) -> None:
    later = int(time.time() * 1000) + DAY
    await Runs(journal, keep_s=60).expire(later)
    assert await journal.read(lambda db: db.execute("SELECT wall_ms FROM journal").fetchone()[0]) == later
