import json
from typing import Any


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


def test_with_a_body_the_answer_must_be_a_success(stand_in: Any, reach: Any, an_agent: Any) -> None:
    serve(stand_in, an_agent)
    stand_in.answers["/to/summarize"] = canned(stand_in, b"", status=422)
    result = reach("echo", "summarize", "-d", '{"task": "ping"}', "--json")
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert not shown["ok"]
    assert [step["ok"] for step in shown["steps"]] == [True, True, True, False]
    assert all(isinstance(step["ms"], float) for step in shown["steps"])
    assert "The mend is in the agent" in result.stderr


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
