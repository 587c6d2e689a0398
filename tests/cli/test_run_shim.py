"""The shim with real processes: whatever ends, nothing of the agent is left."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reach_cli import run_shim

Start = Callable[..., tuple[subprocess.Popen[bytes], socket.socket]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[tuple[subprocess.Popen[bytes], socket.socket]] = []

    def run(*command: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            shim = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(run_shim.__file__)), str(theirs.fileno()), *command],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        ours.settimeout(10)
        started.append((shim, ours))
        return shim, ours

    yield run
    for shim, ours in started:
        ours.close()
        shim.communicate(timeout=10)


def marked(mark: str) -> list[int]:
    """Ids of living processes that have `mark` on their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "cmdline").read_bytes() and int(process.name) != os.getpid():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def wait_for(what: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


def test_the_exit_code_comes_back(start: Start) -> None:
    assert start("sh", "-c", "exit 7")[0].wait(10) == 7
    assert start("sh", "-c", "kill -TERM $$")[0].wait(10) == 128 + signal.SIGTERM


def test_a_command_that_cannot_run(start: Start, tmp_path: Path) -> None:
    shim, _ = start("no-such-command")
    assert shim.wait(10) == 127
    assert shim.stderr is not None
    assert b"cannot run 'no-such-command'" in shim.stderr.read()
    plain = tmp_path / "plain"
    plain.write_text("")
    assert start(str(plain))[0].wait(10) == 126


def test_signals_go_to_the_whole_group(start: Start, tmp_path: Path) -> None:
    """A child of the agent that shares its group hears them too."""
    script = "trap 'echo outer >> log; wait; exit 3' USR1; sh -c 'trap \"echo inner >> log; exit\" USR1; echo up >> log; while :; do sleep 0.02; done' & echo up >> log; wait"
    shim, control = start("sh", "-c", f"cd {tmp_path}; {script}")
    log = tmp_path / "log"
    wait_for(lambda: log.exists() and log.read_text().count("up") == 2)
    control.send(bytes([signal.SIGUSR1]))
    assert shim.wait(10) == 3
    assert {"inner", "outer"} <= set(log.read_text().split())


def test_signals_have_their_usual_meaning_for_the_agent(start: Start) -> None:
    """Python ignores SIGPIPE for itself; an agent must not inherit that."""
    code = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)"
    assert start(sys.executable, "-c", code)[0].wait(10) == 0
    shim, _ = start("sh", "-c", "kill -PIPE $$; exit 5")
    assert shim.wait(10) == 128 + signal.SIGPIPE


def test_nothing_is_left_when_the_owner_is_gone(start: Start) -> None:
    """Children, a daemonised one in a session of its own, and one that does not listen to SIGTERM."""
    mark = f"left-{os.getpid()}-{time.monotonic_ns()}"
    sleeper = f"sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' {mark}"
    shim, control = start("sh", "-c", f"{sleeper} & setsid {sleeper} & (setsid {sleeper} &) ; exec {sleeper}")
    wait_for(lambda: len(marked(mark)) >= 4)
    control.close()
    shim.wait(10)
    wait_for(lambda: not marked(mark))


def test_nothing_is_left_when_the_agent_ends(start: Start) -> None:
    mark = f"left-{os.getpid()}-{time.monotonic_ns()}"
    shim, _ = start("sh", "-c", f"setsid sh -c 'while :; do sleep 0.05; done' {mark} & sleep 0.1; exit 4")
    assert shim.wait(10) == 4
    assert marked(mark) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
def test_the_agent_does_not_outlive_the_shim(start: Start) -> None:
    mark = f"left-{os.getpid()}-{time.monotonic_ns()}"
    shim, control = start("sh", "-c", "while :; do sleep 0.05; done", mark)
    assert control.recv(100).startswith(b"pid ")
    shim.kill()
    shim.wait(10)
    wait_for(lambda: not marked(mark))


def test_the_agent_does_not_hold_our_socket(start: Start) -> None:
    """Else the end of the shim would go unnoticed as long as anything of the agent lives."""
    shim, control = start("sh", "-c", "ls -l /proc/self/fd | grep -c socket; exit 0")
    shim.wait(10)
    while control.recv(100):
        pass
