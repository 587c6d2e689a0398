"""Which agent gets the next attempt, and if none may, why.

Candidates are the agents that are up, fit, not draining, reachable, with a closed breaker, and not known to be full
(design §3, "Picking"). The better of two drawn ones is called; a session goes to its own agent.
"""

import asyncio
from collections.abc import Iterable, Sequence
from random import Random

from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.membership.view import Offer, PeerView
from reach_sidecar.policy.attributes import share_met
from reach_sidecar.policy.exclude import Exclusion
from reach_sidecar.policy.pick import MANY, MATCH, Candidate, Weights, pick, score, through_broken
from reach_sidecar.policy.session import Sessions

SHOWN = 10  # agents that a problem or a log line names at most
FEW = 8  # agents that are all looked at, so that the log can say of each why it was not picked


class Choose:
    def __init__(self, *, view: PeerView, weights: Weights, random: Random) -> None:
        self._view = view
        self._weights = weights
        self._random = random
        self._sessions = Sessions()
        self._loop = asyncio.get_running_loop()

    def __call__(self, call: Call, tried: set[str], *, again: bool) -> Offer | None:
        """The offer to try next; None: none of them may be called. `again`: those that were tried may be tried again,
        where there is nobody else."""
        now = self._loop.time()
        offers = call.offers
        if call.session and len(offers) > 1:
            return self._of_session(call, tried, again, now)
        if not tried:
            if len(offers) > FEW and self._view.is_even:
                drawn = self._two_of_many(call, offers, now)
                if drawn is not None:
                    return drawn
            found = [offer for offer in offers if offer.peer.may_take(now) and offer.track.breaker.allows(now)]
            if len(found) < len(offers):
                found = self._despite_breakers(offers, found, now)
                call.remark("not_picked", self.excluded(offers, now, found))
        else:
            found = self._candidates([offer for offer in offers if offer.peer.agent_id not in tried], now)
            if not found and again:
                found = self._candidates(offers, now)
        if len(found) <= 1:
            return found[0] if found else None
        return found[self._better(call, found, now)]

    def _two_of_many(self, call: Call, offers: list[Offer], now: float) -> Offer | None:
        """The better of two, looking at these two only; None: one of them may not be called, and all have to be looked
        at."""
        count = len(offers)
        first = int(self._random.random() * count)
        second = int(self._random.random() * (count - 1))
        two = (offers[first], offers[second + (second >= first)])
        for offer in two:
            peer = offer.peer
            if not peer.may_take(now) or not offer.track.breaker.allows(now):
                return None
        if score(self._candidate(call, two[0], now), self._weights) >= score(self._candidate(call, two[1], now),
                                                                             self._weights):
            return two[0]
        return two[1]

    def _candidate(self, call: Call, offer: Offer, now: float) -> Candidate:
        peer = offer.peer
        prefer = share_met(call.preferred, offer.capability.attributes) if call.preferred else 0.0
        return Candidate(peer.load(now), MATCH[offer.matched], peer.rtt, prefer, offer.track.failures.at(now))

    def _candidates(self, offers: list[Offer], now: float) -> list[Offer]:
        found = [offer for offer in offers if offer.peer.may_take(now) and offer.track.breaker.allows(now)]
        return found if len(found) == len(offers) else self._despite_breakers(offers, found, now)

    def _despite_breakers(self, offers: list[Offer], found: list[Offer], now: float) -> list[Offer]:
        """`found`, or with most of many agents broken, for some calls, those as well."""
        if len(offers) < MANY:
            return found
        standing = [offer for offer in offers if offer.peer.is_open(now)]
        broken = sum(not offer.track.breaker.allows(now) for offer in standing)
        if not through_broken(len(standing), broken, self._random):
            return found
        return [offer for offer in standing if not offer.peer.is_full(now)]

    def _of_session(self, call: Call, tried: set[str], again: bool, now: float) -> Offer | None:
        """The session's own agent. It moves when that one cannot be called; a full one is only busy."""
        fit = [offer for offer in call.offers if offer.peer.is_open(now) and offer.track.breaker.allows(now)
               and (again or offer.peer.agent_id not in tried)]
        if not fit:
            return None
        session = call.session.decode("latin-1")
        return fit[self._sessions.place(call.capability, session, [offer.peer.agent_id for offer in fit])]

    def _better(self, call: Call, found: list[Offer], now: float) -> int:
        shares = [offer.peer.entry.limits.weight for offer in found]

        def candidate(index: int) -> Candidate:
            return self._candidate(call, found[index], now)

        return pick(shares, candidate, self._weights, self._random)

    def excluded(self, offers: Sequence[Offer], now: float, found: Sequence[Offer] = ()) -> dict[str, str]:
        """Agent → the reason why it was not picked, for the log."""
        chosen = {offer.peer.agent_id for offer in found}
        reasons: dict[str, str] = {}
        for offer in offers:
            if offer.peer.agent_id not in chosen and len(reasons) < SHOWN:
                why = offer.peer.excluded(now, offer.capability.name)
                if why is not None:
                    reasons[offer.peer.agent_id] = why.reason
        return reasons

    def none_left(self, call: Call) -> Problem:
        """Known, but none may be called: says why for each."""
        now = self._loop.time()
        reasons: list[Exclusion] = []
        sentences: list[str] = []
        for offer in call.offers:
            why = offer.peer.excluded(now, offer.capability.name)
            if why is not None:
                reasons.append(why)
            if len(sentences) < SHOWN:
                sentences.append(f"{offer.peer.agent_id}: {why.detail if why is not None else 'already tried'}")
        sentences += call.mismatched[:SHOWN - len(sentences)]
        hidden = len(call.offers) + len(call.mismatched) - len(sentences)
        more = f" and {hidden} more" if hidden else ""
        told = f"{'; '.join(sentences)}{more}."
        if _all(reasons, "full", call):
            return Problem("backpressure", f"All agents are busy: {told}")
        if _all(reasons, "breaker", call):
            rest_s = min(offer.track.breaker.open_until for offer in call.offers) - now
            return Problem("breaker_open", f"Too many calls failed, and the agents are given a rest: {told}",
                           retry_after_s=max(1, int(rest_s + 0.999)))
        return Problem("no_agent_available", f"Known, but none can be called: {told}")


def _all(reasons: Iterable[Exclusion], reason: str, call: Call) -> bool:
    found = list(reasons)
    return len(found) == len(call.offers) and all(why.reason == reason for why in found)
