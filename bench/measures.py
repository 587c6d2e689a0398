"""What is measured: each measure takes one sample of one system, `rounds.interleave` decides when."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench import accounting, footprint, stream, wrk
from bench.daemon import ROOT, BenchError, python_module
from bench.pair import Pair

Sample = dict[str, float]
OPEN_LOOP_RATE = 500
OPEN_LOOP_CONNECTIONS = 16
SYSTEMS = ("direct", "envoy", "reach")


@dataclass
class Rig:
    """Everything that runs: the systems by name, where the control node is, and how long to load."""

    agent: str
    control: str | None
    pairs: dict[str, Pair]
    directory: Path
    seconds: float
    script: Path = field(init=False)

    def __post_init__(self) -> None:
        self.script = wrk.write_script(self.directory)


@dataclass(frozen=True)
class Measure:
    """`take` samples one system of the rig; `share` of the asked rounds is enough where little varies."""

    name: str
    take: Callable[[Rig, str], Sample]
    systems: tuple[str, ...] = SYSTEMS
    share: float = 1.0


def _closed_loop(connections: int) -> Callable[[Rig, str], Sample]:
    def take(rig: Rig, system: str) -> Sample:
        pair = rig.pairs[system]
        booked = accounting.cpu_ns_of(pair.pids)
        load = wrk.run(pair.url("/process"), connections, rig.seconds, rig.script)
        booked = accounting.cpu_ns_of(pair.pids) - booked
        load.require_clean(system)
        sample = {"calls_per_s": load.calls_per_s, "p50_ms": load.p50_ms, "p99_ms": load.p99_ms}
        if pair.hops:
            sample["cpu_us"] = booked / 1000 / load.calls / len(pair.hops)
        return sample

    return take


def _open_loop(rig: Rig, system: str) -> Sample:
    pair = rig.pairs[system]
    shape = (str(OPEN_LOOP_RATE), str(rig.seconds), str(OPEN_LOOP_CONNECTIONS))
    command = python_module("bench.load", pair.address, f"{pair.prefix}/process", *shape)
    booked = accounting.cpu_ns_of(pair.pids)
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=rig.seconds + 60, check=False
    )
    booked = accounting.cpu_ns_of(pair.pids) - booked
    if done.returncode:
        raise BenchError(f"the open-loop load on {system} failed:\n{done.stderr.strip()}")
    load = wrk.Load(**json.loads(done.stdout))
    load.require_clean(system)
    sample = {"p50_ms": load.p50_ms, "p99_ms": load.p99_ms}
    if pair.hops:
        sample["cpu_us"] = booked / 1000 / load.calls / len(pair.hops)
    return sample


def _first_chunk(rig: Rig, system: str) -> Sample:
    return {"first_chunk_ms": stream.first_chunk_ms(rig.pairs[system])}


def _bulk(rig: Rig, system: str) -> Sample:
    down, down_speed = stream.extra_memory_mib(rig.pairs[system], stream.download)
    up, up_speed = stream.extra_memory_mib(rig.pairs[system], stream.upload)
    return {"down_mib": down, "up_mib": up, "down_mib_per_s": down_speed, "up_mib_per_s": up_speed}


def _footprint(rig: Rig, system: str) -> Sample:
    control = rig.control if system == "reach" else None
    return footprint.measure(system, rig.agent, control, rig.directory)


MEASURES = (
    Measure("footprint", _footprint, systems=("envoy", "reach"), share=0.6),
    Measure("stream", _first_chunk),
    Measure("bulk", _bulk, systems=("envoy", "reach"), share=0.4),
    Measure("closed1", _closed_loop(1)),
    Measure("open500", _open_loop),
    Measure("closed16", _closed_loop(16)),
)
