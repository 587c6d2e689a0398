from typing import NamedTuple

from reach_control.telemetry.metrics import Figures, exposition


class OtherNode(NamedTuple):
    id: str
    url: str
    reachable: bool
    behind_s: float


def test_every_figure_is_there() -> None:
    figures = Figures(
        agents={"up": 3},
        tombstones=2,
        requests={"heartbeat": 7},
        refused={"agent_id_conflict": 1},
        entries_refused={"ahead": 4},
        changes=9,
        waiting=5,
        stalls=1,
        snapshot_ok=True,
        looks={"alive": 3, "dead": 1},
        seeds={"datagrams": 40, "bytes": 9000, "pushes": 2},
        comparisons={"answered": 5, "entries_forged": 6},
        nodes=[OtherNode("control-2", "http://control-2:7080", True, 0.0), OtherNode("stranger", "", False, 2.5)],
        frozen=True,
    )
    body, content_type = exposition(figures)
    lines = body.decode().splitlines()
    assert content_type.startswith("text/plain")
    for line in (
        'reach_control_agents{status="up"} 3.0',
        'reach_control_agents{status="down"} 0.0',
        "reach_control_tombstones 2.0",
        'reach_control_requests_total{kind="heartbeat"} 7.0',
        'reach_control_refused_total{code="agent_id_conflict"} 1.0',
        'reach_control_entries_refused_total{reason="ahead"} 4.0',
        "reach_control_changes_total 9.0",
        "reach_control_waiting 5.0",
        "reach_control_stalls_total 1.0",
        "reach_control_snapshot_ok 1.0",
        'reach_control_looks_total{seen="dead"} 1.0',
        'reach_control_seeds_total{event="datagrams"} 40.0',
        'reach_control_seeds_total{event="bytes"} 9000.0',
        'reach_control_comparisons_total{event="entries_forged"} 6.0',
        'reach_control_node_reachable{node="http://control-2:7080"} 1.0',
        'reach_control_node_reachable{node="stranger"} 0.0',
        'reach_control_node_behind_seconds{node="stranger"} 2.5',
        "reach_control_frozen 1.0",
    ):
        assert line in lines
    assert any(line.startswith("process_resident_memory_bytes") for line in lines)
