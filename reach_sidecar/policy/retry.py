"""After an attempt that brought no answer: try another agent, or say what is known?

The rows judge the call, not the attempt: once one attempt may have run, a call that is not repeatable is not
given to another agent (design §3, "When to try again").
"""

from collections.abc import Sequence
from typing import Literal

from reach_core.problem import Executed

MAX_ATTEMPTS = 3
CHAIN_RETRIES = 2
ADDRESS_OUT_S = 5.0  # how long an address that refused a connection is not tried again

Result = Literal["connect_failed", "busy", "draining", "agent_unreachable", "not_here", "not_allowed",
                 "store_unavailable", "broken", "timeout", "bad_answer", "answered"]
Step = Literal["next_agent", "stop"]

EXECUTED: dict[Result, Executed] = {
    "connect_failed": "no", "busy": "no", "draining": "no", "agent_unreachable": "no", "not_here": "no",
    "not_allowed": "no", "store_unavailable": "no",
    "broken": "unknown", "timeout": "unknown", "bad_answer": "unknown",
    "answered": "yes",
}

REFUSALS: frozenset[str] = frozenset({"busy", "draining", "agent_unreachable", "not_here", "not_allowed",
                                      "store_unavailable"})

SAFE_METHODS = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"QUERY", b"PROPFIND", b"SEARCH", b"REPORT"})


def next_step(results: Sequence[Result], *, repeatable: bool, replayable: bool, retries_left: int) -> Step:
    """What to do after `results`, all the attempts of this call, oldest first.

    `repeatable`: declared idempotent, or a safe method. `replayable`: the request's body can be sent again.
    """
    if results[-1] in ("answered", "not_allowed", "bad_answer"):
        return "stop"
    if len(results) >= MAX_ATTEMPTS or retries_left <= 0 or not replayable:
        return "stop"
    if not repeatable and any(EXECUTED[result] != "no" for result in results):
        return "stop"
    return "next_agent"
