"""The thread that reads, on a connection of its own: in WAL a reader never waits for the writer or its sync.

Each question is a transaction of its own, begun after it was asked: it sees every write that was confirmed before.
"""

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reach_sidecar.journal.file import reconnect

Question = Callable[[sqlite3.Connection], Any]


class Read:
    """A question, and its `answer` or the `error`."""

    __slots__ = ("answer", "error", "question", "settled")

    def __init__(self, question: Question, settled: asyncio.Future[Any]) -> None:
        self.question = question
        self.settled = settled
        self.answer: Any = None
        self.error: Exception | None = None


class Reader:
    """`put` and `stop` may be called from any thread; `settle` gets the answered ones in the reader's."""

    def __init__(self, path: Path, id_: bytes, settle: Callable[[list[Read]], None]) -> None:
        self._path = path
        self._id = id_
        self._settle = settle
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self._asked: queue.SimpleQueue[Read | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="reach-journal-read", daemon=True)
        self._thread.start()

    def put(self, read: Read) -> None:
        self._asked.put(read)

    def stop(self) -> None:
        """Once all that was asked is answered."""
        self._asked.put(None)

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        read = self._asked.get()
        while read is not None:
            self._answer(read)
            answered = [read]
            # Those that came meanwhile go back in one: waking the event loop costs more than the question.
            while not self._asked.empty() and len(answered) < 64:
                read = self._asked.get()
                if read is None:
                    break
                self._answer(read)
                answered.append(read)
            self._settle(answered)
            del answered
            if read is not None:
                read = self._asked.get()
        self._close()

    def _answer(self, read: Read) -> None:
        try:
            read.answer = read.question(self._connection())
        except Exception as error:
            read.error = error
            self._close()

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None and os.stat(self._path).st_ino != self._inode:
            raise OSError("the file was replaced by another one")
        if self._db is None:
            self._db = reconnect(self._path, self._id)
            self._inode = os.stat(self._path).st_ino
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            try:
                self._db.close()
            except sqlite3.Error:
                pass
            self._db = None
