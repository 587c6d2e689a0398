from typing import Any

from reach_cli.demo_report import merge, waterfall


def line(ended: str, ms: float, event: str, agent: str, **fields: Any) -> dict[str, Any]:
    return {"ts": f"2026-01-31T12:00:{ended}Z", "ms": ms, "event": event, "agent": agent, "capability": "plan", **fields}


LINES = [
    line("01.010", 8.0, "deliver", "b", caller="a", status=200, key="k1", span_id="s2", parent_id="a2"),
    line("01.012", 12.0, "call", "a", target="b", status=200, key="k1", span_id="s1",
         attempt_span_id="a2"),
    line("01.002", 1.0, "attempt", "a", target="x", key="k1", span_id="s1", attempt_span_id="a1"),
    line("01.002", 0.5, "deliver", "x", caller="a", status=502, key="k1", span_id="s9", parent_id="a1"),
    line("01.009", 3.0, "call", "b", target="c", status=503, key="k2", span_id="s3", parent_id="s2", capability="cut"),
    line("01.005", 2.0, "call", "b", target="d", status=200, key="k3", span_id="s4", parent_id="s2", capability="add"),
]


def test_lines_are_nested_as_the_calls_are() -> None:
    """They were written when the calls ended, by clocks that need not agree."""
    assert [(entry["event"], entry["agent"], entry["depth"], round(entry["began_ms"])) for entry in merge(LINES)] == [
        ("call", "a", 0, 0),
        ("attempt", "a", 1, 1),
        ("deliver", "x", 2, 2),
        ("deliver", "b", 1, 2),
        ("call", "b", 2, 3),
        ("call", "b", 2, 6),
    ]


def test_a_line_without_its_parent_is_not_lost() -> None:
    assert [entry["depth"] for entry in merge(LINES[4:])] == [0, 0]
    assert merge([]) == []


def test_a_row_a_line() -> None:
    rows = waterfall(merge(LINES)).splitlines()
    assert len(rows) == 7
    assert "plan to b" in rows[1]
    assert "200" in rows[1]
    assert "  plan from a" in rows[4]
    assert rows[1].index("█") < rows[6].index("█")
    assert waterfall([]).count("\n") == 0
