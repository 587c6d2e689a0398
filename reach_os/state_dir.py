"""A daemon's state directory: where it is by default, made where missing, written by nobody else while the daemon runs.

The lock is the kernel's (`flock`), so it goes with the process however that ends: the next start needs no cleaning
up. The pid in the lock file only serves the message.
"""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

from reach_os.ports import describe_process


def state_home(env: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/reach`, by default `~/.local/state/reach`: what a user's daemons keep over a restart."""
    state, home = env.get("XDG_STATE_HOME"), env.get("HOME")
    return (Path(state) if state else (Path(home) if home else Path.home()) / ".local" / "state") / "reach"


def default_state_dir(of_root: str, name: str, env: Mapping[str, str], *, root: bool | None = None) -> str:
    """Where a daemon keeps its state when nothing says where: `of_root`, or `name` in the user's state directory.

    systemd sets $STATE_DIRECTORY (perhaps several), and that goes first. `root` (default: does this process run as
    root) decides between the other two.
    """
    if env.get("STATE_DIRECTORY"):
        return env["STATE_DIRECTORY"].split(":")[0]
    if root if root is not None else os.geteuid() == 0:
        return of_root
    return str(state_home(env) / name)


class StateDirError(Exception):
    """The directory cannot be used; the text says why and what to do."""


class StateDirTaken(StateDirError):
    """Another process has it: `pid`, where that can be seen."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        holder = f"pid {pid} ({describe_process(pid)})" if pid is not None else "another process"
        super().__init__(
            f"The state directory {folder} is in use by {holder}. "
            "Stop that process, or set `state_dir` to another directory: two processes cannot share one."
        )
        self.pid = pid


class StateDir:
    """A locked directory at `path`; `release()` gives it back (so does the end of the process)."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    def __enter__(self) -> "StateDir":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def lock_state_dir(path: str | Path) -> StateDir:
    """Make the directory (mode 0700) and lock it. Raises StateDirError, or its StateDirTaken."""
    folder = Path(path).expanduser()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateDirError(
            f"The state directory {folder} cannot be used: {error.strerror}. "
            "Make it writable for this user, or set `state_dir` to another directory."
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        pid = _holder(descriptor)
        os.close(descriptor)
        raise StateDirTaken(folder, pid) from None
    except OSError as error:
        os.close(descriptor)
        raise StateDirError(
            f"Cannot lock the state directory {folder}: {error.strerror}. "
            "Set `state_dir` to a directory on a local disk with free space."
        ) from error
    return StateDir(folder, descriptor)


def _holder(descriptor: int) -> int | None:
    try:
        return int(os.pread(descriptor, 32, 0))
    except (OSError, ValueError):
        return None
