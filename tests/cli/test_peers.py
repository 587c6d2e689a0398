import json
from typing import Any


def canned(stand_in: Any, body: Any, **fields: Any) -> Any:
    return type(stand_in.answers["/v1/self"])(body, **fields)


def test_a_table(stand_in: Any, reach: Any, an_agent: Any) -> None:
    stand_in.answers["/v1/peers"] = canned(stand_in, {"agents": [an_agent("a", "plan")], "table": {"age_s": 1}})
    result = reach("peers")
    assert result.exit_code == 0
    assert "plan" in result.stdout
    assert "1 agent, 1 up" in result.stderr


def test_json(stand_in: Any, reach: Any, an_agent: Any) -> None:
    answer = {"agents": [an_agent("a", "plan")], "table": {"age_s": 1}}
    stand_in.answers["/v1/peers"] = canned(stand_in, answer)
    assert json.loads(reach("peers", "--json").stdout) == answer


def test_nobody_yet(stand_in: Any, reach: Any) -> None:
    stand_in.answers["/v1/peers"] = canned(stand_in, {"agents": []})
    result = reach("peers")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "reach run" in result.stderr


def test_something_else_that_speaks_json(stand_in: Any, reach: Any) -> None:
    """An agent's own port, say: that is no empty mesh."""
    for answer in ({"status": "ok"}, ["a"], {"agents": 3}):
        stand_in.answers["/v1/peers"] = canned(stand_in, answer)
        result = reach("peers")
        assert result.exit_code == 1
        assert "Check --admin" in result.stderr


def test_nobody_to_watch_is_said_at_once(reach: Any) -> None:
    result = reach("peers", "--watch", "--admin", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "does not answer at http://127.0.0.1:1" in result.stderr
