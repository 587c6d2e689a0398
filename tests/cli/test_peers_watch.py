"""A stand-in that streams; a real sidecar that is killed and comes back; and what a terminal gets to see."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness.mesh import Mesh

from reach_cli.event_stream import COMMENT, Event
from reach_cli.peers_watch import Back, Lost, Reporter, heading, over, screen, write_lines

REACH = (sys.executable, "-m", "reach_cli")


def up(agent: dict[str, Any], number: int = 1) -> Event:
    return Event("up", f"e-{number}", json.dumps(agent))


ALL = Event(COMMENT, "", "all")


def test_lines(capsys: Any, an_agent: Any) -> None:
    unfit = an_agent("a\x1b[2J", excluded={"reason": "agent_unfit", "detail": "x"})
    write_lines([Back(), up(an_agent("a\x1b[2J")), ALL, up(unfit), Lost("it ended the stream"), Lost("again"), Back()], False)
    out, err = capsys.readouterr()
    assert [line.split(maxsplit=3)[1:] for line in out.splitlines()] == [
        ["up", "a\N{REPLACEMENT CHARACTER}[2J", "known when the watch began"],
        ["down", "a\N{REPLACEMENT CHARACTER}[2J", "agent_unfit: x"],
    ]
    assert [line.split(maxsplit=1)[1] for line in err.splitlines()] == [
        "The sidecar is gone (it ended the stream). What is shown is as it was; trying to reach it again.",
        "The sidecar is back.",
    ]


def test_lines_of_json(capsys: Any, an_agent: Any) -> None:
    write_lines([Back(), up(an_agent("a")), Event("up", "e-2", "half"), Lost("x"), Back(), ALL, up(an_agent("a"))], True)
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["event"] for one in found] == ["up", "sidecar_gone", "sidecar_back", "down", "up"]
    assert err == ""


def test_an_agent_that_is_missing_after_a_gap_is_gone(an_agent: Any) -> None:
    reporter = Reporter()
    for piece in (Back(), up(an_agent("a")), up(an_agent("b")), ALL, Lost("x"), Back(), up(an_agent("a"))):
        reporter.take(piece)
    (gone,) = reporter.take(ALL)
    assert gone.agent_id == "b"
    assert reporter.take(Event(COMMENT, "", "resumed")) == []


@pytest.mark.parametrize("height", [3, 8, 24, 200])
def test_a_screen_is_never_longer_than_the_terminal(height: int, an_agent: Any) -> None:
    agents = [an_agent(f"agent-{number:03}") for number in range(50)]
    rows = screen(agents, [f"change {number}" for number in range(6)], heading("http://x", ""), height)
    assert len(rows) < height
    if height == 24:
        assert any("more: `reach peers` lists all" in row for row in rows)
        assert rows[-1] == "change 5"
    assert over(rows).count("\n") == len(rows)


def test_an_outbound_address_that_leads_elsewhere(stand_in: Any, reach: Any) -> None:
    other = type(stand_in)()
    try:
        other.answers["/v1/self"] = other.answers["/v1/self"]._replace(body={"agent_id": "another"})
        mine = {"agent_id": "planner-01", "outbound": other.address}
        stand_in.answers["/v1/self"] = stand_in.answers["/v1/self"]._replace(body=mine)
        result = reach("peers", "--watch")
    finally:
        other.stop()
    assert result.exit_code == 1
    assert "there another one answers" in result.stderr


# -- with real processes


class Lines:
    """The JSON lines of a running `reach peers --watch`, with a bound on how long each may take."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.rest = b""

    def until(self, within_s: float = 20.0, **wanted: str) -> dict[str, Any]:
        give_up = time.monotonic() + within_s
        while True:
            while b"\n" in self.rest:
                text, _, self.rest = self.rest.partition(b"\n")
                found = json.loads(text)
                if all(found.get(name) == value for name, value in wanted.items()):
                    return dict(found)
            assert self.process.stdout is not None
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, give_up - time.monotonic()))
            assert ready, f"nothing said {wanted} within {within_s} s"
            self.rest += os.read(self.process.stdout.fileno(), 65536)


@contextmanager
def running(command: list[str], stdout: int, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Ended also where the test fails."""
    with subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def serving(capability: str) -> dict[str, Any]:
    return {"address": "http://127.0.0.1:9", "capabilities": [{"name": capability}]}


@pytest.fixture
def pair(mesh: Mesh) -> tuple[Mesh, Any, Any]:
    control = mesh.control()
    return mesh, control, mesh.sidecar("planner", control, serving("plan"))


def test_a_real_sidecar_that_is_killed_and_comes_back(pair: Any) -> None:
    mesh, control, sidecar = pair
    admin = sidecar.ready["admin"]
    command = [*REACH, "peers", "--watch", "--json", "--admin", f"http://{admin}"]
    with running(command, subprocess.PIPE, mesh.env) as watching:
        lines = Lines(watching)
        lines.until(agent_id="planner")
        mesh.sidecar("second", control, serving("sum"))
        assert lines.until(agent_id="second")["why"].startswith("new")
        sidecar.kill()
        assert lines.until(event="sidecar_gone")["why"]
        mesh.sidecar("planner", control, serving("plan"),
                     listen={"outbound": "127.0.0.1:0", "mesh": "127.0.0.1:0", "admin": admin})
        lines.until(event="sidecar_back")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 130
        assert watching.stderr is not None
        assert watching.stderr.read().strip() == b""


def test_a_terminal_gets_a_table_that_follows(pair: Any) -> None:
    mesh, control, sidecar = pair
    ours, theirs = pty.openpty()
    command = [*REACH, "peers", "--watch", "--admin", f"http://{sidecar.ready['admin']}"]
    env = {**mesh.env, "TERM": "xterm", "LINES": "24", "COLUMNS": "100"}
    with running(command, theirs, env) as watching:
        os.close(theirs)
        seen = _read_until(ours, b"planner")
        assert b"\x1b[H" in seen
        mesh.sidecar("second", control, serving("sum"))
        _read_until(ours, b"second  new")
        sidecar.kill()
        _read_until(ours, b"is gone")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 130
    os.close(ours)


def _read_until(terminal: int, wanted: bytes, within_s: float = 20.0) -> bytes:
    give_up, seen = time.monotonic() + within_s, b""
    while wanted not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, give_up - time.monotonic()))
        assert ready, seen[-2000:]
        seen += os.read(terminal, 65536)
    return seen
