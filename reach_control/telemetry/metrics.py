"""Figures of a control node for Prometheus: gathered when asked for, plain ints until then."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Node(Protocol):
    """What is shown of another control node."""

    @property
    def id(self) -> str: ...

    @property
    def url(self) -> str: ...

    @property
    def reachable(self) -> bool: ...

    @property
    def behind_s(self) -> float: ...


class Figures(NamedTuple):
    """A moment's numbers. Keys of `agents`: status labels; `requests`: kinds; `refused`: problem codes; `looks`: what
    was seen; `seeds`: what became of datagrams; `comparisons`: what came of tables compared."""

    agents: Mapping[str, int]
    tombstones: int
    requests: Mapping[str, int]
    refused: Mapping[str, int]
    entries_refused: Mapping[str, int]
    changes: int
    waiting: int
    stalls: int
    snapshot_ok: bool
    looks: Mapping[str, int] = {}
    seeds: Mapping[str, int] = {}
    comparisons: Mapping[str, int] = {}
    nodes: Sequence["Node"] = ()
    frozen: bool = False


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
            ("looks", "Second looks and health checks asked for, by what was seen.", "seen", now.looks),
            ("seeds", "Changes told to sidecars: datagrams, bytes, and what became of them.", "event", now.seeds),
            ("comparisons", "Comparisons of tables, and the entries they brought.", "event", now.comparisons),
        ):
            family = CounterMetricFamily(f"reach_control_{name}", text, labels=[label])
            for key, count in sorted(counts.items()):
                family.add_metric([key], count)
            yield family
        yield CounterMetricFamily("reach_control_changes", "Changes of the table.", now.changes)
        yield GaugeMetricFamily("reach_control_waiting", "Sidecars that wait for a change.", now.waiting)
        yield CounterMetricFamily("reach_control_stalls", "Times this node itself stood still over 5 s.", now.stalls)
        yield GaugeMetricFamily("reach_control_snapshot_ok", "1 if the table is on disk.", int(now.snapshot_ok))
        yield GaugeMetricFamily("reach_control_frozen", "1 while nobody expires by the clock.", int(now.frozen))
        reachable = GaugeMetricFamily("reach_control_node_reachable", "Other control nodes: 1 if it answers.",
                                      labels=["node"])
        behind = GaugeMetricFamily("reach_control_node_behind_seconds", "How long one lacks some of our changes.",
                                   labels=["node"])
        for node in now.nodes:
            reachable.add_metric([node.url or node.id], int(node.reachable))
            behind.add_metric([node.url or node.id], node.behind_s)
        yield reachable
        yield behind
