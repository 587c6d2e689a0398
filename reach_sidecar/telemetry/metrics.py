"""What the hot path counts: plain ints in plain dicts, read by Prometheus when it asks.

Labels are bounded: a caller chooses the capability it asks for and a faulty mesh could name any number of peers, so
past the bounds everything is counted as `other`.

Measured on Debian's Python 3.11: `observe_call` 0.35–0.65 µs, `observe_attempt` 0.15–0.27 µs.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

# Upper bounds in seconds, from a cache hit to the default guard of a call (10 min): agents take seconds, not ms.
DURATION_BOUNDS_S = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip
MAX_CAPABILITIES = 200
MAX_PEERS = 500
MAX_OUTCOMES = 60
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Gauge:
    """A figure that others own, read when asked for: a number, or numbers by the values of `label`."""

    name: str
    help: str
    read: Callable[[], float | Mapping[str, float]]
    label: str | None = None
    counter: bool = False


@dataclass(slots=True)
class Series:
    """The calls of one side and capability."""

    results: dict[tuple[int, str], int] = field(default_factory=dict)
    buckets: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BOUNDS_S) + 1))
    seconds: float = 0.0


class Metrics:
    """Bump from the loop's thread only. `in_flight` is public: `metrics.in_flight["out"] += 1`."""

    def __init__(self, gauges: Sequence[Gauge] = ()) -> None:
        self.gauges: list[Gauge] = list(gauges)
        self.in_flight: dict[str, int] = {"out": 0, "in": 0}
        self.retries: dict[tuple[str, str], int] = {}
        self.breakers: dict[tuple[str, str], int] = {}
        self.dedup: dict[str, int] = {}
        self.attempts: dict[tuple[str, str], int] = {}
        self.calls: dict[tuple[str, str], Series] = {}
        self._outcomes: set[str] = set()
        self._capabilities: set[str] = set()
        self._peers: set[str] = set()

    def observe_call(self, side: str, capability: str, status: int, outcome: str, seconds: float) -> None:
        """Count one finished call. `side`: `out` at the caller, `in` at the called agent; `capability` as matched."""
        series = self.calls.get((side, capability)) or self._new_series(side, capability)
        result = (status // 100, outcome)
        try:
            series.results[result] += 1
        except KeyError:
            self._new_result(series, result)
        series.buckets[bisect_left(DURATION_BOUNDS_S, seconds)] += 1
        series.seconds += seconds

    def observe_attempt(self, peer: str, result: str) -> None:
        """Count one attempt at `peer`; `result` is a fixed word: one of `policy.retry.Result`, or a problem's code."""
        try:
            self.attempts[peer, result] += 1
        except KeyError:
            key = (_bounded(peer, self._peers, MAX_PEERS), _bounded(result, self._outcomes, MAX_OUTCOMES))
            self.attempts[key] = self.attempts.get(key, 0) + 1

    def observe_retry(self, capability: str, why: str) -> None:
        """Count one attempt after the first; `why` is the result of the one before it."""
        key = (_bounded(capability, self._capabilities, MAX_CAPABILITIES), why)
        self.retries[key] = self.retries.get(key, 0) + 1

    def observe_breaker(self, peer: str, state: str) -> None:
        """Count one change of a breaker: `open` or `closed`."""
        key = (_bounded(peer, self._peers, MAX_PEERS), state)
        self.breakers[key] = self.breakers.get(key, 0) + 1

    def observe_dedup(self, result: str) -> None:
        """Count one call whose key was seen before; `result` is one of `policy.dedup.Decision`."""
        self.dedup[result] = self.dedup.get(result, 0) + 1

    def _new_series(self, side: str, capability: str) -> Series:
        key = (side, _bounded(capability, self._capabilities, MAX_CAPABILITIES))
        series = self.calls.get(key)
        if series is None:
            series = self.calls[key] = Series()
        return series

    def _new_result(self, series: Series, result: tuple[int, str]) -> None:
        key = (result[0], _bounded(result[1], self._outcomes, MAX_OUTCOMES))
        series.results[key] = series.results.get(key, 0) + 1


def _bounded(value: str, known: set[str], bound: int) -> str:
    if value in known:
        return value
    if len(known) >= bound:
        return OTHER
    known.add(value)
    return value
