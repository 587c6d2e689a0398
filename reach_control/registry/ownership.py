"""Who has an agent: registrations, renewals and leaves, each decided at once.

The owner is a process. The table names it (`entry.owner`), so every control node can tell it from another, after any
loss. While its lease runs nobody else gets the id, unless by `takeover`. `gen` grows with each registration, so the
larger one wins everywhere, and who comes with an older one is told: the same process takes the newer one over, another
has lost the id and fences itself. `ver` grows when the owner changes something or contradicts a suspicion; bad news
needs neither: within a `ver` the larger rank wins.
"""

from datetime import UTC, datetime
from math import inf

import msgspec

from reach_control.registry.damping import Damping
from reach_control.registry.declaration import entry_of, known_flags
from reach_control.registry.lease import Lease, Moment
from reach_control.registry.ledger import Ledger, Outcome
from reach_control.registry.silence import Silence
from reach_core.messages import HeartbeatRequest, LeaveRequest, Load, RegisterRequest
from reach_core.peer import UNFIT, Entry, Rank, owner_of
from reach_core.problem import Problem
from reach_core.table import MAX_AHEAD_MS, Change


class Ownership:
    def __init__(self, cluster: str, ledger: Ledger, silence: Silence, damping: Damping) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._silence = silence
        self._damping = damping

    def register(self, request: RegisterRequest, now: Moment) -> Outcome:
        """Raises Problem: `agent_id_conflict`, `bad_request`, `not_allowed`."""
        before = self._ledger.table.get(request.agent_id)
        if before is not None and before.rank == Rank.REVOKED:
            raise Problem("not_allowed", f"{request.agent_id} was revoked. Give this agent another id.")
        held = self._ledger.live(request.agent_id)
        fit = request.healthy and UNFIT not in request.flags
        if held is not None:
            lease, entry = held
            is_owner = entry.owner in ("", owner_of(request.instance))
            if not is_owner and not request.takeover and lease.runs(now.s, self._ledger.terms):
                raise self._taken(lease, entry, now)
            if is_owner and request.gen == entry.gen:
                return self._declare_again(lease, entry, request, fit, now)
        gen = self._issue_gen(before, request.gen, now)
        new = entry_of(request, self._cluster, gen, 1, Rank.UP if fit else Rank.JOINING)
        outcome = self._write(new, now)
        self._silence.end(request.agent_id)
        self._renew(self._ledger.hold(new, now.s, fit), request.load, now.s)
        return outcome

    def heartbeat(self, request: HeartbeatRequest, now: Moment) -> Outcome:
        """Renew. Raises Problem: `register_again`, `agent_id_conflict`."""
        held = self._ledger.live(request.agent_id)
        if held is None:
            raise self._unknown(request.agent_id)
        lease, before = held
        self._check_owner(lease, before, request.instance, now)
        if request.gen > before.gen:  # this node has lost, or not heard yet, what the owner registered last
            raise self._unknown(request.agent_id)
        self._renew(lease, request.load, now.s)
        if 0 < request.gen < before.gen:
            return Outcome(before, [])
        flags, owner = known_flags(request.flags), owner_of(request.instance)
        lease.confirmed = lease.confirmed or (request.healthy and UNFIT not in flags)
        rank, is_new = self._rank(lease, before, now.s)
        is_new = is_new or flags != before.flags or owner != before.owner
        if is_new or (request.gen == before.gen and request.ver > before.ver):
            ver = _next_ver(before, request.gen, request.ver)
            entry = msgspec.structs.replace(before, ver=ver, rank=rank, flags=flags, owner=owner)
        elif rank > before.rank:
            entry = msgspec.structs.replace(before, rank=rank)
        else:
            return Outcome(before, [])
        outcome = self._write(entry, now)
        self._silence.back(lease, outcome.entry)
        return outcome

    def leave(self, request: LeaveRequest, now: Moment) -> list[Change]:
        """Remove the agent now; one that is not here has left already. Raises Problem `agent_id_conflict`."""
        held = self._ledger.live(request.agent_id)
        if held is None:
            return []
        lease, entry = held
        self._check_owner(lease, entry, request.instance, now)
        if entry.gen <= request.gen < now.ms + MAX_AHEAD_MS:  # it may know of more than this node has heard
            ver = max(entry.ver, request.ver) if request.gen == entry.gen else request.ver
            entry = msgspec.structs.replace(entry, gen=request.gen, ver=ver)
        outcome = self._write(entry.tombstone(now.ms, ver=entry.ver + 1), now)
        self._silence.end(request.agent_id)
        return outcome.changes

    # -- steps

    def _check_owner(self, lease: Lease, entry: Entry, instance: str, now: Moment) -> None:
        """An entry that names nobody is for the first to renew."""
        if entry.owner not in ("", owner_of(instance)):
            raise self._taken(lease, entry, now)

    def _taken(self, lease: Lease, entry: Entry, now: Moment) -> Problem:
        heard_s = max(0.0, now.s - max(lease.heard_s, lease.renewed_s))
        return Problem(
            "agent_id_conflict",
            f"Another process is registered as {entry.agent_id} since {_clock_time(entry.gen)} and was heard of "
            f"{heard_s:.0f} s ago. Give this one another id, or stop the other and wait until its lease of "
            f"{self._ledger.terms.ttl_s:.0f} s has run out.",
            agent=entry.agent_id,
        )

    def _unknown(self, agent_id: str) -> Problem:
        return Problem("register_again", f"{agent_id} is not registered here. Register it again with its declaration.")

    def _issue_gen(self, before: Entry | None, had: int, now: Moment) -> int:
        """Larger than any seen for this id. `had` counts too: this node may have lost its notes."""
        highest = before.gen if before is not None else 0
        if had < now.ms + MAX_AHEAD_MS:
            highest = max(highest, had)
        return max(now.ms, highest + 1)

    def _declare_again(self, lease: Lease, before: Entry, request: RegisterRequest, fit: bool, now: Moment) -> Outcome:
        """The owner of this very registration, perhaps with something else to say about its agent."""
        same = entry_of(request, self._cluster, before.gen, before.ver, before.rank)
        lease.confirmed = lease.confirmed or fit
        self._renew(lease, request.load, now.s)
        rank, is_new = self._rank(lease, before, now.s)
        if is_new or same != before or request.ver > before.ver:
            ver = _next_ver(before, request.gen, request.ver)
            entry = msgspec.structs.replace(same, ver=ver, rank=rank)
        elif rank > before.rank:
            entry = msgspec.structs.replace(before, rank=rank)
        else:
            return Outcome(before, [])
        outcome = self._write(entry, now)
        self._silence.back(lease, outcome.entry)
        return outcome

    def _rank(self, lease: Lease, before: Entry, now_s: float) -> tuple[Rank, bool]:
        """What a sign of life makes of the agent, and whether that has to be said with a new `ver`."""
        healthy = Rank.UP if lease.confirmed else Rank.JOINING
        if before.rank < Rank.SUSPECT:
            return max(healthy, before.rank), False
        if now_s < lease.held_until_s:
            return Rank.SUSPECT, before.rank != Rank.SUSPECT
        if lease.held_until_s == -inf and (hold_s := self._damping.hold_s(lease.agent_id, now_s)) > 0:
            lease.held_until_s = now_s + hold_s
            return Rank.SUSPECT, True  # a new `ver`: other nodes must not take it for one to contradict
        if lease.held_until_s > -inf:
            self._damping.released(lease.agent_id, now_s)
            lease.held_until_s = -inf
        return healthy, True

    def _renew(self, lease: Lease, load: Load | None, now_s: float) -> None:
        lease.renew(now_s)
        self._ledger.heard(lease.agent_id)
        entry = self._ledger.table.get(lease.agent_id)
        if entry is not None and (lease.is_overdue or entry.rank >= Rank.SUSPECT):
            self._silence.back(lease, entry)
        if load is not None:
            lease.load, lease.load_s = load, now_s

    def _write(self, entry: Entry, now: Moment) -> Outcome:
        """Raises Problem where the table refuses the entry: nobody would see it."""
        table = self._ledger.table
        before = table.refused.copy()
        outcome = self._ledger.write(entry, now)
        for reason in table.refused - before:
            raise self._not_taken(entry, reason)
        return outcome

    def _not_taken(self, entry: Entry, reason: str) -> Problem:
        if reason == "full":
            detail = f"The mesh is full: it has {len(self._ledger.table)} agents. Remove some, or start a second mesh."
            return Problem("not_allowed", detail)
        if reason == "ahead":
            detail = (
                f"The latest registration of {entry.agent_id} was made more than a day after what this node's clock "
                "says now. Set the clock of this machine right, or give the agent another id."
            )
            return Problem("agent_id_conflict", detail, agent=entry.agent_id)
        return Problem("bad_request", f"The table does not take the entry of {entry.agent_id}: {reason}.")


def _next_ver(before: Entry, gen: int, ver: int) -> int:
    """Above what is known here and what the owner was told for this gen."""
    return max(before.ver, ver if gen == before.gen else 0) + 1


def _clock_time(gen: int) -> str:
    """A `gen` is the time of its registration."""
    try:
        return datetime.fromtimestamp(gen // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "a time unknown"
