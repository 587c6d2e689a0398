"""The file by which a daemon says that it is ready, and where it listens."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

Ready = Mapping[str, Any]
"""What it holds: `pid`, and `host:port` of each listener under its name."""


def write_ready_file(path: Path, ready: Ready) -> None:
    """Whoever waits for the file finds it whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(orjson.dumps(ready) + b"\n")
    part.replace(path)


def forget_ready_file(path: Path) -> None:
    """Remove it, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
