"""Starts the open-loop load in a process of its own."""

import json
import subprocess
from typing import Any

from bench.daemon import ROOT, BenchError, python_module


def offer(
    address: str, path: str, rate: int, seconds: float, connections: int, cold: bool = False
) -> dict[str, Any]:
    """Result of `bench.load` (its `Sender.result`). Raises BenchError when it could not even start."""
    shape = [str(rate), str(seconds), str(connections), *(["cold"] if cold else [])]
    done = subprocess.run(
        python_module("bench.load", address, path, *shape),
        cwd=ROOT, capture_output=True, text=True, timeout=seconds + 120, check=False,
    )  # fmt: skip
    if done.returncode:
        raise BenchError(f"the open-loop load on {address} failed:\n{done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
