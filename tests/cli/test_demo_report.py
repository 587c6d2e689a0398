from typing import Any

from reach_cli.demo_report import merge, waterfall


def line(ended: str, ms: float, event: str, agent: str, **fields: Any) -> dict[str, Any]:
    return {"ts": f"2026-01-31T12:00:{ended}Z", "ms": ms, "event": event, "agent": agent, "capability": "plan", **fields}


LINES = [
    line("01.010", 8.0, "deliver", "b", caller="a", status=200),
    line("01.012", 12.0, "call", "a", target="b", status=200),
    line("01.030", 3.0, "call", "b", target="c", status=503),
]


def test_lines_are_in_order_of_their_beginning() -> None:
    """They were written when the calls ended."""
    merged = merge(LINES)
    assert [(entry["event"], entry["agent"], round(entry["began_ms"])) for entry in merged] == [
        ("call", "a", 0),
        ("deliver", "b", 2),
        ("call", "b", 27),
    ]


def test_a_row_a_line() -> None:
    rows = waterfall(merge(LINES)).splitlines()
    assert len(rows) == 4
    assert "plan to b" in rows[1]
    assert "200" in rows[1]
    assert "plan from a" in rows[2]
    assert rows[1].index("█") < rows[3].index("█")
    assert waterfall([]).count("\n") == 0
