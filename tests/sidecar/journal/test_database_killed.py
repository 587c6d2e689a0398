"""SIGKILL in the middle of many writes: what was confirmed is there, and nothing is there by halves."""

import asyncio
import hashlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reach_sidecar.journal.database import Journal
from reach_sidecar.journal.notes import Note, Notes
from reach_sidecar.journal.runs import Runs

# Says each step on its output, a file, before it asks for it (?) and once it was confirmed (!).
CHILD = """
import asyncio, hashlib, os, random, sys
from pathlib import Path
from reach_sidecar.journal.database import Journal
from reach_sidecar.journal.notes import Note, Notes
from reach_sidecar.journal.runs import Answer, Runs

def body(key, size):
    return (hashlib.sha256(key).digest() * (size // 32 + 1))[:size]

def say(*words):
    os.write(1, (" ".join(words) + "\\n").encode())

async def work(runs, notes, seed, number):
    chance = random.Random(f"{seed} {number}")
    turn = 0
    while True:
        name = f"{seed}-{number}-{turn}"
        key = name.encode()
        turn += 1
        say("?", "begin", name)
        await runs.begin(key, b"f" + key)
        say("!", "begin", name)
        what = chance.choice(["done", "done", "spool", "unknown", "not_kept", "forget", "leave", "note"])
        if what == "leave":
            continue
        if what == "note":
            await notes.put(key, Note(name, key))
            say("!", "note", name)
            continue
        size = chance.choice([0, 100, 5000, 70000])
        say("?", what, name, str(size))
        if what == "done":
            await runs.done(key, Answer(200, b"OK", ((b"A", b"a", key),), body(key, size)))
        elif what == "spool":
            spool = runs.spool(key)
            for at in range(0, 4 * size, 30000):
                spool.add(body(key, 4 * size)[at:at + 30000])
            assert await spool.done(200, b"OK", ((b"A", b"a", key),))
        else:
            await getattr(runs, what)(key)
        say("!", what, name, str(size))

async def main():
    journal = await Journal.open(Path(sys.argv[1]))
    runs, notes = Runs(journal, keep_s=3600), Notes(journal, keep_s=3600)
    await asyncio.gather(*[work(runs, notes, sys.argv[2], number) for number in range(40)])

asyncio.run(main())
"""


def body(key: bytes, size: int) -> bytes:
    return (hashlib.sha256(key).digest() * (size // 32 + 1))[:size]


async def check(journal: Journal, said: list[list[str]]) -> int:
    """That the store has what was confirmed; how many calls that were."""
    runs, notes = Runs(journal, keep_s=3600), Notes(journal, keep_s=3600)
    asked: dict[str, list[str]] = {}
    confirmed: dict[str, list[str]] = {}
    for mark, *words in said:
        if words[0] == "note":
            assert await notes.get(words[1].encode()) == Note(words[1], words[1].encode())
            continue
        (asked if mark == "?" else confirmed)[words[1]] = words
    for name, words in asked.items():
        key = name.encode()
        row = await runs.get(key)
        last = confirmed.get(name)
        state = {"begin": "running", "spool": "done"}.get(words[0], words[0])
        if last == words:
            assert (row.state if row else "forget") == state, (name, row)
        elif last is None:  # its begin was under way
            assert row is None or row.state == "running", (name, row)
        else:
            assert (row.state if row else "forget") in (state, "running"), (name, row)
        if row is not None:
            assert row.fingerprint == b"f" + key
            if row.state == "done":
                size = int(words[2]) * (4 if words[0] == "spool" else 1)
                assert row.answer is not None
                assert row.answer.headers == ((b"A", b"a", key),)
                assert row.answer.body == body(key, size)
    return len(confirmed)


@pytest.mark.parametrize("seed", range(3))
async def test_what_was_confirmed_survives(path: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    said: list[list[str]] = []
    ids = set()
    for turn in range(4):
        log = tmp_path / f"said-{turn}"
        with log.open("wb") as output:
            child = subprocess.Popen([sys.executable, "-c", CHILD, str(path), f"{seed}.{turn}"], stdout=output)  # noqa: ASYNC220
            try:
                deadline = time.monotonic() + 20
                while log.stat().st_size < 10_000:
                    assert child.poll() is None
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.005)
                await asyncio.sleep(chance.uniform(0, 0.5))
            finally:
                child.send_signal(signal.SIGKILL)
                child.wait()
        lines = log.read_text().split("\n")[:-1]
        said += [line.split() for line in lines]
        journal = await Journal.open(path)
        ids.add(journal.id)
        assert await check(journal, said) > 20 * (turn + 1), f"seed {seed}"
        await journal.close()
    assert len(ids) == 1
