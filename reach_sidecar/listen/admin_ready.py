"""Is this sidecar ready, and if not, or not quite: what is missing, in sentences."""

from typing import NamedTuple

import orjson


class Readiness(NamedTuple):
    """`lines` may hold remarks on a sidecar that is ready all the same."""

    ready: bool
    lines: list[str]

    def to_json(self) -> bytes:
        return orjson.dumps({"ready": self.ready, "reasons": self.lines}) + b"\n"

    def to_text(self) -> str:
        return "\n".join(["ready" if self.ready else "not ready", *self.lines]) + "\n"


class Facts(NamedTuple):
    """What readiness is judged by. `table_age_s` is None while there is no table at all."""

    connected: bool
    table_age_s: float | None
    from_cache: bool = False
    has_agent: bool = False
    registered: bool = False
    unfit: bool = False
    draining: bool = False
    controls: tuple[str, ...] = ()


def judge(facts: Facts) -> Readiness:
    """Ready: it has a table to route on, its agent (if any) is registered unless control is gone, no draining.

    An unfit agent is a remark only: others are still called through this sidecar, and it is not picked anyway.
    """
    ready, lines = True, []
    where = f" ({', '.join(facts.controls)})" if facts.controls else ""
    if not facts.connected:
        never = facts.table_age_s is None or facts.from_cache
        gone = f"no control node reached yet{where}" if never else f"no control node answers now{where}"
        if facts.table_age_s is None:
            ready = False
            lines.append(f"{gone}; there is no table to route on")
        else:
            kind = "cached table" if facts.from_cache else "table"
            lines.append(f"{gone}; routing on the {kind} of {facts.table_age_s:.0f} s ago")
    elif facts.table_age_s is None:
        ready = False
        lines.append("the table has not arrived from control yet")
    if facts.has_agent and not facts.registered:
        if facts.connected:
            ready = False
        lines.append("the agent is not registered yet: others cannot call it")
    if facts.unfit:
        lines.append("the agent does not answer its health checks: others do not call it")
    if facts.draining:
        ready = False
        lines.append("draining: others are asked not to call this agent any more")
    return Readiness(ready, lines)
