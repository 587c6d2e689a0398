"""The table goes to disk soon after it changed, and now and then while it only grows older."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from reach_sidecar.membership.cache import CachedTable, save_table
from reach_sidecar.membership.controls import EventLog

SAVE_AFTER_S = 1.0
SAVE_AT_LEAST_EVERY_S = 600.0
SAVE_SHARE = 20
"""Writing may take 1/20 of the time: a table of 20,000 entries that changes all the time is written less often."""


class Saving:
    """`note()` after a change. `snapshot` gives what is to be written, `is_connected` whether control answers."""

    def __init__(self, path: Path, snapshot: Callable[[], CachedTable], is_connected: Callable[[], bool],
                 log: EventLog) -> None:
        self._path = path
        self._snapshot = snapshot
        self._is_connected = is_connected
        self._log = log
        self._dirty = asyncio.Event()
        self._trouble: str | None = None

    def note(self) -> None:
        """There is something new to write."""
        self._dirty.set()

    async def run(self) -> None:
        wait_s = SAVE_AFTER_S
        while True:
            try:
                async with asyncio.timeout(SAVE_AT_LEAST_EVERY_S):
                    await self._dirty.wait()
            except TimeoutError:
                if not self._is_connected():  # the table grows old, and the file must say so
                    continue
            await asyncio.sleep(wait_s)
            began = time.monotonic()
            await self._save()
            wait_s = max(SAVE_AFTER_S, SAVE_SHARE * (time.monotonic() - began))

    async def finish(self) -> None:
        """Write what has not been written yet."""
        if self._dirty.is_set():
            await self._save()

    async def _save(self) -> None:
        self._dirty.clear()
        try:
            await asyncio.to_thread(save_table, self._path, self._snapshot())
        except OSError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._log.event("warn", "table", status="not_saved",
                                detail=f"{error}: after a restart this sidecar routes only once control answers")
