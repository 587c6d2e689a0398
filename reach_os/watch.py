"""When to read a configuration file again: at SIGHUP, and when the file has become another one.

The file is looked at once a second rather than watched: that works for every file system, for editors that rename and
for the links that Kubernetes exchanges. A file that is being written is left alone until it is the same twice.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

POLL_S = 1.0

Stamp = tuple[int, int, int, int]


class Watch:
    """Awaits `reread` each time the configuration has to be read again. `path` None: only at SIGHUP.

    Made at the start of a daemon, because a SIGHUP that finds no handler ends the process.
    """

    def __init__(self, path: Path | None, *, poll_s: float = POLL_S) -> None:
        self._path = path
        self._poll_s = poll_s
        self._told = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stamp = self._look()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._told.set)

    def start(self, reread: Callable[[], Awaitable[None]]) -> None:
        self._task = asyncio.create_task(self._run(reread), name="configuration watch")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, reread: Callable[[], Awaitable[None]]) -> None:
        seen = self._stamp
        while True:
            try:
                async with asyncio.timeout(self._poll_s):
                    await self._told.wait()
            except TimeoutError:
                last, seen = seen, self._look()
                if seen != last or seen in (None, self._stamp):
                    continue
            self._told.clear()
            seen = self._stamp = self._look()
            await reread()

    def _look(self) -> Stamp | None:
        """What tells two states of the file apart; None where there is none."""
        if self._path is None:
            return None
        try:
            seen = os.stat(self._path)
        except OSError:
            return None
        return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns
