"""Why an agent is not given a call now: one of the fixed reasons of the local API (design §2), with a sentence."""

from typing import NamedTuple

from reach_core.peer import Entry, Limits, Rank

_SINCE = {
    Rank.JOINING: ": its agent has not passed a health check yet",
    Rank.SUSPECT: ": its sidecar has not renewed in time",
    Rank.DOWN: ": its sidecar has long not renewed",
    Rank.LEFT: "",
    Rank.REVOKED: "",
}


DRAINS = "it answered that it takes no new calls"
"""The trouble of an agent whose own answers said so: what the table does not say while no control node is there."""


class Exclusion(NamedTuple):
    reason: str
    detail: str


def why_excluded(entry: Entry, *, unreachable_for_s: float, trouble: str) -> Exclusion | None:
    """None for an agent that may be called.

    `unreachable_for_s` is how long its address will still be left alone after `trouble`; 0 or less: it may be tried.
    """
    if entry.rank is not Rank.UP:
        return Exclusion("agent_down", f"its status is {entry.rank.label}{_SINCE[entry.rank]}")
    if entry.unfit:
        return Exclusion("agent_unfit", "its own sidecar finds the agent unhealthy")
    if entry.draining:
        return Exclusion("draining", "it is shutting down and takes no new calls")
    if unreachable_for_s > 0:
        reason = "draining" if trouble == DRAINS else "unreachable"
        return Exclusion(reason, f"{trouble}; tried again in {unreachable_for_s:.1f} s")
    return None


def breaker_open(failures: int, rest_s: float) -> Exclusion:
    """The breaker of this caller is not closed: `failures` in a row, `rest_s` until one call may try it."""
    when = f"one call tries it in {rest_s:.1f} s" if rest_s > 0 else "one call is trying it now, or may"
    return Exclusion("breaker", f"{failures} calls in a row failed; {when}")


def full(limits: Limits) -> Exclusion:
    return Exclusion("full", f"all of its {limits.max_concurrency} places are taken and {limits.queue} calls wait")
