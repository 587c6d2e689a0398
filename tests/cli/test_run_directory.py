import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from reach_cli.run_directory import forget, note, notes, run_directory, start_of

READY = {"outbound": "127.0.0.1:1", "mesh": "127.0.0.1:2", "admin": "127.0.0.1:3"}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"REACH_RUN_DIR": str(tmp_path / "run")}


def test_where_it_is() -> None:
    assert run_directory({"REACH_RUN_DIR": "/a", "XDG_RUNTIME_DIR": "/b", "HOME": "/c"}) == Path("/a")
    assert run_directory({"XDG_RUNTIME_DIR": "/b", "HOME": "/c"}) == Path("/b/reach")
    assert run_directory({"HOME": "/c"}) == Path("/c/.local/state/reach/run")


def test_a_note_is_found_again_until_forgotten(env: dict[str, str]) -> None:
    path = note("sidecar", "planner-01", {"pid": os.getpid(), **READY}, env)
    (found,) = notes("sidecar", env)
    assert found["id"] == "planner-01"
    assert found["admin"] == "127.0.0.1:3"
    assert found["pid"] == os.getpid()
    assert notes("control", env) == []
    assert len(notes(None, env)) == 1
    forget(path)
    assert notes(None, env) == []


def test_only_this_user_may_look(env: dict[str, str]) -> None:
    path = note("sidecar", "a", READY, env)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_an_id_is_no_path(env: dict[str, str]) -> None:
    path = note("control", "../127.0.0.1:7080", READY, env)
    assert path.parent == run_directory(env)
    assert notes("control", env)[0]["id"] == "../127.0.0.1:7080"


def test_the_note_of_a_dead_process_is_removed(env: dict[str, str]) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    path = note("sidecar", "a", {"pid": child.pid, **READY}, env)
    assert [found["id"] for found in notes(None, env)] == ["a"]
    child.kill()
    # A zombie does not serve any more, so it counts as dead even before it is reaped.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert start_of(child.pid) is None
    assert notes(None, env) == []
    assert not path.exists()
    child.communicate()


def test_a_process_id_that_was_used_again_is_not_the_daemon(env: dict[str, str]) -> None:
    path = note("sidecar", "a", READY, env)
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "started": "1"}))
    assert notes(None, env) == []
    assert not path.exists()


def test_what_is_not_a_note_is_left_alone(env: dict[str, str]) -> None:
    directory = run_directory(env)
    directory.mkdir()
    for name, text in (("a.json", "{"), ("b.json", "[]"), ("c.json", '{"pid": 1}')):
        (directory / name).write_text(text)
    assert notes(None, env) == []
    assert len(list(directory.iterdir())) == 3


def test_a_note_that_another_process_replaced_stays(env: dict[str, str]) -> None:
    path = note("sidecar", "a", {"pid": os.getppid(), **READY}, env)
    forget(path)
    assert path.exists()


def test_a_directory_that_is_not_there(env: dict[str, str]) -> None:
    assert notes(None, env) == []
    forget(run_directory(env) / "sidecar-a.json")


def test_nothing_is_left_of_a_note_that_could_not_be_written(env: dict[str, str]) -> None:
    with pytest.raises(TypeError):
        note("sidecar", "a", {**READY, "bad": object()}, env)
    assert list(run_directory(env).iterdir()) == []
