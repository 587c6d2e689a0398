"""Answers in memory: each for its time, all of them within bounds that hold for the process too."""

import random
import subprocess
import sys

import pytest

from reach_sidecar.journal.answer import Answer
from reach_sidecar.journal.memory import EXPIRED_AT_ONCE, MADE_KEEP_S, MOST_ANSWER_BYTES, RAN_BYTES, ROW_BYTES, Memory

MIB = 1 << 20
HEADERS = [(b"x-a", b"X-A", b"1"), (b"x-a", b"x-a", b"2")]


def keep(memory: Memory, key: bytes, now: float, body: bytes = b"done", *, made: bool = False) -> None:
    memory.keep(key, b"f", made, now, 200, b"OK", HEADERS, body)


def state(memory: Memory, key: bytes, now: float) -> str | None:
    found = memory.state(key, now)
    return None if found is None else found[0]


@pytest.mark.parametrize(("made", "keeps_s"), [(True, MADE_KEEP_S), (False, 600.0)])
@pytest.mark.parametrize("as_mark", [False, True])
def test_each_has_its_time(made: bool, keeps_s: float, as_mark: bool) -> None:
    memory = Memory(max_bytes=64 * MIB, keep_s=600.0)
    if as_mark:
        memory.mark(b"k", b"f", "unknown", made, 100.0)
    else:
        keep(memory, b"k", 100.0, made=made)
    assert memory.state(b"k", 100.0 + keeps_s - 0.001) == ("unknown" if as_mark else "done", b"f")
    assert memory.state(b"k", 100.0 + keeps_s) is None
    assert memory.expire(100.0 + keeps_s)
    assert (len(memory), memory.bytes) == (0, 0)


def test_the_answer_is_what_was_kept() -> None:
    memory = Memory(max_bytes=MIB, keep_s=600.0)
    memory.keep(b"k", b"f", False, 0.0, 418, b"I'm A Teapot", HEADERS, b"\0body")
    assert memory.answer(b"k") == Answer(418, b"I'm A Teapot", tuple(HEADERS), b"\0body")
    HEADERS.append((b"x", b"x", b"x"))
    HEADERS.pop()
    memory.forget(b"k")
    memory.forget(b"k")
    assert (memory.state(b"k", 0.0), memory.bytes) == (None, 0)


@pytest.mark.parametrize(("size", "found"), [(MOST_ANSWER_BYTES, "done"), (MOST_ANSWER_BYTES + 1, "not_kept")])
def test_what_is_too_long_is_not_kept_but_known(size: int, found: str) -> None:
    memory = Memory(max_bytes=64 * MIB, keep_s=600.0)
    keep(memory, b"k", 0.0, bytes(size))
    assert state(memory, b"k", 1.0) == found
    assert memory.has_room(made=False, now=1.0)


def test_one_answer_does_not_close_a_small_store() -> None:
    memory = Memory(max_bytes=MIB, keep_s=600.0)
    keep(memory, b"k", 0.0, bytes(MIB - 1000))
    assert state(memory, b"k", 0.0) == "not_kept"
    assert memory.has_room(made=False, now=0.0)


def test_made_answers_go_first_the_oldest_before_the_others() -> None:
    memory = Memory(max_bytes=MIB, keep_s=600.0)
    for number in range(8):
        keep(memory, b"made%d" % number, number, bytes(100_000), made=True)
    keep(memory, b"given", 8.0, bytes(200_000))
    keep(memory, b"given2", 8.0, bytes(200_000))
    found = [state(memory, b"made%d" % number, 8.0) for number in range(8)]
    assert found == ["not_kept"] * 2 + ["done"] * 6
    assert (state(memory, b"given", 8.0), state(memory, b"given2", 8.0)) == ("done", "done")
    assert memory.bytes <= MIB


def test_that_a_made_key_ran_is_known_for_its_time_however_many_there_are() -> None:
    memory = Memory(max_bytes=MIB, keep_s=600.0)
    for number in range(4_000):
        assert memory.has_room(made=True, now=0.0)
        keep(memory, b"m%d" % number, 0.0, bytes(1_000), made=True)
        assert memory.bytes <= MIB
    found = [state(memory, b"m%d" % number, 29.9) for number in range(4_000)]
    assert found.count("not_kept") + found.count("done") == 4_000
    assert found[:2_000] == ["not_kept"] * 2_000
    assert found[-1] == "done"
    assert state(memory, b"other", 0.0) is None
    memory.expire(32.0)
    assert (len(memory), memory.bytes) == (0, 0)


def test_given_keys_never_go_early_and_new_ones_are_refused() -> None:
    memory = Memory(max_bytes=MIB, keep_s=600.0)
    count = 0
    while memory.has_room(made=False, now=count):
        keep(memory, b"k%d" % count, count, bytes(100_000))
        count += 1
    assert count == 10  # the last one found no room for its answer
    assert [state(memory, b"k%d" % number, count) for number in range(10)] == ["done"] * 9 + ["not_kept"]
    assert memory.has_room(made=True, now=count)
    assert not memory.has_room(made=False, now=599.9)
    assert memory.has_room(made=False, now=600.0)  # the oldest one's time is over


def test_when_nothing_fits_every_new_key_is_refused() -> None:
    memory = Memory(max_bytes=MIB, keep_s=600.0)
    count = 0
    while memory.has_room(made=True, now=0.0):
        memory.mark(b"m%d" % count, b"f", "unknown", True, 0.0)
        count += 1
    assert count == MIB // ROW_BYTES
    assert not memory.has_room(made=False, now=29.9)
    assert memory.has_room(made=False, now=30.0)


