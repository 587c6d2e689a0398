import io
import json

import pytest

from reach_cli import terminal


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.has_colour(Tty())
    assert not terminal.has_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not terminal.has_colour(Tty())


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.has_colour(Tty())
    monkeypatch.setenv("NO_COLOR", "")  # empty counts as not set
    assert terminal.has_colour(Tty())


def test_a_closed_stream_is_no_terminal() -> None:
    closed = io.StringIO()
    closed.close()
    assert not terminal.is_terminal(closed)


def test_columns_line_up() -> None:
    text = terminal.table(("agent", "status"), [("a", "up"), ("longer-name", "down")])
    assert text.splitlines() == ["AGENT        STATUS", "a            up", "longer-name  down"]


def test_an_agents_name_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in terminal.table(("agent",), [("\x1b[2J\nevil",)])


def test_json_is_one_document_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_json({"name": "é", "list": [1, 2]})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"name": "é", "list": [1, 2]}
