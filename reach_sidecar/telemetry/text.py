"""A log line as people read it: `12:00:00.123 info  call planner-01 → summarize 200 success 12.3 ms  4bf92f35`."""

from typing import Any

import orjson

_COLOURS = {"debug": "\x1b[2m", "info": "", "warn": "\x1b[33m", "error": "\x1b[31m"}
_DIM, _OFF = "\x1b[2m", "\x1b[0m"
_SHOWN = {"ts", "level", "event", "agent", "caller", "target", "capability", "status", "outcome", "ms", "trace_id"}


def render(data: bytes, *, colour: bool = False) -> str:
    """One line of text, newline included, of one JSON log line. Control characters are made visible."""
    try:
        record = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode("utf-8", "replace") + "\n"
    level = str(record.get("level", "info"))
    clock = str(record.get("ts", ""))[11:23]
    words = [clock, f"{level:<5}", str(record.get("event", "")), *_what(record)]
    others = [(name, value) for name, value in record.items() if name not in _SHOWN and value not in (None, "")]
    rest = [f"{name}={_safe(value)}" for name, value in others]
    trace = str(record.get("trace_id") or "")
    text = " ".join([_safe(word) for word in words if word] + rest)
    if colour and _COLOURS.get(level):
        text = f"{_COLOURS[level]}{text}{_OFF}"
    if trace:
        text += f"  {_DIM}{_safe(trace)}{_OFF}" if colour else f"  {_safe(trace)}"
    return text + "\n"


def _what(record: dict[str, Any]) -> list[str]:
    words = [str(record.get("agent") or "")]
    caller, target, capability = record.get("caller"), record.get("target"), record.get("capability")
    if caller and caller != record.get("agent"):
        words.append(f"← {caller}")
    if target and target != record.get("agent"):
        words.append(f"→ {target}")
    words.append(str(capability or ""))
    words += [str(record[name]) for name in ("status", "outcome") if record.get(name) is not None]
    ms = record.get("ms")
    if isinstance(ms, int | float):
        words.append(f"{ms:.1f} ms")
    return words


def _safe(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return "".join([char if char.isprintable() else f"\\x{ord(char):02x}" for char in text])
