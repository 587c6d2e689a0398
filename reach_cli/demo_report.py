"""How `reach demo` shows a trace: every sidecar's log lines, merged, as a waterfall."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from reach_cli.terminal import paint

BAR_WIDTH = 30
EVENT_COLOURS = {"call": "cyan", "deliver": "green", "attempt": "yellow"}


def merge(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The lines in the order in which what they tell began; `began_ms` counts from the first.

    A line is written when its call ends, so it began `ms` before its own time.
    """
    timed = [(_ended_ms(line) - float(line.get("ms") or 0), line) for line in lines]
    first = min((began for began, _ in timed), default=0.0)
    # Of two that began together, the longer one encloses the other.
    timed.sort(key=lambda pair: (round(pair[0]), -float(pair[1].get("ms") or 0)))
    return [{**line, "began_ms": max(0.0, began - first)} for began, line in timed]


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
    if line.get("event") == "deliver":
        return f"{capability} from {line.get('caller') or '?'}"
    return f"{capability} to {line.get('target') or '?'}"


def _bar(began_ms: float, ms: float, total_ms: float) -> str:
    start = min(BAR_WIDTH - 1, int(began_ms / total_ms * BAR_WIDTH))
    length = min(BAR_WIDTH - start, max(1, round(ms / total_ms * BAR_WIDTH)))
    return " " * start + "█" * length


def _ended_ms(line: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(str(line["ts"])).timestamp() * 1000
