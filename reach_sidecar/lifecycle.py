"""A sidecar as a process: start, say so, run until told to stop, stop cleanly."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from reach_os.ports import PortError
from reach_os.ready_file import Ready, forget_ready_file, write_ready_file
from reach_os.state_dir import StateDirError
from reach_os.watch import Watch
from reach_sidecar.app import InsecureListener, Sidecar
from reach_sidecar.config import SidecarConfig
from reach_sidecar.journal.database import JournalError
from reach_sidecar.reload import reread

OK, FAILED = 0, 1
DOORS = ("outbound", "mesh", "admin", "probe")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(config: SidecarConfig, ready_file: Path | None = None, on_ready: Callable[[Ready], None] | None = None,
        config_file: Path | None = None) -> int:
    """Run one sidecar until SIGTERM or SIGINT.

    SIGTERM drains: peers are told, and what they still send is served for `drain.wait`. SIGINT and a second signal skip
    that wait; one more ends the process at once.
    `config_file` is read again at SIGHUP and when it changes. The exit code: 0 after a clean stop, 1 if it could not
    start.
    """
    return uvloop.run(serve(config, ready_file, on_ready, config_file))


async def serve(config: SidecarConfig, ready_file: Path | None = None,
                on_ready: Callable[[Ready], None] | None = None, config_file: Path | None = None) -> int:
    sidecar = Sidecar(config)
    told = Told()
    watch = Watch(config_file)
    try:
        addresses = await sidecar.start()
    except (PortError, StateDirError, InsecureListener, JournalError) as error:
        print(f"reach sidecar: {error}", file=sys.stderr, flush=True)
        return FAILED
    try:
        _announce(sidecar, {"pid": os.getpid(), **addresses}, ready_file, on_ready)
        watch.start(lambda: reread(sidecar, config_file))
        # what start-up left behind is not garbage: full collections need not look at it again
        gc.collect()
        gc.freeze()
        await _first(told.stop.wait(), sidecar.wait_for_stop())
        await sidecar.drain(told.hurry)
    except OSError as error:
        print(f"reach sidecar: Cannot say that it is ready: {error}.", file=sys.stderr, flush=True)
        return FAILED
    finally:
        told.no_more()
        await watch.stop()
        await sidecar.stop()
        if ready_file is not None:
            forget_ready_file(ready_file)
    return OK


def _announce(sidecar: Sidecar, ready: Ready, ready_file: Path | None,
              on_ready: Callable[[Ready], None] | None) -> None:
    """The file first: who reads the line may rely on it. Raises OSError where it cannot be written."""
    if ready_file is not None:
        write_ready_file(ready_file, ready)
    listening = ", ".join(f"{door} {ready[door]}" for door in DOORS if door in ready)
    print(f"reach sidecar {sidecar.local.agent_id} ready: {listening}", flush=True)
    if on_ready is not None:
        on_ready(ready)


class Told:
    """What signals ask for: to `stop`, and to `hurry` with it."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            self._loop.add_signal_handler(number, self._hear, number)

    def no_more(self) -> None:
        """From now on a signal ends the process at once."""
        for number in STOP_SIGNALS:
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    def _hear(self, number: signal.Signals) -> None:
        if self.hurry.is_set():
            self.no_more()
            signal.raise_signal(number)
        if self.stop.is_set() or number == signal.SIGINT:
            self.hurry.set()
        self.stop.set()


async def _first(*waits: Any) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
