"""One agent's lease: how long its owner has been silent, and what that makes of the agent.

Silence alone moves an agent: up -> (ttl) suspect -> (down) down -> (forget) a tombstone, all counted from the
last renewal on this node's monotonic clock. Nothing here alters an entry on renewal.

A lease may be granted in full to an agent nobody has heard of here, after a restart or when another node told of it.
So what is counted from (`renewed_s`) and what is known (`heard_s`) are two things: only who was heard of contradicts
another node's suspicion.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from reach_core.messages import Load
from reach_core.peer import Rank


class Moment(NamedTuple):
    """Now: `s` on the monotonic clock (leases), `ms` since the epoch (gen, tombstones)."""

    s: float
    ms: int


class Terms(NamedTuple):
    """Seconds. The defaults are the design's."""

    heartbeat_s: float = 10.0
    ttl_s: float = 30.0
    down_s: float = 60.0
    forget_s: float = 600.0
    cooldown_s: float = 30.0


@dataclass(slots=True)
class Lease:
    """Of one registration, `gen`. All times on the monotonic clock, `inf` or `-inf` where there is none."""

    agent_id: str
    gen: int
    renewed_s: float  # silence is counted from here
    heard_s: float = -inf  # the owner's last heartbeat, taken here or by another node
    confirmed: bool = False  # the agent's health was seen once in this gen
    load: Load | None = None
    load_s: float = 0.0
    due_s: float = inf  # when it is looked at next
    is_overdue: bool = False  # the lease ran out, and whether the agent is gone is being found out
    is_gone: bool = False  # control and two sidecars saw so
    held_until_s: float = -inf  # back, but not yet trusted (damping)
    suspected_s: float = inf  # when this node's clock made it suspect

    def renew(self, at_s: float) -> None:
        """The owner was heard of at that time."""
        self.heard_s = max(self.heard_s, at_s)
        self.renewed_s = max(self.renewed_s, at_s)

    def runs(self, now_s: float, terms: Terms) -> bool:
        return now_s - self.renewed_s < terms.ttl_s

    def is_heard(self, now_s: float, terms: Terms) -> bool:
        """Does it run because the owner was heard of?"""
        return now_s - self.heard_s < terms.ttl_s


class Step(NamedTuple):
    """What silence makes of an agent, and when (monotonic seconds)."""

    rank: Rank
    due_s: float


def next_step(rank: Rank, lease: Lease, terms: Terms) -> Step:
    """The step that comes next, if the owner stays silent, for an agent that is `rank` now."""
    if rank < Rank.SUSPECT:
        return Step(Rank.SUSPECT, lease.renewed_s + terms.ttl_s)
    if rank == Rank.SUSPECT:
        return Step(Rank.DOWN, lease.renewed_s + terms.down_s)
    return Step(Rank.LEFT, lease.renewed_s + terms.forget_s)
