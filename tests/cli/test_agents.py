from typing import Any

from reach_cli.agents import agents_of, show, summary, why_none


def test_a_row_per_agent_in_order_of_ids(an_agent: Any) -> None:
    answer = {"agents": [an_agent("b", "plan"), an_agent("a", "summarize", "text.cut")], "table": {"age_s": 2.4}}
    agents = agents_of(answer)
    lines = show(agents).splitlines()
    assert lines[0].split() == ["AGENT", "STATUS", "LOAD", "CAPABILITIES", "VERSION", "ADDRESS"]
    assert lines[1].startswith("a ")
    assert "summarize, text.cut" in lines[1]
    assert "1/4" in lines[1]
    assert summary(agents, answer) == "2 agents, 2 up; the table is 2 s old"


def test_why_an_agent_is_not_called_is_shown(an_agent: Any) -> None:
    broken = an_agent("a", "plan", excluded={"reason": "breaker", "detail": "10 failures"})
    assert "up, but breaker" in show([broken])


def test_what_is_unknown_is_a_dash() -> None:
    bare = {"agent_id": "a", "status": "down", "capabilities": ["plan"], "load": None}
    assert show([bare]).splitlines()[1].split() == ["a", "down", "-", "plan", "-", "-"]
    queued = {**bare, "load": {"running": 4, "queued": 2, "limit": None}}
    assert "4 +2 queued" in show([queued])


def test_nobody_is_known_because_control_is_away() -> None:
    """Starting an agent would not help then."""
    away = {"control": {"connected": False, "problem": "No control node answers."}}
    assert why_none(away) == "No control node answers."
    for me in ({}, {"control": None}, {"control": {"connected": True, "problem": None}}):
        assert "reach run --capability plan" in why_none(me, "plan")
