"""`reach demo` as a person runs it: a real job, one trace, and nothing left behind."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from harness.mesh import REACH, get, post, until

TIMEOUT_S = 60.0


def processes_of(folder: Path) -> list[str]:
    """Command lines of living processes that were started for the demo in `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"TMPDIR={folder}".encode() in environment and state != "Z":
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


@pytest.fixture
def folder() -> Any:
    """A temporary directory that marks the demo's processes, short enough for any socket path."""
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        yield Path(name)


def demo(folder: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(REACH), "demo", *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip


def test_a_real_job_goes_through(folder: Path) -> None:
    began = time.monotonic()
    out, err = demo(folder, "--json").communicate(timeout=TIMEOUT_S)
    assert err == ""
    shown = json.loads(out)
    assert time.monotonic() - began < 30, "the aim is 10 s on a machine of one's own"
    assert shown["answer"]["report"].startswith("What makes an agent reachable\n=====")
    assert shown["answer"]["parts"] == 3
    assert shown["answer"]["review"]["coverage"] == 1.0
    assert [agent["language"] for agent in shown["agents"]].count("Node") == (1 if shutil.which("node") else 0)
    lines = shown["lines"]
    assert {line["trace_id"] for line in lines} == {shown["trace_id"]}
    assert {line["agent"] for line in lines} == {agent["agent_id"] for agent in shown["agents"]}
    calls = [line for line in lines if line["event"] == "call"]
    delivered = [line for line in lines if line["event"] == "deliver"]
    assert len(calls) == len(delivered) == 8
    assert {(line["caller"], line["capability"]) for line in delivered} >= {
        ("planner-01", "summarize"),
        ("planner-01", "review"),
        ("planner-01", "write.report"),
    }
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []


def test_it_is_readable(folder: Path) -> None:
    out, err = demo(folder).communicate(timeout=TIMEOUT_S)
    assert err == ""
    assert "\x1b" not in out, "no colour into a pipe"
    assert "  What makes an agent reachable\n" in out
    assert "8 calls, 16 log lines in 4 sidecars" in out
    assert "demo --keep" in out


@pytest.fixture
def kept(folder: Path) -> Any:
    """A demo that stays: (its process, what it printed)."""
    process = demo(folder, "--keep")
    assert process.stdout is not None
    lines = []
    while not lines or "Ctrl-C ends it all" not in lines[-1]:
        line = process.stdout.readline()
        assert line, process.communicate(timeout=5)[1]
        lines.append(line)
    yield process, "".join(lines)
    process.kill()
    process.communicate(timeout=10)


def commands_of(printed: str) -> list[str]:
    _, _, after = printed.partition("Try, in another terminal:\n")
    return [line.partition("   #")[0].strip() for line in after.splitlines() if line.startswith("  ")]


def test_what_it_says_to_try_works(folder: Path, kept: Any) -> None:
    process, printed = kept
    env = {**os.environ, "PATH": f"{REACH.parent}{os.pathsep}{os.environ['PATH']}", "TMPDIR": "/tmp"}
    commands = commands_of(printed)
    assert len(commands) == 7
    for command in commands:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=20, env=env)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        if not command.startswith("kill"):
            assert done.stdout.strip(), command
    # The last command killed the summarizer: its callers are told, with the reason, at once.
    url = next(word for word in commands[2].split() if word.startswith("http://"))
    status, problem = post(url, {"task": "x"})
    assert status in (502, 503)
    assert problem["type"].startswith("urn:reach:")
    assert process.stderr.readline() == "reach: summarizer-01 was killed by signal 9.\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []


def refused(url: str) -> bool:
    try:
        get(url)
    except OSError as error:
        return "refused" in str(error)
    return False


def test_nothing_is_left_of_a_demo_that_was_killed(folder: Path, kept: Any) -> None:
    process, printed = kept
    assert len(processes_of(folder)) == 10
    process.kill()
    process.wait(10)
    until("every process of it is gone", lambda: not processes_of(folder), 10)
    admin = next(word for word in commands_of(printed)[0].split() if word.startswith("http://"))
    until("nobody listens any more", lambda: refused(admin), 10)  # the kernel closes a dead process's files last


def test_a_failure_names_the_process_and_its_last_words(folder: Path) -> None:
    """A Node that cannot run stands for whatever may be wrong with a machine."""
    broken = folder / "node"
    broken.write_text("#!/bin/sh\necho no node today >&2\nexit 9\n")
    broken.chmod(0o755)
    env = {**os.environ, "TMPDIR": str(folder), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([str(REACH), "demo"], capture_output=True, text=True, timeout=TIMEOUT_S, env=env)
    assert done.returncode == 1
    assert "scribe-01 ended with exit code 9" in done.stderr
    assert "no node today" in done.stderr
    assert "Traceback" not in done.stderr
    broken.unlink()
    assert processes_of(folder) == []
