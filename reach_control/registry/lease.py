"""One agent's lease: how long its owner has been silent, and what that makes of the agent.

Silence alone moves an agent: up -> (ttl) suspect -> (down) down -> (forget) a tombstone, all counted from the
last renewal on this node's monotonic clock. Nothing here alters an entry on renewal.
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


@dataclass(slots=True)
class Lease:
    """`instance`: the process that owns the agent, empty where that is not known: the first to renew is taken
    for it. `confirmed`: the agent's health was seen once in this `gen`.
    """

    agent_id: str
    instance: str
    renewed_s: float
    confirmed: bool = False
    load: Load | None = None
    load_s: float = 0.0
    due_s: float = inf  # when it is looked at next

    def renew(self, now_s: float) -> None:
        self.renewed_s = max(self.renewed_s, now_s)

    def runs(self, now_s: float, terms: Terms) -> bool:
        return now_s - self.renewed_s < terms.ttl_s


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
