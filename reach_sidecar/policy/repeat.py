"""After an attempt: is it the answer, and if not, whom to ask next?

The rows of the design's table (§3, "When to try again") judge the call, not the attempt. A call is *in doubt* once
any attempt may have run and running twice would do harm. From then on only the agent that may have run it is asked,
with the same key, and asking is free: its sidecar joins the running call or replays the answer, so a repeat costs
the agent nothing and is bounded by the deadline alone. Where that sidecar has said that it does not know either,
or keeps no keys, asking again cannot tell more.

Every other repeat is work for somebody, and so counts: against the attempts of the call, the chain's retries and
the target's budget. That a repeatable call joins what still runs at the same agent is not sure (where it ended
without an answer it runs anew), so that counts too.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from reach_core.problem import Executed

MAX_ATTEMPTS = 3
CHAIN_RETRIES = 2
ADDRESS_OUT_S = 5.0  # how long an address that refused a connection is not tried again

Result = Literal[
    "connect_failed", "busy", "draining", "agent_unreachable", "not_here", "not_allowed", "store_unavailable",
    "broken",        # sent, and the connection between the sidecars broke (or its sidecar failed) before the answer
    "agent_broke",   # said by the called sidecar: its agent's connection broke, or it crashed while the call ran
    "timeout",       # the execution timed out, or the call's own time was over
    "retryable",     # retryable_failure, or 429 or 503 with Retry-After: says that it did not run
    "server_error",  # any other 5xx
    "bad_answer", "failure", "invalid_request", "answered",
]  # fmt: skip

EXECUTED: dict[Result, Executed] = {
    "connect_failed": "no", "busy": "no", "draining": "no", "agent_unreachable": "no", "not_here": "no",
    "not_allowed": "no", "store_unavailable": "no", "retryable": "no",
    "broken": "unknown", "agent_broke": "unknown", "timeout": "unknown", "server_error": "unknown",
    "bad_answer": "unknown",
    "failure": "yes", "invalid_request": "yes", "answered": "yes",
}

REFUSALS: frozenset[str] = frozenset({"busy", "draining", "agent_unreachable", "not_here", "not_allowed",
                                      "store_unavailable"})

SAFE_METHODS = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"QUERY", b"PROPFIND", b"SEARCH", b"REPORT"})

# What every agent would say as well, or what is the answer. `not_allowed` is a rule, not a state that passes.
_FINAL: frozenset[str] = frozenset({"not_allowed", "bad_answer", "failure", "invalid_request", "answered"})
# The called sidecar has spoken, and does not know: asked again with the same key, it would say so again.
_KNOWS_NO_MORE: frozenset[str] = frozenset({"agent_broke", "timeout"})
_BACK_OFF: frozenset[str] = frozenset({"retryable", "server_error"})


class Facts(NamedTuple):
    """What is known of the call besides its attempts."""

    repeatable: bool  # `idempotent: true`, or a safe method
    replayable: bool  # the request's body can be sent again
    deduplicated: bool  # the called side remembers keys, so the same agent may be asked again with the same key
    retries_left: int  # of the chain
    bound: bool  # key or session tie the call to one agent: never another one


class Step(NamedTuple):
    """What comes next. `same_agent`: with the same key. `wait`: after a back-off, or the answer's `Retry-After`.

    `free`: counts neither as one of the three attempts nor against the chain's retries and the target's budget.
    `next_agent` with all of them tried may mean one of them again, after a wait: whom, is the caller's to say.
    """

    go: Literal["next_agent", "same_agent", "stop"]
    wait: bool
    free: bool


STOP = Step("stop", wait=False, free=False)
_NEXT = Step("next_agent", wait=False, free=False)
_NEXT_LATER = Step("next_agent", wait=True, free=False)
_SAME = Step("same_agent", wait=False, free=False)
_SAME_LATER = Step("same_agent", wait=True, free=False)
_ASK = Step("same_agent", wait=False, free=True)
_ASK_LATER = Step("same_agent", wait=True, free=True)


def classify(status: int, outcome: str, retry_after: bool) -> Result:
    """What an agent's answer counts as. `outcome`: one of the four words, or "" where none was declared.

    The agent's own word wins over the status; `retry_after`: the answer carries that field.
    """
    if outcome == "":
        if status < 429:
            return "answered"
        if retry_after and status in (429, 503):
            return "retryable"
        return "server_error" if status >= 500 else "answered"
    if outcome == "failure":
        return "failure"
    if outcome == "retryable_failure":
        return "retryable"
    return "invalid_request" if outcome == "invalid_request" else "answered"


def next_step(results: Sequence[Result], facts: Facts, counted: int) -> Step:
    """What to do after `results`, all the attempts of this call, oldest first, at least one.

    `counted`: how many of them count, that is all but those made upon a step that was `free`. The deadline and
    the target's budget are for the caller to look at.
    """
    last = results[-1]
    if last in _FINAL or not facts.replayable:
        return STOP
    if not facts.repeatable and any(EXECUTED[result] != "no" for result in results):
        return _in_doubt(results, facts, counted)
    if counted >= MAX_ATTEMPTS or facts.retries_left <= 0:
        return STOP
    if last == "broken" and facts.deduplicated and "broken" not in results[:-1]:
        return _SAME  # it most likely runs on there: join it rather than run it twice
    if facts.bound:
        return _SAME_LATER
    return _NEXT_LATER if last in _BACK_OFF else _NEXT


def _in_doubt(results: Sequence[Result], facts: Facts, counted: int) -> Step:
    """Only the agent that may have run it may be asked, and only where it tells this call from a new one."""
    last = results[-1]
    if last in _KNOWS_NO_MORE or last == "server_error" or not facts.deduplicated:
        return STOP
    if last == "retryable":  # asked again it said: not done. To run it there is an attempt like any other
        return _SAME_LATER if counted < MAX_ATTEMPTS and facts.retries_left > 0 else STOP
    asked_before = any(EXECUTED[result] != "no" for result in results[:-1])
    return _ASK_LATER if asked_before else _ASK