def test_a_call_after_a_flood_does_not_pay_for_all_of_it() -> None:
    memory = Memory(max_bytes=64 * MIB, keep_s=600.0)
    for number in range(10_000):
        memory.mark(b"m%d" % number, b"f", "unknown", True, 0.0)
    assert memory.has_room(made=True, now=40.0)
    assert len(memory) == 10_000 - EXPIRED_AT_ONCE
    assert not memory.expire(40.0, at_most=100)
    assert len(memory) == 10_000 - EXPIRED_AT_ONCE - 100
    assert memory.expire(40.0)
    assert len(memory) == 0


@pytest.mark.parametrize("made", [True, False])
def test_a_key_that_runs_again_and_again_leaves_nothing_behind(made: bool) -> None:
    memory = Memory(max_bytes=64 * MIB, keep_s=600.0)
    for number in range(20_000):
        memory.mark(b"k", b"f", "unknown", made, number * 0.001)
    assert (len(memory), memory.bytes) == (1, ROW_BYTES)
    assert len(memory._given) + len(memory._marks) + len(memory._answers) < 2_000
    assert memory.expire(700.0)
    assert (len(memory), memory.bytes, memory._stale) == (0, 0, 0)


def test_a_later_run_of_a_key_has_a_time_of_its_own() -> None:
    memory = Memory(max_bytes=MIB, keep_s=600.0)
    memory.mark(b"k", b"f", "unknown", False, 0.0)
    keep(memory, b"k", 500.0)
    memory.expire(601.0)
    assert state(memory, b"k", 601.0) == "done"
    memory.expire(1100.0)
    assert len(memory) == 0


@pytest.mark.parametrize("seed", range(20))
def test_against_a_model(seed: int) -> None:
    """Whatever happens: given rows stay for their time as they are, and the sums are right."""
    draw = random.Random(seed)
    memory = Memory(max_bytes=MIB, keep_s=20.0)
    model: dict[bytes, tuple[float, str, bool]] = {}
    now = 0.0
    for _ in range(3_000):
        now += draw.choice((0.0, 0.001, 0.05, 1.0))
        made = draw.random() < 0.5
        key = b"%s%d" % (b"m" if made else b"g", draw.randrange(400))
        if draw.random() < 0.1:
            memory.forget(key)
            model.pop(key, None)
        elif memory.has_room(made, now):
            if draw.random() < 0.5:
                keep(memory, key, now, bytes(draw.choice((0, 10, 5_000, 60_000))), made=made)
            else:
                memory.mark(key, b"f", "unknown", made, now)
            model[key] = (now + (MADE_KEEP_S if made else 20.0), state(memory, key, now) or "", made)
        for known, (until, was, is_made) in list(model.items())[:20]:
            found = state(memory, known, now)
            expected = was if now < until else None
            assert found == expected or (is_made and was == "done" and found == "not_kept"), f"seed {seed}"
        rows = sum(row[4] for row in memory._rows.values())
        assert memory.bytes == rows + RAN_BYTES * len(memory._ran), f"seed {seed}"
        assert memory._given_bytes == sum(row[4] for row in memory._rows.values() if not row[3])
        assert memory.bytes <= memory.max_bytes + ROW_BYTES
        places = len(memory._marks) + len(memory._answers) + len(memory._given)
        assert places == len(memory._rows) + memory._stale, f"seed {seed}"
    memory.expire(now + 100.0)
    assert (len(memory), memory.bytes, memory._stale) == (0, 0, 0)


FLOOD = """
import gc, os, sys
from reach_sidecar.journal.memory import Memory

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

made, count, size = sys.argv[1] == "made", int(sys.argv[2]), int(sys.argv[3])
memory = Memory(max_bytes=16 << 20, keep_s=600.0)
head = b"Content-Type: application/json\\r\\nDate: Tue, 01 Dec 2026 00:00:00 GMT\\r\\nServer: any"
gc.collect()
before = resident()
for number in range(count):
    if not memory.has_room(made, 0.0):
        break
    lines = [line.partition(b": ") for line in head.split(b"\\r\\n")]
    key = b"%d:agent%d:summarize0:35:reach-%024x-%08x" % (5, 9, 7, number)
    memory.keep(key, b"%08d" % number, made, 0.0, 200, bytes(b"O%d" % number),
                [(name.lower(), name, value) for name, _, value in lines], b"x" * size)
gc.collect()
print(len(memory), memory.bytes, resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("kind", "count", "size"), [
    ("made", 200_000, 1 << 10), ("given", 200_000, 1 << 10), ("made", 2_000, 100 << 10), ("given", 2_000, 100 << 10),
    ("given", 200_000, 0),
])
def test_what_is_counted_is_what_the_process_takes(kind: str, count: int, size: int) -> None:
    ran = subprocess.run([sys.executable, "-c", FLOOD, kind, str(count), str(size)], capture_output=True, text=True,
                         check=True, timeout=60)
    rows, counted, resident = map(int, ran.stdout.split())
    assert rows > 100
    assert counted <= 16 * MIB
    # answers that were given up leave holes, which only later ones can use
    assert resident <= counted * (1.5 if kind == "made" else 1.15), (rows, counted, resident)
