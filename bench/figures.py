"""From samples to the figures that have targets."""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass

from bench import fan
from bench.measures import BUILDS
from bench.rounds import Samples

Aggregate = Callable[[list[float]], float]


@dataclass(frozen=True)
class Figure:
    """A row of the table: which metric of which measure, and what it should be.

    `added`: what the system adds to calling the agent directly. `ratio_at_most` bounds Reach / Envoy,
    `at_most` and `at_least` bound Reach's own value. Without any of them the row is there for information. Reach is
    the compiled build, or pure Python where there is no other.
    """

    key: str
    title: str
    unit: str
    measure: str
    metric: str
    added: bool = False
    ratio_at_most: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    over_rounds: Aggregate = statistics.median
    compared: bool = True  # no ratio where Envoy's figure is next to nothing

    @property
    def target(self) -> str:
        if self.ratio_at_most is not None:
            return f"≤ {self.ratio_at_most:g} × Envoy"
        if self.at_most is not None:
            return f"≤ {self.at_most:g} {self.unit}"
        if self.at_least is not None:
            return f"≥ {self.at_least:,g} {self.unit}"
        return ""


FAN_AT_MOST = 1.05  # of the ideal, which is three waves of work without anything around it


def _durable(keys: str, number: int) -> tuple[Figure, ...]:
    """What `dedup: durable` adds to `memory`, with `number` calls at once."""
    whose = {"made": "made keys", "own": "callers' own keys"}[keys]
    metric = f"{keys}{number}"
    return (
        Figure(f"durable_{metric}_p50", f"durable adds, {number} at once, {whose}, p50", "ms", "durable",
               f"{metric}_adds_p50_ms"),
        Figure(f"durable_{metric}_p99", f"durable adds, {number} at once, {whose}, p99", "ms", "durable",
               f"{metric}_adds_p99_ms"),
        Figure(f"durable_{metric}_commits", "the same: transactions on disk per call", "", "durable",
               f"{metric}_commits"),
    )  # fmt: skip


FIGURES = (
    Figure("cpu16", "CPU per call and hop, 16 connections", "µs", "closed16", "cpu_us", ratio_at_most=0.75),
    Figure("cpu1", "CPU per call and hop, 1 connection", "µs", "closed1", "cpu_us"),
    Figure("cpu500", "CPU per call and hop, 500 calls/s", "µs", "open500", "cpu_us"),
    Figure("latency1_p50", "latency, 1 connection, p50", "ms", "closed1", "p50_ms", ratio_at_most=1.0),
    Figure("latency1_p99", "latency, 1 connection, p99", "ms", "closed1", "p99_ms", ratio_at_most=1.2),
    Figure("added1_p50", "added latency, 1 connection, p50", "ms", "closed1", "p50_ms", added=True),
    Figure("added1_p99", "added latency, 1 connection, p99", "ms", "closed1", "p99_ms", added=True),
    Figure("added16_p50", "added latency, 16 connections, p50", "ms", "closed16", "p50_ms", added=True),
    Figure("added16_p99", "added latency, 16 connections, p99", "ms", "closed16", "p99_ms", added=True),
    Figure(
        "added500_p50", "added latency, 500 calls/s, p50", "ms", "open500", "p50_ms", added=True, ratio_at_most=1.0
    ),
    Figure(
        "added500_p99", "added latency, 500 calls/s, p99", "ms", "open500", "p99_ms", added=True, ratio_at_most=1.2
    ),
    Figure(
        "throughput", "echo through the pair, 16 connections", "calls/s", "closed16", "calls_per_s", at_least=3800
    ),
    Figure(
        "throughput_p99", "latency at that load, 16 connections, p99", "ms", "closed16", "p99_ms", ratio_at_most=1.0
    ),
    Figure(
        "first_chunk", "first chunk of a stream, later than direct", "ms", "stream", "first_chunk_ms",
        added=True, at_most=2,
    ),
    Figure(
        "down", "1 GiB answer streamed, extra memory", "MiB", "bulk", "down_mib",
        at_most=16, over_rounds=max, compared=False,
    ),
    Figure(
        "up", "1 GiB request streamed, extra memory", "MiB", "bulk", "up_mib",
        at_most=16, over_rounds=max, compared=False,
    ),
    Figure("down_speed", "1 GiB answer streamed, speed", "MiB/s", "bulk", "down_mib_per_s"),
    Figure("up_speed", "1 GiB request streamed, speed", "MiB/s", "bulk", "up_mib_per_s"),
    Figure("dedup_off", "CPU per call and hop, 16 connections, dedup off", "µs", "dedup", "off_us"),
    Figure("dedup_made", "the same, dedup in memory", "µs", "dedup", "made_us"),
    Figure("dedup_own", "the same, and callers bring their own keys", "µs", "dedup", "own_us"),
    Figure("adds_made", "dedup in memory adds at the called side, CPU per call", "µs", "dedup", "made_adds_us"),
    Figure("adds_own", "the same where callers bring their own keys", "µs", "dedup", "own_adds_us"),
    Figure("adds_deadline", "a caller's own deadline adds, CPU per call", "µs", "dedup", "deadline_adds_us"),
    *(figure for number in (1, 100) for keys in ("made", "own") for figure in _durable(keys, number)),
    Figure(
        "fan_total", "100 × 0.4 s at once for 10 agents × 4: all done", "s", "fan", "total_s",
        at_most=round(FAN_AT_MOST * fan.IDEAL_S, 3),
    ),
    Figure("fan_worst", "the same: the worst round", "s", "fan", "worst_s"),
    Figure("fan_fullest", "the same: the most that one agent got", "%", "fan", "fullest_percent"),
    Figure("adds_pick", "10 agents to pick from, not 1, add at the caller, CPU per call", "µs", "fan", "pick_us"),
    Figure("fleet_lost", "100 agents × 3 s, 1,000 calls/s: lost", "calls", "fleet", "lost", at_most=0),
    Figure("fleet_p95", "the same: p95 beyond the work", "ms", "fleet", "p95_overhead_ms", at_most=50),
    Figure("fleet_share", "the same: mean share of the whole", "%", "fleet", "overhead_percent", at_most=5),
    Figure("ready", "ready after start", "s", "footprint", "ready_s", at_most=0.6),
    Figure("idle_memory", "idle memory (RSS)", "MiB", "footprint", "idle_mib", at_most=60),
    Figure("idle_cpu", "idle CPU", "ms/s", "footprint", "idle_cpu_ms"),
)

