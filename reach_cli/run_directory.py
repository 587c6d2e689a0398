"""The run directory: a JSON note per running daemon of this machine, so that verbs find it untold.

`$REACH_RUN_DIR`, else `$XDG_RUNTIME_DIR/reach`, else `~/.local/state/reach/run`. A note is the ready line of
the daemon (`{"pid", "outbound", "mesh", "admin"}` or `{"pid", "api", "admin"}`) with `kind`, `id`, `started`.
A daemon that was killed leaves its note behind; whoever reads next removes it. A process id alone does not
prove life, since the system reuses them: the note also says when that process was started.
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from reach_os.state_dir import state_home

Note = dict[str, Any]


def run_directory(env: Mapping[str, str] | None = None) -> Path:
    """Where notes lie; it need not exist."""
    env = os.environ if env is None else env
    if chosen := env.get("REACH_RUN_DIR"):
        return Path(chosen)
    if runtime := env.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "reach"
    return state_home(env) / "run"


def start_of(pid: int) -> str | None:
    """When process `pid` was started, as the system writes it; None if it does not live (or is a zombie)."""
    try:
        # The command's name may contain spaces and parentheses; the fields we want follow the last one.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        pass
    if sys.platform.startswith("linux"):
        return None
    import subprocess  # late: a daemon on Linux never needs it

    answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
    return answer.stdout.strip() or None


def note(kind: str, identity: str, ready: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Path:
    """Write the note of this process; `ready` is its ready line. OSError if that cannot be written."""
    directory = run_directory(env)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    pid = int(ready.get("pid", os.getpid()))
    record = {**ready, "pid": pid, "kind": kind, "id": identity, "started": start_of(pid)}
    target = directory / f"{kind}-{re.sub(r'[^A-Za-z0-9._-]', '_', identity)}.json"
    temporary = directory / f".{target.name}.{os.getpid()}"
    # 0600 from the start, and the rename makes the note appear whole or not at all.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(record, file)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return target


def forget(path: Path) -> None:
    """Remove a note of this process; one that another process has since replaced stays."""
    record = _read(path)
    if record is not None and record["pid"] == os.getpid():
        with suppress(OSError):
            path.unlink()


def notes(kind: str | None = None, env: Mapping[str, str] | None = None) -> list[Note]:
    """The notes of daemons that live, in order of their names; those of dead ones are removed."""
    alive: list[Note] = []
    try:
        paths = sorted(run_directory(env).glob("*.json"))
    except OSError:
        return alive
    for path in paths:
        record = _read(path)
        if record is not None and start_of(record["pid"]) == record["started"] is not None:
            if kind in (None, record["kind"]):
                alive.append(record)
        # An unreadable note may be another user's; only what is ours and dead is removed.
        elif record is not None:
            with suppress(OSError):
                path.unlink()
    return alive


def _read(path: Path) -> Note | None:
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    whole = isinstance(record, dict) and isinstance(record.get("pid"), int)
    return record if whole and {"kind", "id", "started", "admin"} <= record.keys() else None
