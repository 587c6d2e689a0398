"""What agents really did, by the ledgers that tests/harness/agents/ledger.py keeps."""

from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    call: str
    at: float  # monotonic seconds; the clock is the same in all processes of a machine
    agent: str
    key: str
    attempt: str


def read_ledger(path: Path, agent: str) -> list[Run]:
    """The runs of one agent, oldest first. A last line that a kill cut off is none: the work begins behind its fsync."""
    runs = []
    if path.exists():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                call, ns, _, key, attempt = line.split()
                runs.append(Run(call, int(ns) / 1e9, agent, key, attempt))
    return runs
