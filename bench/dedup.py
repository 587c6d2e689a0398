"""What it costs to deliver each call once: the same pair with each kind of `dedup`, seconds apart.

Keys that sidecars make and keys that callers give differ. A made one is remembered for 30 s. One of the caller's own
stays for ten minutes, and where running twice would do harm (`durable`, not idempotent) the calling sidecar notes on
disk which agent it went to before it sends anything.
"""

import statistics
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bench import accounting, reach, wrk
from bench.pair import Pair

SAMPLE_S = 1.0
CONNECTIONS = 16
CONCURRENT = (1, 100)
WITH_DEADLINE = {"Reach-Timeout": "30s"}
_turns = count()


class Variant(NamedTuple):
    name: str
    dedup: str
    own_keys: bool = False
    headers: Mapping[str, str] | None = None


CPU = (
    Variant("off", "off"),
    Variant("made", "memory"),
    Variant("own", "memory", own_keys=True),
    Variant("deadline", "memory", headers=WITH_DEADLINE),
)
LATENCY = (Variant("memory", "memory"), Variant("made", "durable"), Variant("own", "durable", own_keys=True))


def of_envoy(pair: Pair, script: Path) -> dict[str, float]:
    """Envoy has nothing of this: what a call costs it stands beside each variant."""
    taken = statistics.fmean(_cpu_us(pair, script))
    return {f"{variant.name}_us": taken for variant in CPU}


def cpu(pairs: Mapping[str, Pair], directory: Path) -> dict[str, float]:
    """{<variant>_us: CPU per call and hop; made_adds_us, own_adds_us: per call, beyond `off`, at the called side, which
    is where it is done; deadline_adds_us: what a deadline that the caller sets adds at both}."""
    found = {variant.name: _cpu_us(pairs[variant.dedup], _script(variant, directory)) for variant in _in_turn(CPU)}
    adds = {
        "made_adds_us": found["made"][-1] - found["off"][-1],
        "own_adds_us": found["own"][-1] - found["off"][-1],
        "deadline_adds_us": sum(found["deadline"]) - sum(found["made"]),
    }
    return {f"{name}_us": statistics.fmean(us) for name, us in found.items()} | adds


def latency(pairs: Mapping[str, Pair], directory: Path) -> dict[str, float]:
    """For 1 and 100 calls at once: {<variant><number>_p50_ms, _p99_ms; made and own ones also _adds_p50_ms and
    _adds_p99_ms, beyond `memory`, and _commits: transactions on disk per call, at both sidecars}."""
    found: dict[str, float] = {}
    for number in CONCURRENT:
        for variant in _in_turn(LATENCY):
            pair, name = pairs[variant.dedup], f"{variant.name}{number}"
            before = _commits(pair, directory)
            load = wrk.run(pair.url("/process"), number, SAMPLE_S, _script(variant, directory))
            load.require_clean(f"{pair.name}, {variant.dedup}")
            found |= {f"{name}_p50_ms": load.p50_ms, f"{name}_p99_ms": load.p99_ms}
            found[f"{name}_commits"] = (_commits(pair, directory) - before) / load.calls
        for name in (f"made{number}", f"own{number}"):
            for tail in ("p50_ms", "p99_ms"):
                found[f"{name}_adds_{tail}"] = found[f"{name}_{tail}"] - found[f"memory{number}_{tail}"]
    return found


def warm_up(pairs: Mapping[str, Pair], directory: Path) -> None:
    """Each store is open and each way was gone before anything counts."""
    for variant in (CPU[0], CPU[2], LATENCY[2]):
        load = wrk.run(pairs[variant.dedup].url("/process"), CONNECTIONS, 1, _script(variant, directory))
        load.require_clean(f"{variant.dedup}, warming up")


def _in_turn(variants: Iterable[Variant]) -> list[Variant]:
    """Forwards, then backwards, so that a drift cancels out."""
    return list(variants)[:: 1 if next(_turns) % 2 == 0 else -1]


def _script(variant: Variant, directory: Path) -> Path:
    return wrk.write_script(
        directory, name=f"call-{variant.name}", headers=variant.headers, own_keys=variant.own_keys
    )  # fmt: skip


def _cpu_us(pair: Pair, script: Path) -> list[float]:
    """Per call, of each hop."""
    before = [accounting.cpu_ns(pid) for pid in pair.pids]
    load = wrk.run(pair.url("/process"), CONNECTIONS, SAMPLE_S, script)
    booked = [accounting.cpu_ns(pid) - earlier for pid, earlier in zip(pair.pids, before, strict=True)]
    load.require_clean(pair.name)
    return [ns / 1000 / load.calls for ns in booked]


def _commits(pair: Pair, directory: Path) -> int:
    return sum(reach.commits(hop, directory) for hop in pair.hops)
