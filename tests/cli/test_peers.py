import json
import signal
import subprocess
import sys
import time
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


def test_watching_into_a_pipe_writes_changes_only(stand_in: Any, an_agent: Any) -> None:
    """Load that merely ages is no change. Ctrl-C ends it with 130 and nothing on stderr."""
    stand_in.answers["/v1/peers"] = canned(stand_in, {"agents": [an_agent("a", "plan")]})
    command = [sys.executable, "-m", "reach_cli", "peers", "--watch", "--json", "--admin", stand_in.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["agents"][0]["status"] == "up"
        aged = an_agent("a", "plan", load={"running": 1, "queued": 0, "limit": 4, "age_s": 9})
        stand_in.answers["/v1/peers"] = canned(stand_in, {"agents": [aged]})
        seen = len(stand_in.asked)
        while len(stand_in.asked) < seen + 2:
            time.sleep(0.02)
        stand_in.answers["/v1/peers"] = canned(stand_in, {"agents": [an_agent("a", "plan", status="down")]})
        assert json.loads(watching.stdout.readline())["agents"][0]["status"] == "down"
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 130
        assert watching.stderr is not None
        assert watching.stderr.read().strip() == ""
