import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reach_os.state_dir import StateDirError, StateDirTaken, default_state_dir, lock_state_dir, state_home

HOLD = "import sys; from reach_os.state_dir import *; d=lock_state_dir(sys.argv[1]); print('held', flush=True); input()"


def test_where_it_is() -> None:
    assert state_home({"XDG_STATE_HOME": "/s", "HOME": "/c"}) == Path("/s/reach")
    assert state_home({"HOME": "/c"}) == Path("/c/.local/state/reach")
    assert default_state_dir("/r", "x", {"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}, root=True) == "/var/lib/a"
    assert default_state_dir("/r", "x", {"XDG_STATE_HOME": "/xdg"}, root=True) == "/r"
    assert default_state_dir("/r", "x", {"XDG_STATE_HOME": "/xdg"}, root=False) == "/xdg/reach/x"


def test_the_directory_is_made_private_and_given_back(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    state = lock_state_dir(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    state.release()
    lock_state_dir(folder).release()


def test_a_second_process_is_told_who_has_it_and_a_killed_one_leaves_it(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StateDirTaken, match=rf"in use by pid {holder.pid} \(") as taken:
            lock_state_dir(tmp_path)
        assert taken.value.pid == holder.pid
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(10)
    lock_state_dir(tmp_path).release()


def test_a_path_that_cannot_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateDirError, match="set `state_dir` to another directory"):
        lock_state_dir(tmp_path / "file" / "below")
