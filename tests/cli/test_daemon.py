import os

import pytest

from reach_cli.daemon import complain, noted
from reach_cli.run_directory import notes
from reach_core.settings.complaint import Complaint, ConfigError


def test_every_complaint_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = ConfigError([Complaint("a.yaml", 3, 5, "first"), Complaint("a.yaml", 9, 1, "second")])
    failure = complain(error)
    assert capsys.readouterr().err == "a.yaml:3:5: first\na.yaml:9:1: second\n"
    assert failure.exit_code == 1
    assert "2 mistakes" in failure.message


def test_wrong_flags_are_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    failure = complain(ConfigError([Complaint("--id", 0, 0, "expected an id")]))
    assert capsys.readouterr().err == "--id: expected an id\n"
    assert (failure.exit_code, "command line" in failure.message) == (2, True)
    both = ConfigError([Complaint("--id", 0, 0, "expected an id"), Complaint("a.yaml", 9, 1, "second")])
    assert complain(both).exit_code == 1


def test_a_daemon_is_noted_while_it_runs() -> None:
    with noted("sidecar", "one") as on_ready:
        assert notes() == []
        on_ready({"pid": os.getpid(), "outbound": "127.0.0.1:1", "mesh": "127.0.0.1:2", "admin": "127.0.0.1:3"})
        assert [note["id"] for note in notes("sidecar")] == ["one"]
    assert notes() == []


def test_a_daemon_serves_without_its_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REACH_RUN_DIR", "/proc/nowhere")
    with noted("sidecar", "one") as on_ready:
        on_ready({"pid": os.getpid(), "admin": "127.0.0.1:3"})
    assert "need --admin" in capsys.readouterr().err
