import json
import os
import subprocess
import sys
from typing import Any

import pytest
from harness.mesh import Mesh

from reach_cli.control_status import DEFAULT_ADMIN, ask, places
from reach_cli.run_directory import note

STATUS = {"agents": {"up": 1}, "hash": "ab" * 16, "ready": True, "uptime_s": 3.0, "node": {"id": "one", "url": "http://a:1"}}


def canned(stand_in: Any, body: Any, **fields: Any) -> Any:
    return type(stand_in.answers["/v1/self"])(body, **fields)


def test_a_node_that_is_well(stand_in: Any, reach: Any) -> None:
    stand_in.answers["/v1/status"] = canned(stand_in, STATUS)
    result = reach("control", "status", "--control", stand_in.url)
    assert result.exit_code == 0
    assert result.stdout.startswith("ok")
    found = json.loads(reach("control", "status", "--control", stand_in.url, "--json").stdout)
    assert found["ok"] is True
    assert found["asked"][0]["status"] == STATUS


def test_one_of_two_is_away(stand_in: Any, reach: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.answers["/v1/status"] = canned(stand_in, STATUS)
    monkeypatch.setenv("REACH_CONTROL_ADMIN", f"{stand_in.url},http://127.0.0.1:1")
    result = reach("control", "status")
    assert result.exit_code == 1
    assert result.stdout.startswith("WRONG  The control node at http://127.0.0.1:1 cannot be asked")
    assert "ab" * 6 in result.stdout


def test_what_answers_is_something_else(stand_in: Any, no_http: str) -> None:
    assert "answered 404" in ask(stand_in.url).error
    assert "does not speak HTTP" in ask(no_http).error
    for body in ([], {"status": "ok"}, b"half"):
        stand_in.answers["/v1/status"] = canned(stand_in, body)
        assert "no control node" in ask(stand_in.url).error
    stand_in.answers["/v1/status"] = canned(stand_in, {"detail": "The token is missing."}, status=403)
    assert ask(stand_in.url).error == "it answered 403: The token is missing."


def test_which_to_ask(reach: Any) -> None:
    assert places([]) == [DEFAULT_ADMIN]
    assert places(["http://127.0.0.1:1", "127.0.0.1:1"]) == ["http://127.0.0.1:1"]
    note("control", "127.0.0.1:7080", {"pid": os.getpid(), "api": "127.0.0.1:7080", "admin": "127.0.0.1:9082"})
    assert places([]) == ["http://127.0.0.1:9082"]
    assert places(["http://127.0.0.1:7080"]) == ["http://127.0.0.1:9082"], "its URL for sidecars will do"
    note("control", "127.0.0.1:7090", {"pid": os.getpid(), "api": "127.0.0.1:7090", "admin": "127.0.0.1:9092"})
    result = reach("control", "status")
    assert result.exit_code == 2
    assert "--control http://127.0.0.1:9092" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["status", "--control", "ftp://x"], "is not an address"),
        (["-c", "x.yaml", "status"], "--config: only for running a node"),
        (["statu"], "No such command"),
    ],
)
def test_wrong_command_lines(args: list[str], said: str, reach: Any) -> None:
    result = reach("control", *args)
    assert result.exit_code == 2
    assert said in result.stderr


def test_help_shows_both(reach: Any) -> None:
    shown = reach("control", "--help").stdout
    assert "--exit-when-idle" in shown
    assert "what is wrong" in shown
    assert "Example:" in reach("control", "status", "--help").stdout


def test_the_daemon_carries_nothing_of_it() -> None:
    code = "import sys, reach_cli.control\nprint([n for n in ('reach_cli.control_status', 'http.client') if n in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert shown.stdout == "[]\n", shown.stderr


def test_a_real_node(mesh: Mesh) -> None:
    control = mesh.control()
    command = [sys.executable, "-m", "reach_cli", "control", "status", "--json", "--control", control.ready["admin"]]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=30, env=mesh.env)
    found = json.loads(shown.stdout)
    assert (shown.returncode, found["ok"]) == (0, True), shown
    assert found["nodes"][0]["reachable"] is True
