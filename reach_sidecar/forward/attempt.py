"""The layer that tries agents until the call is answered, or nothing more can be done for it.

Each round: choose an agent, send, judge what came of it, and let the policy say what is next. The rules are in
`policy/repeat.py`; here they are carried out. A call in doubt stays with the one agent that may have run it.
"""

import asyncio
import contextlib
import time
from random import Random
from time import perf_counter
from typing import Protocol

from reach_core.peer import Rank
from reach_core.problem import Attempt as Tried
from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.chain import Chains
from reach_sidecar.forward.choose import Choose
from reach_sidecar.forward.failure import AttemptFailed
from reach_sidecar.forward.observe import CallLog
from reach_sidecar.forward.offers import FindOffers
from reach_sidecar.forward.pinned import UNKNOWN, Pinned
from reach_sidecar.forward.replay import ReplayedBody
from reach_sidecar.forward.send import Send
from reach_sidecar.forward.verdict import final_answer, problem_of
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Response
from reach_sidecar.membership.view import Offer, PeerView
from reach_sidecar.policy.backoff import parse_retry_after, wait_s
from reach_sidecar.policy.budget import Budgets
from reach_sidecar.policy.repeat import EXECUTED, SAFE_METHODS, Facts, Result, Step, classify, next_step
from reach_sidecar.policy.timeout import Shortest

MAX_ATTEMPTS_SHOWN = 16  # in a problem: a call in doubt may ask many times before its deadline
MAX_CAPABILITIES = 1_000


class AttemptCounters(Protocol):
    def observe_attempt(self, peer: str, result: str) -> None: ...

    def observe_retry(self, capability: str, why: str) -> None: ...

    def observe_breaker(self, peer: str, state: str) -> None: ...


