"""The layer that picks an agent, tries it, and decides whether to try another."""

import asyncio
from random import Random
from time import perf_counter
from typing import Protocol

from reach_core.problem import Attempt as Tried
from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.chain import Chains
from reach_sidecar.forward.failure import AttemptFailed
from reach_sidecar.forward.observe import CallLog
from reach_sidecar.forward.replay import ReplayedBody
from reach_sidecar.forward.send import Send
from reach_sidecar.http1.message import Response
from reach_sidecar.membership.view import Offer
from reach_sidecar.policy.pick import Weights, pick
from reach_sidecar.policy.retry import EXECUTED, MAX_ATTEMPTS, SAFE_METHODS, next_step


class AttemptCounters(Protocol):
    def observe_attempt(self, peer: str, result: str) -> None: ...

    def observe_retry(self, capability: str) -> None: ...


class Attempt:
    def __init__(self, send: Send, *, weights: Weights, random: Random, log: CallLog,
                 counters: AttemptCounters, chains: Chains) -> None:
        self._send = send
        self._weights = weights
        self._random = random
        self._log = log
        self._counters = counters
        self._chains = chains
        self._loop = asyncio.get_running_loop()

    async def __call__(self, call: Call) -> Response:
        body = ReplayedBody(call.request.body)
        tried: set[str] = set()
        last: AttemptFailed | None = None
        while True:
            offer = self._choose(call, tried, last)
            if last is not None:
                call.retries_left -= 1
                self._chains.spend(call.trace.trace_id, 1)
                self._counters.observe_retry(call.capability)
            agent = call.target = offer.peer.agent_id
            tried.add(agent)
            started = perf_counter()
            try:
                response = await self._send(call, offer, body, len(call.attempts) + 1)
            except Problem as problem:
                call.attempts.append(Tried(agent, problem.code, (perf_counter() - started) * 1000, problem.executed))
                self._counters.observe_attempt(agent, problem.code)
                problem.executed = call.executed
                raise
            except AttemptFailed as failed:
                last = failed
                ms = (perf_counter() - started) * 1000
                call.results.append(failed.result)
                call.attempts.append(Tried(agent, failed.result, ms, EXECUTED[failed.result]))
                self._note(call, failed, ms)
                repeatable = offer.capability.idempotent or call.request.method in SAFE_METHODS
                step = next_step(call.results, repeatable=repeatable, replayable=body.replayable,
                                 retries_left=call.retries_left)
                if step == "stop":
                    raise _problem(call, failed) from None
                continue
            call.attempt = len(call.attempts) + 1
            self._counters.observe_attempt(agent, "answered")
            return response

    def _choose(self, call: Call, tried: set[str], last: AttemptFailed | None) -> Offer:
        """The better of two that may be called. Raises Problem where none is left."""
        now = self._loop.time()
        if now >= call.deadline:
            raise Problem("deadline_exceeded", "The call's time was over before an agent could take it.",
                          executed=call.executed)
        open_offers = [offer for offer in call.offers
                       if offer.peer.is_open(now) and offer.peer.agent_id not in tried]
        if not open_offers:
            raise _problem(call, last, exhausted=True) if last is not None else _none_available(call, now)
        if len(open_offers) == 1:
            return open_offers[0]
        shares = [offer.peer.entry.limits.weight for offer in open_offers]
        return open_offers[pick(shares, lambda index: open_offers[index].peer.candidate(now), self._weights,
                                self._random)]

    def _note(self, call: Call, failed: AttemptFailed, ms: float) -> None:
        self._counters.observe_attempt(call.target, failed.result)
        self._log.line({
            "level": "warn", "event": "attempt", "trace_id": call.trace.trace_id, "span_id": call.span_id,
            "attempt_span_id": call.attempt_span_id or None,
            "key": call.key.decode("latin-1"), "caller": call.caller, "target": call.target,
            "capability": call.capability, "attempt": len(call.attempts), "outcome": failed.result,
            "ms": round(ms, 3), "detail": failed.detail,
        })


def _none_available(call: Call, now: float) -> Problem:
    """Known, but none may be called: say why for each."""
    reasons = []
    for offer in call.offers[:10]:
        excluded = offer.peer.excluded(now)
        reasons.append(f"{offer.peer.agent_id}: {excluded.detail if excluded is not None else 'already tried'}")
    more = f" and {len(call.offers) - 10} more" if len(call.offers) > 10 else ""
    return Problem("no_agent_available", f"Known, but none can be called: {'; '.join(reasons)}{more}.")


def _problem(call: Call, last: AttemptFailed, *, exhausted: bool = False) -> Problem:
    """What the caller is told after the last attempt; `exhausted`: there was nobody left to try."""
    executed = call.executed
    said = f"{call.target}: {last.detail}."
    doubtful = next((one.agent for one in reversed(call.attempts) if one.executed == "unknown"), call.target)
    if last.result == "not_allowed":
        return Problem("not_allowed", said, executed=executed)
    if executed == "unknown":
        if last.result == "timeout":
            return Problem("deadline_exceeded", f"{said} {doubtful} may still have done the work.")
        code = "bad_agent_response" if last.result == "bad_answer" else "outcome_unknown"
        return Problem(code, f"{said} {doubtful} may have done the work: ask it, or repeat with the same "
                       "Idempotency-Key only if twice does no harm.")
    if all(result == "busy" for result in call.results):
        return Problem("backpressure", f"All agents that were asked are busy. Last {said}")
    if exhausted or len(call.attempts) < MAX_ATTEMPTS:
        tried = "; ".join(f"{attempt.agent}: {attempt.result}" for attempt in call.attempts)
        return Problem("no_agent_available", f"No agent could take the call ({tried}). Last {said}")
    return Problem("retries_exhausted", f"{len(call.attempts)} attempts failed. Last {said}", executed=executed)
