"""Figures of /metrics that other parts own: read when Prometheus asks, on another thread, so each is copied first."""

import time
from collections.abc import Mapping

from reach_core.peer import Rank
from reach_core.table import PeerTable
from reach_sidecar.forward.stores import Stores
from reach_sidecar.http1.listener import Listener
from reach_sidecar.membership.driver import Membership
from reach_sidecar.membership.local import LocalAgent
from reach_sidecar.membership.view import PeerView
from reach_sidecar.telemetry.metrics import Gauge


def gauges(*, table: PeerTable, view: PeerView, membership: Membership, local: LocalAgent, stores: Stores,
           listeners: Mapping[str, Listener], has_control: bool) -> list[Gauge]:
    """`listeners` by their name."""

    def table_age() -> float:
        age_s = membership.table_age_s(time.monotonic()) if has_control else 0.0
        return float("nan") if age_s is None else age_s

    return [
        Gauge("reach_table_entries", "Agents in this sidecar's table.", lambda: len(table)),
        Gauge("reach_table_age_seconds", "Since control last confirmed the table; NaN while there is none.", table_age),
        Gauge("reach_control_connected", "1 while a control node answers.", lambda: float(membership.connected)),
        Gauge("reach_peers", "Agents in the table by their status.", lambda: _by_status(view), label="status"),
        Gauge("reach_breakers_open", "Breakers of this sidecar that are not closed, by agent.",
              lambda: _breakers_open(view), label="peer"),
        Gauge("reach_connections", "Open connections by listener.",
              lambda: {name: float(len(one.service.connections)) for name, one in listeners.items()}, label="listener"),
        Gauge("reach_dedup_bytes", "Answers kept in memory.", lambda: stores.memory_bytes),
        Gauge("reach_gossip_datagrams", "Datagrams of gossip, by what became of them.",
              lambda: membership.spread.datagrams(), label="event", counter=True),
        Gauge("reach_gossip_entries", "Entries that others passed on, by what was found.",
              lambda: membership.spread.entries(), label="found", counter=True),
        Gauge("reach_gossip_exchanges", "Comparisons and fetches over TCP, by how they ended.",
              lambda: membership.spread.exchanges(), label="end", counter=True),
        Gauge("reach_agent_running", "Calls the local agent works on.", lambda: local.running),
        Gauge("reach_agent_queued", "Calls that wait for a place at the local agent.", lambda: local.queued),
        Gauge("reach_agent_unfit", "1 while the local agent fails its health checks.", lambda: float(local.unfit)),
    ]


def _by_status(view: PeerView) -> dict[str, float]:
    counts = {rank.label: 0.0 for rank in Rank if rank < Rank.LEFT}
    for peer in list(view.peers()):
        label = peer.entry.rank.label
        counts[label] = counts.get(label, 0.0) + 1
    return counts


def _breakers_open(view: PeerView) -> dict[str, float]:
    counts = {peer.agent_id: sum(track.breaker.open_until > 0.0 for track in list(peer.tracks.values()))
              for peer in list(view.peers())}
    return {agent: float(count) for agent, count in counts.items() if count}