class Attempt:
    def __init__(self, send: Send, *, view: PeerView, find: FindOffers, choose: Choose, random: Random, log: CallLog,
                 counters: AttemptCounters, chains: Chains) -> None:
        self._send = send
        self._view = view
        self._find_offers = find
        self._choose = choose
        self._random = random
        self._log = log
        self._counters = counters
        self._chains = chains
        self._budgets = Budgets()
        self._shortest: dict[str, Shortest] = {}
        self._loop = asyncio.get_running_loop()

    async def __call__(self, call: Call) -> Response:
        now = self._loop.time()
        self._gate(call, now)
        self._budgets.of(_target(call)).offer(now)
        body = ReplayedBody(call.request.body)
        tried: set[str] = set()
        counted = 0
        offer = self._first(call)
        step: Step | None = None
        while True:
            peer = offer.peer
            call.target = peer.agent_id
            tried.add(peer.agent_id)
            counted += step is None or not step.free
            started = perf_counter()
            trial = offer.track.breaker.begin(self._loop.time())
            failed: AttemptFailed
            peer.in_flight += 1  # from the choice on: whoever chooses next has to see it
            try:
                if call.pinned is not None:
                    await call.pinned.to(peer.agent_id, peer.journals.get(offer.capability.dedup, UNKNOWN), call.caller,
                                         call.deadline, call)
                call.sends += 1
                response = await self._send(call, offer, body, asked_again=step is not None and step.go == "same_agent")
            except AttemptFailed as broken:
                peer.in_flight -= 1
                failed = broken
            except BaseException as error:
                peer.in_flight -= 1
                if trial:
                    offer.track.breaker.abandoned()
                if isinstance(error, Problem):
                    self._note_problem(call, error, started)
                raise
            else:
                outcome = response.index.get(b"reach-outcome")
                result: Result = "answered"
                if outcome is not None or response.status >= 429:
                    result = classify(response.status, (outcome or b"").decode("latin-1"),
                                      b"retry-after" in response.index)
                if result == "answered":
                    self._answered(call, offer, started)
                    return response
                failed = AttemptFailed(result, _said(response, outcome), response)
            ms = (perf_counter() - started) * 1000
            self._failed(call, offer, failed, trial, ms)
            if call.pinned is not None:
                await _tell(call.pinned, call, offer, failed)
            step = self._next(call, offer, body, counted)
            waits_s = self._waits_s(call, failed, step)
            if step.go == "stop" or waits_s is None or not self._may_repeat(call, failed, step):
                return await self._give_up(call, failed, _repeatable(call))
            if failed.response is not None:
                _drop(failed.response)
            if not step.free:  # before anything is waited for: the others of the chain see it
                call.retries_left -= 1
                self._chains.spend(call.trace.trace_id, 1)
            if waits_s > 0.0:
                await asyncio.sleep(waits_s)
            found = await self._find(call, offer, failed, step, tried)
            if found is None:
                raise problem_of(call, failed, repeatable=_repeatable(call), exhausted=True)
            offer = found
            self._counters.observe_retry(call.capability, failed.result)

    # -- before

    def _gate(self, call: Call, now: float) -> None:
        """A call that cannot make it fails at once. Raises Problem."""
        remaining_s = call.deadline - now
        if remaining_s <= 0.0:
            raise Problem("deadline_exceeded", "The call's time was over before an agent could take it.",
                          executed=call.executed)
        shortest = self._shortest.get(call.capability)
        if shortest is not None and remaining_s < shortest.at(now) and not call.doubtful:
            raise Problem("deadline_too_short", f"{remaining_s * 1000:.0f} ms are left for this call, and none for "
                          f"{call.capability!r} was answered in under {shortest.at(now) * 1000:.0f} ms lately: give it "
                          "more time (Reach-Timeout).")

    def _first(self, call: Call) -> Offer:
        """Raises Problem where nobody may be called."""
        if call.doubtful and call.pinned is not None:
            agent = call.pinned.agent
            everyone = [call.offers, *self._view.fallback_offers(call.capability)] if call.capability else [call.offers]
            bound = next((offer for offers in everyone for offer in offers if offer.peer.agent_id == agent), None)
            if bound is None:
                raise Problem("outcome_unknown", f"An earlier call with this key may have run at {agent}, which is "
                              "gone: ask it when it is back, or find out by other means whether the work was done.",
                              agent=agent)
            return bound
        offer = self._choose(call, set(), again=False)
        if offer is None and call.capability:
            for offers in self._view.fallback_offers(call.capability):
                standing, call.offers = call.offers, _noted(call, offers)
                offer = self._choose(call, set(), again=False)
                if offer is not None:
                    break
                call.offers = standing
        if offer is None:
            raise self._choose.none_left(call)
        return offer

    # -- after an attempt

    def _answered(self, call: Call, offer: Offer, started: float) -> None:
        now = self._loop.time()
        call.attempt = call.sends
        call.answered = True
        agent = offer.peer.agent_id
        self._counters.observe_attempt(agent, "answered")
        if offer.track.answered(now):
            self._breaker_changed(offer, "closed")
        if call.agent_ms > 0.0:
            shortest = self._shortest.get(call.capability)
            if shortest is None and len(self._shortest) < MAX_CAPABILITIES:
                shortest = self._shortest[call.capability] = Shortest()
            if shortest is not None:
                shortest.note(perf_counter() - started, now)

    def _failed(self, call: Call, offer: Offer, failed: AttemptFailed, trial: bool, ms: float) -> None:
        call.results.append(failed.result)
        call.attempts.append(Tried(call.target, failed.result, ms, EXECUTED[failed.result]))
        if len(call.attempts) > MAX_ATTEMPTS_SHOWN:
            del call.attempts[MAX_ATTEMPTS_SHOWN // 2]
        self._counters.observe_attempt(call.target, failed.result)
        status = failed.response.status if failed.response is not None else 0
        if failed.blameless:
            if trial:
                offer.track.breaker.abandoned()
        elif offer.track.judge(failed.result, status, trial, self._loop.time(), self._random):
            self._breaker_changed(offer, offer.track.breaker.state(self._loop.time()))
        self._log.line({
            "level": "warn", "event": "attempt", "trace_id": call.trace.trace_id, "span_id": call.span_id,
            "attempt_span_id": call.attempt_span_id or None,
            "key": call.key.decode("latin-1"), "caller": call.caller, "target": call.target,
            "capability": call.capability, "attempt": call.sends, "outcome": failed.result,
            "ms": round(ms, 3), "detail": failed.detail,
        })

    def _note_problem(self, call: Call, problem: Problem, started: float) -> None:
        """The peer's word is final, or the call's own time is over."""
        call.attempts.append(Tried(call.target, problem.code, (perf_counter() - started) * 1000, problem.executed))
        self._counters.observe_attempt(call.target, problem.code)
        if problem.code != "key_reused" or len(call.attempts) > 1:  # else: what ran with the key was another request
            problem.executed = call.executed

    def _breaker_changed(self, offer: Offer, state: str) -> None:
        agent = offer.peer.agent_id
        self._counters.observe_breaker(agent, state)
        rest = f" for {offer.track.breaker.open_until - self._loop.time():.1f} s" if state == "open" else ""
        self._log.line({"level": "warn" if state == "open" else "info", "event": "breaker", "target": agent,
                        "capability": offer.capability.name, "status": state,
                        "detail": f"{offer.track.breaker.failures} calls in a row failed: no more go there{rest}"
                        if state == "open" else "a call was answered: calls go there again"})

    # -- what next

    def _next(self, call: Call, offer: Offer, body: ReplayedBody, counted: int) -> Step:
        if call.chain_budget is not None:  # what the others of its chain have spent meanwhile
            spent = self._chains.spent(call.trace.trace_id) - call.chain_start
            call.retries_left = min(call.retries_left, call.chain_budget - spent)
        results: list[Result] = ["broken", *call.results] if call.doubtful else call.results
        facts = Facts(_repeatable(call), body.replayable, offer.capability.dedup != "off", call.retries_left,
                      bool(call.session) and len(call.offers) > 1 and call.results[-1] in _SESSION_STAYS)
        return next_step(results, facts, counted)

    def _waits_s(self, call: Call, failed: AttemptFailed, step: Step) -> float | None:
        """How long until the next attempt; None: the deadline comes first."""
        now = self._loop.time()
        remaining_s = call.deadline - now
        if not step.free:  # an attempt that cannot make it would only turn "no" into "unknown"
            shortest = self._shortest.get(call.capability)
            remaining_s -= shortest.at(now) if shortest is not None else 0.0
        if not step.wait:
            return 0.0 if remaining_s > 0.0 else None
        told = failed.response.index.get(b"retry-after") if failed.response is not None else None
        waited = sum(result not in _AT_ONCE for result in call.results)
        return wait_s(max(0, waited - 1), self._random, retry_after_s=parse_retry_after(told, time.time()),
                      remaining_s=remaining_s)

    def _may_repeat(self, call: Call, failed: AttemptFailed, step: Step) -> bool:
        """Nothing was sent to an address that does not answer, and joining a call that runs is no work: neither can
        bury a target."""
        if step.free or failed.result == "connect_failed":
            return True
        if self._budgets.of(_target(call)).spend(self._loop.time()):
            return True
        call.remark("not_repeated", "budget")
        return False

    async def _find(self, call: Call, offer: Offer, failed: AttemptFailed, step: Step, tried: set[str]) -> Offer | None:
        """Whom the next attempt goes to; None: nobody is left."""
        if call.pinned is not None and call.pinned.joined:
            call.doubtful = True  # another call with the key has gone there meanwhile
        if step.go == "same_agent" or call.doubtful:
            again = self._again(offer)
            if again is not None or not _repeatable(call):
                return again
        found = self._other(call, tried, again=step.wait)
        if found is None and failed.result in _MAY_RUN_AGAIN:  # nobody else: the same one, but not at once
            waits_s = wait_s(0, self._random, retry_after_s=None, remaining_s=call.deadline - self._loop.time())
            if waits_s is not None:
                await asyncio.sleep(waits_s)
                found = self._other(call, tried, again=True)
        return found

    def _again(self, offer: Offer) -> Offer | None:
        """The same agent, wherever it is by now; None where the mesh has given it up: it will not answer any more."""
        peer = self._view.peer(offer.peer.agent_id)
        if peer is None or peer.entry.rank >= Rank.DOWN:
            return None
        return offer if peer is offer.peer else offer._replace(peer=peer, track=peer.track(offer.capability.name))

    def _other(self, call: Call, tried: set[str], *, again: bool) -> Offer | None:
        if again:  # a while has passed
            with contextlib.suppress(Problem):
                call.offers = _noted(call, self._find_offers(call)) or call.offers
        return self._choose(call, tried, again=again)

    async def _give_up(self, call: Call, failed: AttemptFailed, repeatable: bool) -> Response:
        """What the caller gets after the last attempt. Raises Problem where it is not the agent's own answer."""
        response = failed.response
        if response is None:
            raise problem_of(call, failed, repeatable=repeatable, out_of_time=self._loop.time() >= call.deadline)
        call.attempt = call.sends
        return await final_answer(call, failed, response, repeatable=repeatable)


_SESSION_STAYS: frozenset[str] = frozenset({"busy", "retryable", "server_error"})
_MAY_RUN_AGAIN: frozenset[str] = frozenset({"broken", "agent_broke", "timeout"})  # of calls that may be repeated
_AT_ONCE: frozenset[str] = frozenset({"busy", "draining", "agent_unreachable", "not_here", "store_unavailable"})


async def _tell(pinned: Pinned, call: Call, offer: Offer, failed: AttemptFailed) -> None:
    """What the attempt says of the key, to all calls with it.

    The first call can start a run, until it is in doubt. While none of its attempts ran, nothing has run. Any other
    call asks without an id, and so only hears of a run that goes on: when that one's agent says that nothing was done,
    there was no other.
    """
    leads = pinned.leader is call
    if leads and call.executed != "no":
        pinned.leads_no_more()
        leads = False
    if leads or (failed.result == "retryable" and not offer.capability.idempotent):
        journal = offer.peer.journals.get(offer.capability.dedup, UNKNOWN)
        await pinned.learn(offer.peer.agent_id, journal, call.deadline)


def _repeatable(call: Call) -> bool:
    """At any of those that may get it next: one agent's word does not hold for another."""
    return call.request.method in SAFE_METHODS or all(offer.capability.idempotent for offer in call.offers)


def _noted(call: Call, offers: list[Offer]) -> list[Offer]:
    """Those that came after the call began, less any that would need a note of where its key goes, which it has not."""
    if not call.key_given or call.pinned is not None or call.request.method in SAFE_METHODS:
        return offers
    return [offer for offer in offers if offer.capability.dedup != "durable" or offer.capability.idempotent]


def _target(call: Call) -> str:
    """Whose budget a repeat counts against: by all its names a capability is one target."""
    offer = call.offers[0]
    return offer.capability.name if call.capability else f"@{offer.peer.agent_id}"


def _said(response: Response, outcome: bytes | None) -> str:
    return f"its agent said {outcome.decode('latin-1')}" if outcome else f"its agent answered {response.status}"


def _drop(response: Response) -> None:
    """Another attempt follows: nobody reads this answer."""
    if isinstance(response.body, Body):
        response.body.abandon()
    response.sent(0, None)
