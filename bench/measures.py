"""What is measured: each measure takes one sample of one system, `rounds.interleave` decides when."""

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path

from bench import accounting, dedup, fan, fleet, footprint, reach, stream, wrk
from bench.daemon import BenchError
from bench.offer import offer
from bench.pair import Pair

Sample = dict[str, float]
OPEN_LOOP_RATE = 500
OPEN_LOOP_CONNECTIONS = 16
BUILDS = ("compiled", "pure")  # of Reach; targets are judged on the first of them that runs
SYSTEMS = ("direct", "envoy", *BUILDS)
JUDGED = ("direct", "envoy", "compiled")


@dataclass
class Rig:
    """Everything that runs: the systems by name, where the control node is, and how long to load."""

    agent: str
    control: str | None
    pairs: dict[str, Pair]
    directory: Path
    seconds: float
    variants: dict[str, dict[str, Pair]] = field(default_factory=dict)  # build -> kind of dedup -> pair
    warm_up_calls: Counter[str] = field(default_factory=Counter)
    script: Path = field(init=False)

    def __post_init__(self) -> None:
        self.script = wrk.write_script(self.directory)


@dataclass(frozen=True)
class Measure:
    """`take` samples one system of the rig; a `share` of the asked rounds is enough where little varies.

    Where `systems` holds only the compiled build, the pure one takes its place when there is no compiled one.
    """

    name: str
    take: Callable[[Rig, str], Sample]
    systems: tuple[str, ...] = SYSTEMS
    share: float = 1.0
    slow: bool = False  # not in a quick run
    variants: bool = False  # needs the rig's

    def among(self, running: Container[str]) -> tuple[str, ...]:
        """Those of its systems that run, in the order of SYSTEMS."""
        stand_in = "compiled" if "compiled" in running else "pure"
        wanted = {stand_in if name == "compiled" else name for name in self.systems}
        return tuple(name for name in SYSTEMS if name in wanted and name in running)


def _closed_loop(connections: int) -> Callable[[Rig, str], Sample]:
    def take(rig: Rig, system: str) -> Sample:
        pair = rig.pairs[system]
        logged = [hop.logged_bytes for hop in pair.hops]
        before = [accounting.cpu_ns(pid) for pid in pair.pids]
        load = wrk.run(pair.url("/process"), connections, rig.seconds, rig.script)
        booked = [accounting.cpu_ns(pid) - earlier for pid, earlier in zip(pair.pids, before, strict=True)]
        load.require_clean(system)
        if system in BUILDS:
            for hop, earlier in zip(pair.hops, logged, strict=True):
                reach.require_logged(hop, earlier, load.calls)
        sample = {"calls_per_s": load.calls_per_s, "p50_ms": load.p50_ms, "p99_ms": load.p99_ms}
        return sample | _cpu(booked, load.calls)

    return take


def _open_loop(rig: Rig, system: str) -> Sample:
    pair = rig.pairs[system]
    before = [accounting.cpu_ns(pid) for pid in pair.pids]
    found = offer(pair.address, f"{pair.prefix}/process", OPEN_LOOP_RATE, rig.seconds, OPEN_LOOP_CONNECTIONS)
    booked = [accounting.cpu_ns(pid) - earlier for pid, earlier in zip(pair.pids, before, strict=True)]
    if found["lost"]:
        raise BenchError(f"{system} lost calls at {OPEN_LOOP_RATE} calls/s: {found['answers']}")
    return {"p50_ms": found["p50_ms"], "p99_ms": found["p99_ms"]} | _cpu(booked, found["calls"])


def _cpu(booked_ns: list[int], calls: int) -> Sample:
    """µs per call: the mean of the hops, and each hop from the caller on. Nothing for direct calls."""
    each = [ns / 1000 / calls for ns in booked_ns]
    hops = {f"cpu_hop{number}_us": us for number, us in enumerate(each, 1)}
    return {"cpu_us": sum(each) / len(each), **hops} if each else {}


def _fleet(rig: Rig, system: str) -> Sample:
    assert rig.control is not None
    return fleet.measure(system, rig.agent, rig.control, rig.directory)


def _fan(rig: Rig, system: str) -> Sample:
    assert rig.control is not None
    return fan.measure(system, rig.agent, rig.control, rig.directory, rig.script)


def _dedup(rig: Rig, system: str) -> Sample:
    if system in BUILDS:
        return dedup.cpu(rig.variants[system], rig.directory)
    return dedup.of_envoy(rig.pairs[system], rig.script)


def _durable(rig: Rig, system: str) -> Sample:
    return dedup.latency(rig.variants[system], rig.directory)


def _first_chunk(rig: Rig, system: str) -> Sample:
    return {"first_chunk_ms": stream.first_chunk_ms(rig.pairs[system])}


def _bulk(rig: Rig, system: str) -> Sample:
    down, down_speed = stream.extra_memory_mib(rig.pairs[system], stream.download)
    up, up_speed = stream.extra_memory_mib(rig.pairs[system], stream.upload)
    return {"down_mib": down, "up_mib": up, "down_mib_per_s": down_speed, "up_mib_per_s": up_speed}


def _footprint(rig: Rig, system: str) -> Sample:
    control = rig.control if system in BUILDS else None
    return footprint.measure(system, rig.agent, control, rig.directory)


MEASURES = (
    Measure("footprint", _footprint, systems=("envoy", *BUILDS), share=0.6),
    Measure("stream", _first_chunk, systems=JUDGED),
    Measure("bulk", _bulk, systems=("envoy", "compiled"), share=0.4),
    Measure("closed1", _closed_loop(1)),
    Measure("open500", _open_loop),
    Measure("closed16", _closed_loop(16)),
    Measure("dedup", _dedup, systems=("envoy", *BUILDS), share=0.8, slow=True, variants=True),
    Measure("durable", _durable, systems=("compiled",), share=0.6, slow=True, variants=True),
    Measure("fan", _fan, systems=("compiled",), share=0.2, slow=True),
    Measure("fleet", _fleet, systems=("compiled",), share=0.2, slow=True),
)
