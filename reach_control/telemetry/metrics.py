"""Figures of a control node for Prometheus: gathered when asked for, plain ints until then."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Figures(NamedTuple):
    """A moment's numbers. Keys of `agents`: status labels; `requests`: kinds; `refused`: problem codes."""

    agents: Mapping[str, int]
    tombstones: int
    requests: Mapping[str, int]
    refused: Mapping[str, int]
    entries_refused: Mapping[str, int]
    changes: int
    waiting: int
    stalls: int
    snapshot_ok: bool


def exposition(figures: Figures) -> tuple[bytes, str]:
    """The text for `/metrics`, and its content type."""
    import prometheus_client  # late: half a second and 10 MiB that only Prometheus needs

    registry = prometheus_client.CollectorRegistry()
    registry.register(_Collector(figures))
    prometheus_client.ProcessCollector(registry=registry)
    return prometheus_client.generate_latest(registry), prometheus_client.CONTENT_TYPE_LATEST


class _Collector:
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> "Iterable[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = self._figures
        agents = GaugeMetricFamily("reach_control_agents", "Agents in the table, by status.", labels=["status"])
        for status in ("joining", "up", "suspect", "down"):
            agents.add_metric([status], now.agents.get(status, 0))
        yield agents
        yield GaugeMetricFamily("reach_control_tombstones", "Removed agents that are remembered.", now.tombstones)
        for name, text, label, counts in (
            ("requests", "Requests of sidecars, by kind.", "kind", now.requests),
            ("refused", "Requests refused, by problem code.", "code", now.refused),
            ("entries_refused", "Entries not taken into the table, by reason.", "reason", now.entries_refused),
        ):
            family = CounterMetricFamily(f"reach_control_{name}", text, labels=[label])
            for key, count in sorted(counts.items()):
                family.add_metric([key], count)
            yield family
        yield CounterMetricFamily("reach_control_changes", "Changes of the table.", now.changes)
        yield GaugeMetricFamily("reach_control_waiting", "Sidecars that wait for a change.", now.waiting)
        yield CounterMetricFamily("reach_control_stalls", "Times this node itself stood still over 5 s.", now.stalls)
        yield GaugeMetricFamily("reach_control_snapshot_ok", "1 if the table is on disk.", int(now.snapshot_ok))
