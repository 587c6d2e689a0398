import json
from typing import Any
from urllib.parse import parse_qs

LINE = {"ts": "2026-01-31T12:00:00.123Z", "level": "info", "event": "call", "agent": "a", "trace_id": "ab" * 16}


def canned(stand_in: Any, body: bytes) -> Any:
    return type(stand_in.answers["/v1/self"])(body)


def test_json_lines_when_piped(stand_in: Any, reach: Any) -> None:
    stored = json.dumps(LINE).encode() + b"\n"
    stand_in.answers["/v1/logs"] = canned(stand_in, stored * 2)
    result = reach("logs", "--trace-id", "ab" * 16, "--since", "10m", "--level", "warn")
    assert result.exit_code == 0
    assert result.stdout_bytes == stored * 2
    asked = parse_qs(stand_in.asked[-1].query)
    assert asked == {"trace_id": ["ab" * 16], "since": ["10m"], "level": ["warn"]}


def test_words_on_a_terminal(stand_in: Any, reach: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("reach_cli.logs.is_terminal", lambda _: True)
    stand_in.answers["/v1/logs"] = canned(stand_in, json.dumps({**LINE, "capability": "plan"}).encode() + b"\n")
    out = reach("logs").stdout
    assert out.startswith("12:00:00.123 info ")
    assert "plan" in out
    assert out.count("\n") == 1
    assert reach("logs", "--json").stdout.startswith("{")


def test_no_line(stand_in: Any, reach: Any) -> None:
    stand_in.answers["/v1/logs"] = canned(stand_in, b"")
    result = reach("logs", "--trace-id", "ab" * 16)
    assert result.exit_code == 0
    assert "has no log line of trace" in result.stderr


def test_following(stand_in: Any, reach: Any) -> None:
    data = json.dumps(LINE)
    stream = f': log\n\nid: 1\ndata: {data}\n\nevent: gap\ndata: {{"missed":3}}\n\nevent: end\ndata: {{}}\n\n'
    stand_in.answers["/v1/logs"] = canned(stand_in, stream.encode())
    result = reach("logs", "-f")
    assert result.stdout == data + "\n"
    assert "left out" in result.stderr
    assert result.exit_code == 1, "the sidecar ended it"
    assert parse_qs(stand_in.asked[-1].query) == {"follow": ["1"]}


def test_a_wrong_question_is_explained(stand_in: Any, reach: Any) -> None:
    detail = {"detail": "trace_id 'x' is not one: 32 hexadecimal digits are."}
    stand_in.answers["/v1/logs"] = type(stand_in.answers["/v1/self"])(detail, 400)
    result = reach("logs", "--trace-id", "x")
    assert result.exit_code == 2
    assert "32 hexadecimal digits" in result.stderr


def test_warning_is_another_spelling(stand_in: Any, reach: Any) -> None:
    stand_in.answers["/v1/logs"] = canned(stand_in, b"")
    assert reach("logs", "--level", "warning").exit_code == 0
    assert parse_qs(stand_in.asked[-1].query)["level"] == ["warn"]
    result = reach("logs", "--level", "loud")
    assert result.exit_code == 2
    assert "'debug', 'info', 'warn', 'error'" in result.stderr
