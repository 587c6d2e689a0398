"""From the first line of a control node's life to its exit code: loop, signals, the ready line and file."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from reach_control.app import Control
from reach_control.config import ControlConfig
from reach_control.identity.keyfile import KeyFileError
from reach_control.journal.snapshot import SnapshotError
from reach_control.reload import reread
from reach_os.ports import PortError
from reach_os.ready_file import Ready, forget_ready_file, write_ready_file
from reach_os.state_dir import StateDirError
from reach_os.watch import Watch

OK, FAILED = 0, 1


def run(config: ControlConfig, ready_file: Path | None = None, on_ready: Callable[[Ready], None] | None = None,
        config_file: Path | None = None) -> int:
    """Run one control node until SIGTERM or SIGINT; a second signal ends it at once.

    `config_file` is read again at SIGHUP and when it changes. The exit code: 0 after a clean stop, 1 if it could not
    start.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, ready_file, on_ready, config_file))


async def _serve(config: ControlConfig, ready_file: Path | None, on_ready: Callable[[Ready], None] | None,
                 config_file: Path | None) -> int:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _end, loop, ended)
    control = Control(config)
    watch = Watch(config_file)
    try:
        addresses = await control.start()
    except (PortError, StateDirError, SnapshotError, KeyFileError) as error:
        print(f"reach control: {error}", file=sys.stderr, flush=True)
        return FAILED
    try:
        ready = {"pid": os.getpid(), **addresses}
        if ready_file is not None:
            write_ready_file(ready_file, ready)
        listening = ", ".join(f"{name} {address}" for name, address in addresses.items())
        print(f"reach control ready: {listening}", flush=True)
        if on_ready is not None:
            on_ready(ready)
        watch.start(lambda: reread(control, config_file))
        await ended.wait()
    except OSError as error:
        print(f"reach control: Cannot say that it is ready: {error}.", file=sys.stderr, flush=True)
        return FAILED
    finally:
        await watch.stop()
        await control.stop()
        if ready_file is not None:
            forget_ready_file(ready_file)
    return OK


def _end(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    ended.set()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
