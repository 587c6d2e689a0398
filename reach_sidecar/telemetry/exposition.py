"""The counts of `Metrics` in the form Prometheus reads. Imported when /metrics is first asked for (5 MiB).

Names begin with `reach_`. Reads plain dicts that the loop's thread goes on changing: `list(….items())` takes a copy in
one step, so this may run off the loop.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from reach_sidecar.telemetry.metrics import DURATION_BOUNDS_S, Gauge, Metrics


class ReachCollector(Collector):
    """Makes the metric families anew at each scrape."""

    def __init__(self, metrics: Metrics, version: str, extra: Sequence[Gauge] = ()) -> None:
        self._metrics = metrics
        self._version = version
        self._extra = extra

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registering does not read every gauge."""
        return []

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        info = GaugeMetricFamily("reach_build_info", "The running version, as a label.", labels=["version"])
        info.add_metric([self._version], 1)
        yield info
        yield from self._calls()
        in_flight = GaugeMetricFamily("reach_calls_in_flight", "Calls running now, by side.", labels=["side"])
        for side, count in list(metrics.in_flight.items()):
            in_flight.add_metric([side], count)
        yield in_flight
        attempts = CounterMetricFamily(
            "reach_attempts", "Attempts by the agent they went to and their result.", labels=["peer", "result"]
        )
        for (peer, result), count in list(metrics.attempts.items()):
            attempts.add_metric([peer, result], count)
        yield attempts
        yield self._retries()
        breakers = CounterMetricFamily(
            "reach_breaker_changes", "Breakers that opened or closed, by agent.", labels=["peer", "state"]
        )
        for (peer, state), count in list(metrics.breakers.items()):
            breakers.add_metric([peer, state], count)
        yield breakers
        dedup = CounterMetricFamily(
            "reach_dedup", "Calls here whose key was seen before, by what became of them.", labels=["result"]
        )
        for result, count in list(metrics.dedup.items()):
            dedup.add_metric([result], count)
        yield dedup
        for gauge in [*metrics.gauges, *self._extra]:
            family = _read(gauge)
            if family is not None:
                yield family

    def _retries(self) -> Metric:
        retries = CounterMetricFamily(
            "reach_retries", "Attempts after the first, by the result of the one before.", labels=["capability", "why"]
        )
        for (capability, why), count in list(self._metrics.retries.items()):
            retries.add_metric([capability, why], count)
        return retries

    def _calls(self) -> Iterator[Metric]:
        calls = CounterMetricFamily(
            "reach_calls",
            "Finished calls; side is out at the caller, in at the called agent.",
            labels=["side", "capability", "status", "outcome"],
        )
        durations = HistogramMetricFamily(
            "reach_call_duration_seconds", "Time from request to the end of the answer.", labels=["side", "capability"]
        )
        for (side, capability), series in list(self._metrics.calls.items()):
            for (status_class, outcome), count in list(series.results.items()):
                status = f"{status_class}xx" if status_class else "none"
                calls.add_metric([side, capability, status, outcome], count)
            total, buckets = 0, []
            for bound, count in zip([*map(str, DURATION_BOUNDS_S), "+Inf"], list(series.buckets), strict=True):
                total += count
                buckets.append((bound, total))
            durations.add_metric([side, capability], buckets, series.seconds)
        yield calls
        yield durations


def _read(gauge: Gauge) -> Metric | None:
    """None when the reader fails: one broken figure must not hide the others."""
    try:
        value = gauge.read()
    except Exception:
        return None
    labels = [gauge.label] if gauge.label else []
    make = CounterMetricFamily if gauge.counter else GaugeMetricFamily
    family = make(gauge.name, gauge.help, labels=labels)
    if isinstance(value, Mapping):
        for label, number in value.items():
            family.add_metric([label], number)
    else:
        family.add_metric([], value)
    return family


class Exposition:
    """Renders one `Metrics`, and the process's own figures beside it."""

    def __init__(self, metrics: Metrics, version: str, extra: Sequence[Gauge] = ()) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ReachCollector(metrics, version, extra))
        ProcessCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The text for an `Accept` header, and its content type. About 3 µs a sample: call it off the loop."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
