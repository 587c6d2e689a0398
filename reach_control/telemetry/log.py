"""Log lines of a control node: one JSON object a line on stderr, or text for people (design: logs)."""

import sys
import time
from collections.abc import Iterable
from typing import TextIO

import orjson

from reach_core.peer import Rank
from reach_core.table import Change

_LEVELS = {"debug": 10, "info": 20, "warn": 30, "error": 40}


class ControlLog:
    """Writes what is at least `level`; a stderr that is gone is no reason to stop serving."""

    def __init__(self, level: str = "info", form: str = "json", out: TextIO | None = None) -> None:
        self.level = level
        self._as_text = form == "text"
        self._out = out or sys.stderr

    @property
    def level(self) -> str:
        return self._level

    @level.setter
    def level(self, level: str) -> None:
        self._level, self._least = level, _LEVELS[level]

    def event(self, level: str, event: str, agent: str | None = None, detail: str = "") -> None:
        if _LEVELS[level] < self._least:
            return
        now = time.time()
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"
        if self._as_text:
            words = (stamp[11:23], f"{level:<5}", event, agent or "", detail)
            line = " ".join(word for word in words if word)
            line = "".join(char if char.isprintable() else "?" for char in line)
        else:
            record = {"ts": stamp, "level": level, "event": event}
            if agent is not None:
                record["agent"] = agent
            if detail:
                record["detail"] = detail
            line = orjson.dumps(record).decode()
        try:
            self._out.write(line + "\n")
            self._out.flush()
        except (OSError, ValueError):
            pass

    def changes(self, changes: Iterable[Change]) -> None:
        """A line for each change of the table."""
        for change in changes:
            self.event(*describe(change))


def describe(change: Change) -> tuple[str, str, str, str]:
    """Level, event, agent and detail of a change: `register`, `leave` or `status`."""
    before, after = change
    if after.is_tombstone:
        gone = before is not None and before.rank == Rank.DOWN
        detail = "forgotten after long silence" if gone else f"{after.rank.label}"
        return "info", "leave", after.agent_id, detail
    state = after.rank.label + "".join(f", {flag}" for flag in after.flags)
    if before is None or before.gen != after.gen:
        names = ", ".join(capability.name for capability in after.capabilities) or "no capabilities"
        return "info", "register", after.agent_id, f"{state} at {after.address}: {names}"
    if before.rank != after.rank:
        level = "warn" if after.rank in (Rank.SUSPECT, Rank.DOWN) else "info"
        return level, "status", after.agent_id, f"{before.rank.label} -> {state}"
    if before.flags != after.flags:
        return "info", "status", after.agent_id, state
    return "info", "status", after.agent_id, f"{state}: declaration changed"
