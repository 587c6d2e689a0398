import json
from typing import Any

import pytest


def canned(stand_in: Any, body: Any, **fields: Any) -> Any:
    return type(stand_in.answers["/v1/self"])(body, **fields)


def serve(stand_in: Any, an_agent: Any, **fields: Any) -> None:
    one = an_agent("summarizer-01", "summarize", address=stand_in.address, **fields)
    stand_in.answers["/v1/agents"] = canned(stand_in, {"agents": [one]})


def test_every_step(stand_in: Any, reach: Any, an_agent: Any) -> None:
    serve(stand_in, an_agent)
    headers = (("Reach-Agent", "summarizer-01"), ("Reach-Trace-Id", "ab" * 16), ("Server-Timing", "agent;dur=1"))
    stand_in.answers["/to/summarize"] = canned(stand_in, b"no GET here", status=405, headers=headers)
    result = reach("echo", "summarize")
    assert result.exit_code == 0, result.stderr
    steps = [line.split()[:2] for line in result.stdout.splitlines()]
    assert steps == [["ok", "sidecar"], ["ok", "discovered"], ["ok", "connected"], ["ok", "answered"]]
    assert "summarizer-01 answered 405" in result.stdout
    assert " ms " in result.stdout
    assert (stand_in.asked[-1].method, stand_in.asked[-1].headers["Reach-Timeout"]) == ("GET", "10s")


@pytest.mark.parametrize(("status", "more", "remark"), [
    (501, (), "takes no GET there: send it a job with -d"), (404, (), "takes no GET there"),
    (500, (), "the status is its own"), (422, ("-d", "{}"), "the status is its own"),
    (501, ("-d", "{}"), "the status is its own"), (200, (), None),
])
def test_whatever_the_agent_answers_it_was_reached(
    stand_in: Any, reach: Any, an_agent: Any, status: int, more: tuple[str, ...], remark: str | None
) -> None:
    serve(stand_in, an_agent)
    headers = (("Reach-Matched", "exact"), ("Content-Type", "application/problem+json"))
    stand_in.answers["/to/summarize"] = canned(stand_in, {"title": "its own"}, status=status, headers=headers)
    result = reach("echo", "summarize", "--json", *more)
    assert result.exit_code == 0, result.stderr
    shown = json.loads(result.stdout)
    assert shown["ok"]
    assert [step["ok"] for step in shown["steps"]] == [True, True, True, True]
    assert all(isinstance(step["ms"], float) for step in shown["steps"])
    detail = shown["steps"][-1]["detail"]
    assert f"answered {status} " in detail
    assert remark is None or remark in detail
    assert remark or "reached" not in detail


def test_no_sidecar(reach: Any) -> None:
    result = reach("echo", "summarize", "--admin", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stdout.startswith("FAIL sidecar")
    assert "Start one with" in result.stderr


def test_not_discovered(stand_in: Any, reach: Any) -> None:
    stand_in.answers["/v1/agents"] = canned(stand_in, {"agents": []})
    result = reach("echo", "summarize")
    assert result.exit_code == 1
    assert "FAIL discovered" in result.stdout
    assert "reach run --capability summarize" in result.stderr


def test_nobody_is_fit(stand_in: Any, reach: Any, an_agent: Any) -> None:
    serve(stand_in, an_agent, excluded={"reason": "agent_down", "detail": "its lease ran out 12 s ago"})
    result = reach("echo", "summarize")
    assert result.exit_code == 1
    assert "its lease ran out 12 s ago" in result.stderr


def test_not_connected(stand_in: Any, reach: Any, an_agent: Any) -> None:
    stand_in.answers["/v1/agents"] = canned(stand_in, {"agents": [an_agent("a", "plan", address="127.0.0.1:1")]})
    result = reach("echo", "plan")
    assert result.exit_code == 1
    assert "FAIL connected" in result.stdout
    assert "`advertise`" in result.stderr


def test_not_answered(stand_in: Any, reach: Any, an_agent: Any) -> None:
    serve(stand_in, an_agent)
    problem = {"title": "All agents are busy", "detail": "Try again later."}
    headers = (("Content-Type", "application/problem+json"),)
    stand_in.answers["/to/summarize"] = canned(stand_in, problem, status=503, headers=headers)
    result = reach("echo", "summarize")
    assert result.exit_code == 1
    assert "FAIL answered" in result.stdout
    assert "Try again later." in result.stderr


def test_one_agent_by_name(stand_in: Any, reach: Any, an_agent: Any) -> None:
    serve(stand_in, an_agent)
    stand_in.answers["/to/@summarizer-01"] = canned(stand_in, b"ok")
    assert reach("echo", "@summarizer-01").exit_code == 0
    assert "FAIL discovered" in reach("echo", "@nobody").stdout
