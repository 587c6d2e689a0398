"""How many function calls one call costs: exact where other programs make every timing on this machine doubtful.

The sidecars run under cProfile. Its times are distorted (many small functions look dearer than they are);
its counts are not.
"""

import pstats
from dataclasses import dataclass
from pathlib import Path

from bench import wrk
from bench.daemon import ROOT
from bench.measures import Rig
from bench.reach import COUNTS

MIN_PER_CALL = 0.4  # what start and stop call stays below
PLACES = (f"{ROOT}/", "site-packages/", "/lib/python3")


@dataclass(frozen=True)
class Row:
    function: str
    per_call: float
    self_us: float  # per call, as cProfile sees it


@dataclass(frozen=True)
class Counts:
    """Of one process: Python functions entered (a coroutine again at each resumption) and C functions, per call."""

    name: str
    python: float
    native: float
    rows: list[Row]


def take(rig: Rig, connections: int, seconds: int) -> list[Counts]:
    """Load the counted pair, end it, and read what it noted. Rare functions are left out."""
    pair = rig.pairs["pure"]
    load = wrk.run(pair.url("/process"), connections, seconds, rig.script)
    load.require_clean(pair.name)
    calls = load.calls + rig.warm_up_calls["pure"]
    for hop in pair.hops:
        hop.end()
    return [read(hop.name, hop.log.with_name(COUNTS), calls) for hop in pair.hops]


def read(name: str, file: Path, calls: int) -> Counts:
    """The profile in `file`, divided by `calls`, rare functions left out."""
    rows, python, native = [], 0.0, 0.0
    for (path, _, function), (_, count, own_s, _, _) in pstats.Stats(str(file)).stats.items():  # type: ignore[attr-defined]
        if count / calls < MIN_PER_CALL:
            continue
        if path == "~":
            native += count / calls
        else:
            python += count / calls
        rows.append(Row(_place(path, function), count / calls, own_s * 1e6 / calls))
    return Counts(name, python, native, sorted(rows, key=lambda row: -row.self_us))


def summary(counts: Counts, top: int) -> str:
    head = f"{counts.name}: {counts.python:.0f} Python and {counts.native:.0f} C functions per call"
    lines = [head, "  per call   self µs  function"]
    lines += [f"{row.per_call:10.2f} {row.self_us:9.1f}  {row.function}" for row in counts.rows[:top]]
    return "\n".join(lines) + "\n"


def _place(path: str, function: str) -> str:
    if path == "~":
        return function
    for place in PLACES:
        path = path.rpartition(place)[2]
    return f"{function} ({path})"
