"""Log lines for people: what matters first, nothing that could drive a terminal."""

import orjson

from reach_sidecar.telemetry.text import render

CALL = {
    "ts": "2026-01-31T12:00:00.123Z", "agent": "planner-01", "level": "info", "event": "call", "trace_id": "ab" * 16,
    "target": "summarizer-01", "capability": "summarize", "status": 200, "outcome": "success", "ms": 12.345,
    "attempt": 1,
}  # fmt: skip


def test_a_call() -> None:
    assert render(orjson.dumps(CALL)) == (
        f"12:00:00.123 info  call planner-01 → summarizer-01 summarize 200 success 12.3 ms attempt=1  {'ab' * 16}\n"
    )


def test_a_delivery_names_the_caller() -> None:
    text = render(orjson.dumps({**CALL, "event": "deliver", "caller": "writer-02", "target": "planner-01"}))
    assert "deliver planner-01 ← writer-02 summarize" in text


def test_colour_only_when_asked() -> None:
    warning = orjson.dumps({**CALL, "level": "warn"})
    assert "\x1b" not in render(warning)
    assert render(warning, colour=True).startswith("\x1b[33m")


def test_control_characters_are_made_visible() -> None:
    text = render(orjson.dumps({**CALL, "capability": "a\x1b[2Jb\nc", "detail": "d\x07e"}))
    assert text.count("\n") == 1
    assert "a\\x1b[2Jb\\x0ac" in text
    assert "detail=d\\x07e" in text


def test_what_is_no_json_is_shown_as_it_is() -> None:
    assert render(b"plain words") == "plain words\n"
