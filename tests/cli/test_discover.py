import json
from typing import Any
from urllib.parse import parse_qs


def canned(stand_in: Any, body: Any, **fields: Any) -> Any:
    return type(stand_in.answers["/v1/self"])(body, **fields)


def test_who_serves_it(stand_in: Any, reach: Any, an_agent: Any) -> None:
    stand_in.answers["/v1/agents"] = canned(stand_in, {"agents": [an_agent("a", "summarize")]})
    result = reach("discover", "summarize", "--require", "language=zh", "--require", "version>=3.11")
    assert result.exit_code == 0
    assert "summarize" in result.stdout
    asked = parse_qs(stand_in.asked[-1].query)
    assert asked == {"capability": ["summarize"], "require": ["language=zh, version>=3.11"]}
    assert json.loads(reach("discover", "summarize", "--json").stdout)["agents"][0]["agent_id"] == "a"


def test_nobody_serves_it(stand_in: Any, reach: Any, an_agent: Any, monkeypatch: Any) -> None:
    """The near name is found in the whole table; the stand-in filters as a sidecar does."""
    everyone = [an_agent("a", "summarize"), an_agent("b", "message.push")]

    def get(self: Any, path: str, query: Any = None) -> Any:
        wanted = (query or {}).get("capability")
        names = [(a, [c["name"] for c in a["capabilities"]]) for a in everyone]
        return {"agents": [a for a, known in names if wanted in (None, *known)]}

    plain = reach("discover", "summarize")
    assert plain.exit_code == 1
    from reach_cli import admin, discover

    sidecar = admin.find_sidecar(None)
    monkeypatch.setattr(admin.Door, "get", get)
    assert "Did you mean 'summarize'?" in discover.nobody(sidecar, "sumarize")
    assert "Did you mean 'message.push'?" in discover.nobody(sidecar, "push.message")
    assert "Known are: message.push, summarize." in discover.nobody(sidecar, "xyzzy")
    assert "none matches --require" in discover.nobody(sidecar, "summarize", required=True)
    everyone.clear()
    assert "reach run --capability xyzzy" in discover.nobody(sidecar, "xyzzy")


def test_nobody_is_exit_code_1_with_json_too(stand_in: Any, reach: Any) -> None:
    stand_in.answers["/v1/agents"] = canned(stand_in, {"agents": []})
    result = reach("discover", "summarize", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"agents": []}
    assert "reach run --capability summarize" in result.stderr


def test_watching(stand_in: Any, reach: Any, an_agent: Any) -> None:
    stand_in.answers["/v1/agents"] = canned(stand_in, {"agents": []})
    up, down = json.dumps(an_agent("a", "plan")), json.dumps(an_agent("a", "plan", excluded={"reason": "agent_unfit", "detail": ""}))
    stream = f": hi\n\nevent: up\ndata: {up}\n\nevent: down\ndata: {down}\n\n".encode()
    stand_in.answers["/v1/watch"] = canned(stand_in, stream, headers=(("Content-Type", "text/event-stream"),))
    result = reach("discover", "plan", "--watch")
    assert [line.split() for line in result.stdout.splitlines()] == [["up", "a", "up"], ["down", "a", "agent_unfit"]]
    assert result.exit_code == 1, "the sidecar ended it"
    lines = reach("discover", "plan", "--watch", "--json").stdout.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["up", "down"]
