import json
import os
import shutil
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from reach_cli.demo_agents import scribe

JOB = {"title": "Title", "paragraphs": ["word " * 30, "short"], "footer": "end"}


def test_lines_are_wrapped_and_numbered() -> None:
    lines = scribe.typeset("Title", ["word " * 30, "short"], "end").splitlines()
    assert lines[:2] == ["Title", "====="]
    assert lines[3].startswith("1. word")
    assert lines[4].startswith("   word")
    assert max(map(len, lines)) <= scribe.WIDTH
    assert lines[-1] == "(end)"


def ask(source: Path, runner: str, method: str, body: str | None) -> tuple[int, Any]:
    """One request to the agent as a process of its own."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    agent = subprocess.Popen([runner, str(source)], env={**os.environ, "PORT": str(port)})
    try:
        deadline = time.monotonic() + 10
        while True:
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                connection.request(method, "/process", body)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        answer = connection.getresponse()
        result = answer.status, json.loads(answer.read())
        connection.close()
        return result
    finally:
        agent.kill()
        agent.wait()


@pytest.mark.parametrize("name", ["scribe.py", "scribe.mjs"])
def test_both_scribes_do_the_same(name: str) -> None:
    runner = sys.executable if name.endswith(".py") else shutil.which("node")
    if runner is None:
        pytest.skip("Node is not installed")
    source = Path(scribe.__file__).with_name(name)
    status, answer = ask(source, runner, "POST", json.dumps(JOB))
    assert status == 200
    assert answer["report"] == scribe.typeset("Title", ["word " * 30, "short"], "end")
    assert ask(source, runner, "POST", "{")[0] == 400
    assert ask(source, runner, "GET", None) == (200, {"status": "ok"})
