"""The agents and the process fixture, without any product code: what tests stand on must itself stand."""

import json
import signal
import socket
import threading
import urllib.request

import pytest
from harness.mesh import Mesh, get, post, until
from websockets.sync.client import connect


@pytest.mark.parametrize("script", ["echo.py", "echo.mjs"])
def test_echo_tells_what_was_sent(mesh: Mesh, script: str) -> None:
    agent = mesh.agent("one", script)
    status, answer = post(f"{agent.ready['url']}/process?x=1", {"task": "ü"}, headers={"X-Case": "Kept"})
    assert status == 200
    assert (answer["agent"], answer["method"], answer["path"]) == ("one", "POST", "/process?x=1")
    assert ["X-Case", "Kept"] in answer["headers"]
    assert json.loads(answer["body"]) == {"task": "ü"}


def test_bulk_paths(mesh: Mesh) -> None:
    url = mesh.agent("bulk").ready["url"]
    assert post(f"{url}/upload", bytes(5_000_000)) == (200, {"bytes": 5_000_000})
    with urllib.request.urlopen(f"{url}/download?bytes=3000000") as answer:
        assert len(answer.read()) == 3_000_000


def test_events_wait_for_the_acknowledgement(mesh: Mesh) -> None:
    url = mesh.agent("events").ready["url"]
    with urllib.request.urlopen(f"{url}/sse?events=2") as answer:
        assert answer.readline() == b"id: 0\n"
        acknowledge = threading.Timer(0.1, post, (f"{url}/ack", {}))
        acknowledge.start()
        assert b"id: 1\n" in answer.read()
        acknowledge.join()


def test_websocket_agent(mesh: Mesh) -> None:
    url = mesh.agent("ws", "websocket.py").ready["url"].replace("http", "ws")
    with connect(url) as connection:
        connection.send("hello")
        assert connection.recv() == "hello"


def test_scripted_agent_records_and_answers(mesh: Mesh) -> None:
    record = mesh.folder / "seen"
    answer = r"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    agent = mesh.agent("raw", "scripted.py", "--answer", answer, "--record", record)
    assert get(agent.ready["url"] + "/x") == (200, "ok")
    assert record.read_bytes().startswith(b"GET /x HTTP/1.1\r\n")


def test_nothing_is_left(mesh: Mesh) -> None:
    agent = mesh.agent("gone")
    mesh.stop()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", agent.ready["port"]))
    assert not agent.running


def test_a_failed_start_shows_the_log(mesh: Mesh) -> None:
    with pytest.raises(AssertionError, match="unrecognized arguments"):
        mesh.agent("wrong", "echo.py", "--no-such-option")


def test_stopping_a_process_with_a_signal(mesh: Mesh) -> None:
    agent = mesh.agent("signalled")
    agent.signal(signal.SIGKILL)
    until("the agent is dead", lambda: not agent.running, 5)
