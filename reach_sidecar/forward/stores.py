"""The sidecar's two memories of calls, for both sides of a call: what ran here, and where keys of its agent went.

The one on disk is opened when a capability that is `durable` first asks for it: most sidecars never do.
"""

import asyncio
import contextlib
import time
from pathlib import Path

from reach_sidecar.config_sections import DedupConfig
from reach_sidecar.forward.failure import Refusal
from reach_sidecar.forward.run import Store
from reach_sidecar.journal.database import Journal, JournalError, StoreUnavailable
from reach_sidecar.journal.memory import EXPIRED_AT_ONCE, Memory
from reach_sidecar.journal.notes import Notes
from reach_sidecar.journal.runs import Runs


class Stores:
    """`path` is the file on disk."""

    def __init__(self, path: Path, config: DedupConfig) -> None:
        self._path = path
        self._existed = path.exists()  # an earlier life may have left notes
        self._config = config
        memory = Memory(max_bytes=config.memory, keep_s=config.keep)
        self.memory = Store(memory.id, memory, None)
        self._journal: Journal | None = None
        self._durable: Store | None = None
        self._notes: Notes | None = None
        self._opening = asyncio.Lock()

    @property
    def memory_bytes(self) -> int:
        return self.memory.memory.bytes if self.memory.memory is not None else 0

    @property
    def is_open(self) -> bool:
        """May there be anything on disk?"""
        return self._notes is not None or self._existed

    async def durable(self) -> Store:
        """What ran here, on disk. Raises Refusal where it cannot be opened."""
        if self._durable is None:
            await self._open_or_refuse()
        assert self._durable is not None
        return self._durable

    async def notes(self) -> Notes:
        """Which agent a key went to. Raises Refusal where it cannot be opened."""
        if self._notes is None:
            await self._open_or_refuse()
        assert self._notes is not None
        return self._notes

    async def open(self) -> None:
        """Raises JournalError, with a sentence that says what to do."""
        async with self._opening:
            if self._journal is None:
                journal = self._journal = await Journal.open(self._path)
                runs = Runs(journal, keep_s=self._config.keep_durable)
                self._durable = Store(journal.id, None, runs)
                notes = Notes(journal, keep_s=self._config.keep_durable)
                with contextlib.suppress(StoreUnavailable):  # then each key is asked for on disk
                    await notes.learn()
                self._notes = notes

    async def _open_or_refuse(self) -> None:
        try:
            await self.open()
        except JournalError as error:
            raise Refusal("store_unavailable", str(error)) from None

    async def expire(self) -> None:
        """Remove what has been kept long enough; once a minute. What cannot be written now is tried the next time."""
        memory = self.memory.memory
        while memory is not None and not memory.expire(asyncio.get_running_loop().time(), at_most=EXPIRED_AT_ONCE):
            await asyncio.sleep(0)  # calls go on meanwhile
        if self._durable is None or self._durable.runs is None or self._notes is None:
            return
        now_ms = time.time_ns() // 1_000_000
        try:
            await self._durable.runs.expire(now_ms)
            await self._notes.expire(now_ms)
        except StoreUnavailable:
            pass

    async def close(self) -> None:
        if self._durable is not None:
            await self._durable.settle()
        if self._journal is not None:
            await self._journal.close()