# Targets that nothing here measures yet: said, rather than left out.
NOT_MEASURED = (
    ("CPU per call and hop, 16 connections, mTLS between the sidecars", "≤ 0.9 × Envoy", "no mTLS yet"),
    (
        "a change reaches 99 % / all of 1,000 and 10,000 sidecars, 30 % loss",
        "1.3 / 1.8 s and 1.6 / 2.4 s",
        "no gossip yet",
    ),
)


@dataclass(frozen=True)
class Ratio:
    """A build of Reach beside Envoy: the median of the rounds' own ratios, and their extremes."""

    middle: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Result:
    """One figure as measured, and whether the build that is judged `met` its target."""

    key: str
    title: str
    unit: str
    target: str
    compiled: float | None
    pure: float | None
    envoy: float | None
    direct: float | None
    compiled_ratio: Ratio | None
    pure_ratio: Ratio | None
    met: bool | None

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def selected(only: str) -> tuple[Figure, ...]:
    """The figures named by `cpu16,latency1`: whole keys or their beginnings. Raises ValueError on unknown ones."""
    wanted = [word.strip() for word in only.split(",") if word.strip()]
    for word in wanted:
        if not any(figure.key.startswith(word) for figure in FIGURES):
            known = ", ".join(figure.key for figure in FIGURES)
            raise ValueError(f"there is no figure {word!r}; there are {known}")
    if not wanted:
        return FIGURES
    return tuple(figure for figure in FIGURES if any(figure.key.startswith(word) for word in wanted))


def compute(samples: Samples, figures: tuple[Figure, ...] = FIGURES) -> list[Result]:
    return [_result(figure, samples) for figure in figures if figure.measure in samples]


def _result(figure: Figure, samples: Samples) -> Result:
    values = {
        system: [sample[figure.metric] for sample in taken if figure.metric in sample]
        for system, taken in samples[figure.measure].items()
    }
    middle = {system: figure.over_rounds(taken) if taken else None for system, taken in values.items()}
    base = middle.get("direct")
    if figure.added and base is not None:
        # Tails of direct calls are as noisy as what is looked for: subtract medians, not round by round.
        middle |= {name: value - base for name, value in middle.items() if value is not None and name != "direct"}
    ratios = {build: _ratio(figure, build, values, middle) for build in BUILDS}
    judged = next((build for build in BUILDS if values.get(build)), BUILDS[0])
    return Result(
        key=figure.key,
        title=figure.title,
        unit=figure.unit,
        target=figure.target,
        compiled=middle.get("compiled"),
        pure=middle.get("pure"),
        envoy=middle.get("envoy"),
        direct=middle.get("direct"),
        compiled_ratio=ratios["compiled"],
        pure_ratio=ratios["pure"],
        met=_met(figure, middle.get(judged), ratios[judged]),
    )


def _ratio(
    figure: Figure, build: str, values: dict[str, list[float]], middle: dict[str, float | None]
) -> Ratio | None:
    if not figure.compared:
        return None
    quotients = _side_by_side(values, build, figure.added)
    if figure.added:
        of_all = _quotient(middle.get(build), middle.get("envoy"))
    else:
        of_all = statistics.median(quotients) if quotients else None
    if of_all is None:
        return None
    return Ratio(of_all, min(quotients, default=None), max(quotients, default=None))


def _side_by_side(values: dict[str, list[float]], build: str, added: bool) -> list[float]:
    """Reach / Envoy of each round, of what they add to that round's direct calls if `added`."""
    ours, theirs = values.get(build, []), values.get("envoy", [])
    base = values.get("direct", []) if added else [0.0] * len(ours)
    quotients = [_quotient(r - d, e - d) for r, e, d in zip(ours, theirs, base, strict=False)]
    return [quotient for quotient in quotients if quotient is not None]


def _quotient(ours: float | None, theirs: float | None) -> float | None:
    """None where noise left nothing to compare."""
    return ours / theirs if ours is not None and theirs is not None and ours > 0 and theirs > 0 else None


def _met(figure: Figure, ours: float | None, ratio: Ratio | None) -> bool | None:
    if figure.ratio_at_most is not None:
        return None if ratio is None else ratio.middle <= figure.ratio_at_most
    if ours is None:
        return None
    if figure.at_most is not None:
        return ours <= figure.at_most
    if figure.at_least is not None:
        return ours >= figure.at_least
    return None
