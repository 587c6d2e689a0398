"""How `reach demo` shows a trace: every sidecar's log lines, merged, as a waterfall."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from reach_cli.terminal import paint

BAR_WIDTH = 30
EVENT_COLOURS = {"call": "cyan", "deliver": "green", "attempt": "yellow"}


def merge(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The lines as the calls are nested, siblings in the order in which they began.

    `began_ms` counts from the first: a line is written when its call ends, so it began `ms` before its own time.
    `depth` counts from 0. The called side's line has as its parent the span of the attempt that brought it
    (`attempt_span_id`); a call that an agent makes has the span of the call it serves.
    """
    placed = [{**line, "began_ms": _ended_ms(line) - float(line.get("ms") or 0)} for line in lines]
    first = min((line["began_ms"] for line in placed), default=0.0)
    for line in placed:
        line["began_ms"] -= first
    placed.sort(key=lambda line: line["began_ms"])
    calls = {line.get("span_id"): line for line in placed if line.get("event") == "call"}
    attempts = {line["attempt_span_id"]: line for line in placed if line.get("attempt_span_id")}
    served = {line.get("span_id"): line for line in placed if line.get("event") == "deliver"}
    children: dict[int, list[dict[str, Any]]] = {}
    roots: list[dict[str, Any]] = []
    for line in placed:
        if line.get("event") == "call":
            parent = served.get(line.get("parent_id"))
        elif line.get("event") == "deliver":
            parent = attempts.get(line.get("parent_id"))
        else:
            parent = calls.get(line.get("span_id"))
        (roots if parent is None else children.setdefault(id(parent), [])).append(line)
    ordered: list[dict[str, Any]] = []
    rest = [(line, 0) for line in reversed(roots)]
    while rest:
        line, depth = rest.pop()
        ordered.append({**line, "depth": depth})
        rest += [(child, depth + 1) for child in reversed(children.get(id(line), []))]
    return ordered


def waterfall(lines: Sequence[Mapping[str, Any]]) -> str:
    """A row per line: when it began, in whose sidecar, what, whom, the status, how long, and a bar."""
    total = max((line["began_ms"] + float(line.get("ms") or 0) for line in lines), default=0.0) or 1.0
    who = max((len(str(line.get("agent"))) for line in lines), default=0)
    what = max((len(_what(line)) for line in lines), default=0)
    rows = [
        paint(f"  {'began':>8}  {'sidecar of':<{who}}  {'event':<8} {'what':<{what}}  status      took", "bright_black")
    ]
    for line in lines:
        event = str(line.get("event", "?"))
        ms = float(line.get("ms") or 0)
        rows.append(
            f"  {line['began_ms']:>5.0f} ms  {line.get('agent')!s:<{who}}  "
            f"{paint(f'{event:<8}', EVENT_COLOURS.get(event))} {_what(line):<{what}}  "
            f"{line.get('status') or '-'!s:>6} {ms:>6.1f} ms  "
            f"{paint(_bar(line['began_ms'], ms, total), EVENT_COLOURS.get(event))}"
        )
    return "\n".join(rows)


def _what(line: Mapping[str, Any]) -> str:
    """`summarize to summarizer-01` where it was called from, `summarize from planner-01` where it arrived."""
    capability = str(line.get("capability") or "")
    indent = "  " * int(line.get("depth") or 0)
    if line.get("event") == "deliver":
        return f"{indent}{capability} from {line.get('caller') or '?'}"
    return f"{indent}{capability} to {line.get('target') or '?'}"


def _bar(began_ms: float, ms: float, total_ms: float) -> str:
    start = min(BAR_WIDTH - 1, int(began_ms / total_ms * BAR_WIDTH))
    length = min(BAR_WIDTH - start, max(1, round(ms / total_ms * BAR_WIDTH)))
    return " " * start + "█" * length


def _ended_ms(line: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(str(line["ts"])).timestamp() * 1000
