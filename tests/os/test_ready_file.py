"""The ready file is whole or not there."""

import json
from pathlib import Path

import pytest

from reach_os.ready_file import forget_ready_file, write_ready_file

READY = {"pid": 7, "api": "127.0.0.1:1"}


def test_written_and_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet" / "ready.json"
    for ready in (READY, {**READY, "pid": 8}):
        write_ready_file(path, ready)
        assert json.loads(path.read_text()) == ready
    assert [file.name for file in path.parent.iterdir()] == ["ready.json"]
    forget_ready_file(path)
    forget_ready_file(path)
    assert not path.exists()


def test_where_none_can_be(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        write_ready_file(tmp_path, READY)
    forget_ready_file(tmp_path)
