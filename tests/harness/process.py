"""One real process of a test: its own process group, its log in a file, gone when the test is."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

START_S = 20.0  # far above what a start takes; a shared machine has bad moments
_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Even a test run that is killed hard leaves nothing behind (Linux: PR_SET_PDEATHSIG)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A started command. `ready` is the JSON it wrote to its ready file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        ready_file: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.ready_file = ready_file
        self.log_path = folder / f"{name}.log"
        self.ready: dict[str, Any] = {}
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
        with self.log_path.open("ab") as log:
            self.popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=dict(env) if env is not None else None,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def wait_ready(self, seconds: float = START_S) -> "Process":
        """Until the ready file is there and whole; raises with the log if the process ends before."""
        assert self.ready_file is not None, f"{self.name} has no ready file"
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError, ValueError):
                self.ready = json.loads(self.ready_file.read_text())
                return self
            if not self.running:
                code = self.popen.returncode
                raise AssertionError(f"{self.name} ended with {code} at its start:\n{self.log}")
            time.sleep(0.01)
        raise AssertionError(f"{self.name} was not ready after {seconds} s:\n{self.log}")

    def signal(self, number: signal.Signals) -> None:
        """To the process alone, as an operator's `kill` does."""
        self.popen.send_signal(number)

    def kill(self) -> None:
        """SIGKILL to the whole group, and reaped."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait(10)

    def terminate(self, seconds: float = 15.0) -> int:
        """SIGTERM; the exit code. A process that does not end in time is killed and fails the test."""
        self.signal(signal.SIGTERM)
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end {seconds} s after SIGTERM:\n{self.log}") from None

    def memory_kib(self, field: str = "VmRSS") -> int:
        """From /proc: `VmRSS` is now, `VmHWM` the highest so far."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
        raise AssertionError(f"{self.name} has no {field}")

    def reset_memory_peak(self) -> None:
        """VmHWM counts from here (Linux: clear_refs 5)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
