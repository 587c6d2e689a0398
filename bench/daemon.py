"""One process under measurement: started, waited for, ended whatever happens."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

ROOT = Path(__file__).resolve().parent.parent
POLL_S = 0.002
READY_WITHIN_S = 20.0
END_WITHIN_S = 10.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)

T = TypeVar("T")


class BenchError(Exception):
    """Something that makes the measurement worthless; the text says what to do."""


class Daemon:
    """A child process with its own session (Ctrl-C reaches only the bench, which then ends its children).

    The kernel kills it when the bench itself is killed. Its output goes to `<directory>/<name>.log`.
    """

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.started_s = time.monotonic()
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **(env or {})},
                preexec_fn=_die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, look: Callable[[], T | None], what: str, within_s: float = READY_WITHIN_S) -> T:
        """The first answer of `look` that is not None. Raises BenchError with the end of the log otherwise."""
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            found = look()
            if found is not None:
                return found
            if self.process.poll() is not None:
                raise BenchError(f"{self.name} ended with {self.process.returncode} before {what}:\n{self.tail()}")
            time.sleep(POLL_S)
        raise BenchError(f"{self.name}: not {what} within {within_s:g} s:\n{self.tail()}")

    @property
    def logged_bytes(self) -> int:
        return self.log.stat().st_size

    def tail(self, lines: int = 15) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:]) or "(it said nothing)"

    def ask_to_end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()

    def end(self) -> None:
        if self.process.poll() is None:
            self.ask_to_end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_WITHIN_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def ask_all_to_end(daemons: Iterable[Daemon]) -> None:
    for daemon in daemons:
        daemon.ask_to_end()


def python_module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package with this interpreter."""
    return [sys.executable, "-m", name, *arguments]


def read_json(file: Path) -> dict[str, Any] | None:
    """The object in `file`, None while it is missing or half written."""
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return found


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
