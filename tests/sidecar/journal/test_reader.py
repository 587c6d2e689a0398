"""Reads: never behind the writer, and of the right file."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reach_sidecar.journal.file import open_file
from reach_sidecar.journal.reader import Question, Read, Reader


class Desk:
    def __init__(self, path: Path) -> None:
        opened = open_file(path)
        self.db = opened.db
        self.settled: list[list[Read]] = []
        self.more = threading.Semaphore(0)
        self.reader = Reader(path, opened.id, self.settle)

    def settle(self, group: list[Read]) -> None:
        self.settled.append(group)
        self.more.release()

    def wait(self, count: int) -> None:
        while sum(map(len, self.settled)) < count:
            assert self.more.acquire(timeout=20), f"not within 20 s: {count} settled"

    def ask(self, *questions: Question) -> list[Read]:
        before = sum(map(len, self.settled))
        reads = [Read(question, None) for question in questions]  # type: ignore[arg-type]
        for read in reads:
            self.reader.put(read)
        self.wait(before + len(reads))
        return reads


@pytest.fixture
def desk(path: Path) -> Iterator[Desk]:
    made = Desk(path)
    yield made
    made.reader.stop()
    made.reader.join()
    made.db.close()


def notes(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM note").fetchone()[0])


def add(db: sqlite3.Connection, key: int) -> None:
    db.execute("INSERT INTO note (key, agent, journal, caller, put_ms) VALUES (?, 'a', x'', 'me', 1)", (b"%d" % key,))


def test_it_sees_what_was_committed_and_does_not_wait_for_what_is_not(desk: Desk) -> None:
    for n in range(20):
        desk.db.execute("BEGIN IMMEDIATE")
        add(desk.db, n)
        assert desk.ask(notes)[0].answer == n
        desk.db.execute("COMMIT")
        assert desk.ask(notes)[0].answer == n + 1


def test_many_answers_go_back_together(desk: Desk) -> None:
    gate = threading.Event()

    def wait(db: sqlite3.Connection) -> bool:
        return gate.wait(10)

    reads = [Read(question, None) for question in (wait, *[notes] * 50)]  # type: ignore[arg-type]
    for read in reads:
        desk.reader.put(read)
    gate.set()
    desk.wait(51)
    assert len(desk.settled) <= 2
    assert [read.answer for read in reads] == [True, *[0] * 50]


def test_an_error_is_that_of_its_question(desk: Desk) -> None:
    def wrong(db: sqlite3.Connection) -> None:
        db.execute("BEGIN")
        db.execute("SELECT * FROM nothing")

    bad, good = desk.ask(wrong, notes)
    assert isinstance(bad.error, sqlite3.OperationalError)
    assert (good.answer, good.error) == (0, None)


def test_a_removed_file_is_not_read(desk: Desk, path: Path) -> None:
    assert desk.ask(notes)[0].answer == 0
    away = path.with_name("away.db")
    path.rename(away)
    assert [read.error is not None for read in desk.ask(notes, notes)] == [True, True]
    assert not path.exists()
    away.rename(path)
    assert desk.ask(notes)[0].answer == 0


def test_stop_answers_what_was_asked(path: Path) -> None:
    desk = Desk(path)
    reads = [Read(notes, None) for _ in range(10)]  # type: ignore[arg-type]
    for read in reads:
        desk.reader.put(read)
    desk.reader.stop()
    desk.reader.join()
    assert [read.answer for read in reads] == [0] * 10
    desk.db.close()
