"""Room at an agent: may this call come in, and is it known from afar that there is none?

The called side has the say. It has `max_concurrency` places and a bounded queue before them, first come first
served: a place that falls free while others wait is theirs.

The calling side only spares itself a refusal. What an agent said of its load is old the moment it is heard, and
both errors cost: to believe in room that is gone costs one of the call's three attempts, to believe it full when it
is not leaves it idle. So `full` is believed for a quarter of a second, and only for that long. A caller then asks a
full agent in vain at most four times a second, so a hundred callers cost its sidecar 400 refusals a second, a tenth
of what it can carry; and the agents this is for, a few dozen places and seconds of work for each call, have freed a
few places by then. What the caller itself has under way at the agent it knows without being told, at any age.
"""

from typing import Literal

from reach_core.peer import Limits

BELIEVED_S = 0.25


def enter(running: int, queued: int, waiting: int, limits: Limits) -> Literal["enter", "wait", "busy"]:
    """What a call that has just come does. All three count calls at this agent, this one not among them.

    `running`: they hold a place. `waiting`: they wait for one. `queued`: they take up room in the queue, which may
    be more than `waiting` while some that were given a place have yet to take it.
    """
    if waiting == 0 and running < limits.max_concurrency:
        return "enter"
    return "wait" if queued < limits.queue else "busy"


def known_full(running: int, queued: int, limits: Limits, heard_ago_s: float | None, *, in_flight: int = 0) -> bool:
    """Would the agent refuse another call, as far as this caller can know?

    `running`, `queued`: what the agent said, `heard_ago_s` ago (None: it never said). `in_flight`: this caller's own
    calls that are under way there, each of them in a place or in the queue.
    """
    if in_flight >= limits.max_concurrency + limits.queue:
        return True
    if heard_ago_s is None or heard_ago_s > BELIEVED_S:
        return False
    return running >= limits.max_concurrency and queued >= limits.queue
