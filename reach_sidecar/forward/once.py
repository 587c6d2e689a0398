"""The called side's memory: each key runs once (design §3, "Dedup").

A call is looked up by its key first. One that runs is joined, one that has ended is answered again, and what cannot
be answered again says so. A new key goes on to the room, is noted where the store is durable, and reaches the agent.
From the look-up on it counts as running here, so two calls with one key never wait for room side by side.

What the agent answers is kept, unless it says that nothing was done: then the key is free again. A run that ended
without an answer leaves the key in doubt, for good where running twice would do harm.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from reach_core.problem import Problem
from reach_sidecar.forward import fields
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.failure import Refusal
from reach_sidecar.forward.observe import Layer
from reach_sidecar.forward.run import Run, Store
from reach_sidecar.forward.stores import Stores
from reach_sidecar.forward.whole_body import whole_body
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Field, Response
from reach_sidecar.journal.answer import Answer
from reach_sidecar.journal.runs import KeyExists, Row
from reach_sidecar.membership.local import LocalAgent
from reach_sidecar.policy.dedup import (
    FINGERPRINT_AT_MOST,
    Decision,
    State,
    compare,
    decide,
    fingerprint,
    is_made,
    keeps,
    row_key,
)
from reach_sidecar.policy.repeat import SAFE_METHODS

JOURNAL = b"reach-journal"
SCOPE = b"reach-scope"


class DedupCounters(Protocol):
    def observe_dedup(self, result: str) -> None: ...


class Once:
    def __init__(self, inner: Layer, *, local: LocalAgent, stores: Stores, counters: DedupCounters) -> None:
        self._inner = inner
        self._local = local
        self._stores = stores
        self._counters = counters
        self._runs: dict[bytes, Run] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        """Calls that run or wait for room."""
        return len(self._runs)

    async def __call__(self, call: Call) -> Response:
        request = call.request
        index = request.index
        offered = call.offered
        dedup = offered.dedup
        made = is_made(call.key)
        if dedup == "off" or not call.key or (made and request.method in SAFE_METHODS):
            if dedup == "off" and JOURNAL in index:
                raise _unknown("it keeps no keys any more")
            response = await self._inner(call)
            response.headers.append(self._load(call, response))
            return response
        store = self._stores.memory if dedup == "memory" else await self._stores.durable()
        here = request.body
        body = here.peek() if here.complete and here.size <= FINGERPRINT_AT_MOST else await whole_body(call)
        length = None if body is not None else index.get(b"content-length")
        mark = fingerprint(request.method, request.target, index.get(b"content-type", b""), body,
                           None if length is None else int(length), call.trace.trace_id.encode(), lasting=store.durable)
        asked = offered.name.encode() if call.capability else b"@"  # by agent: whatever it declares meanwhile
        key = row_key(call.caller.encode(), asked, index.get(SCOPE, b""), call.key)
        repeatable = offered.idempotent or request.method in SAFE_METHODS
        while True:
            run = self._runs.get(key)
            kept: tuple[State, bytes | None] | None = None  # no fingerprint: it is not known any more
            row: Row | None = None
            if run is None:
                if not store.durable:
                    kept = store.state(key)
                else:
                    row = await store.look(key, call.deadline)
                    run = self._runs.get(key)  # another call may have come in the meantime
            if run is not None:
                kept = (run.state, run.fingerprint)
            elif row is not None:  # one that is `running` ran when this sidecar crashed
                kept = ("unknown" if row.state == "running" else row.state, row.fingerprint)
            decision: Decision = "run"
            if kept is not None or JOURNAL in index:
                alike = "same" if kept is None or kept[1] is None else compare(kept[1], mark)
                joinable = body is not None and run is not None and run.joinable and alike == "same"
                decision = decide(None if kept is None else kept[0], same_request=alike != "other",
                                  comparable=alike == "same", joinable=joinable,
                                  repeatable=repeatable, journal=index.get(JOURNAL), store_id=store.id)
            if decision == "run":
                run = Run(store, self._runs, key, mark, made, repeatable, body is not None, call.deadline)
                run.again = row is not None and row.state == "running"
                try:
                    return await self._run(call, run)
                except KeyExists:  # another call with the key ran to its end since it was looked up
                    run.over(None)
                    continue
            self._counters.observe_dedup(decision)
            call.remark("dedup", decision)
            if decision == "replay":
                answer = row.answer if row is not None else store.answer(key)
                assert answer is not None
                return self._again(call, store, answer)
            if decision != "join":
                raise _REFUSED[decision]()
            assert run is not None
            joined = await run.join(call.deadline)
            if joined is not None:
                return self._again(call, store, joined)

    async def _run(self, call: Call, run: Run) -> Response:
        if not run.store.has_room(run.made):
            raise Refusal("store_unavailable", "its store of answered calls is full")
        self._runs[run.key] = run
        call.before_agent = run.begin
        call.request.wanted = run.wanted
        try:
            response = await self._inner(call)
        except Problem as problem:
            await run.failed(problem)
            raise
        except KeyExists:
            raise
        except BaseException:
            run.broke()
            raise
        body = response.body
        try:
            if isinstance(body, bytes) and not run.store.durable and _may_be_kept(run, response):
                run.answered_in_memory(response, body, forget=_says_not_done(call, run, response))
            else:
                await self._keep(call, run, response)
            response.headers += (self._load(call, response), (JOURNAL, b"Reach-Journal", run.store.id))
            return response
        except BaseException as error:  # cancelled meanwhile: nobody else will say that the answer is not sent
            if isinstance(response.body, Body):
                response.body.abandon()
            response.sent(0, error)
            raise

    async def _keep(self, call: Call, run: Run, response: Response) -> None:
        """The agent has answered: keep it for whoever comes with the same key."""
        body = response.body
        forget = _says_not_done(call, run, response)
        if not _may_be_kept(run, response) or (forget and isinstance(body, Body)):
            if not forget:
                response.when_sent(lambda _sent, _error: run.passed())
            await run.not_kept(forget=forget)
        elif isinstance(body, bytes):
            await run.answered(response, body, forget=forget)
        else:
            assert isinstance(body, Body)
            body.tap = run.record(response)
            response.when_sent(lambda _, error: run.streamed(error))

    def _again(self, call: Call, store: Store, answer: Answer) -> Response:
        """What the agent answered the first time."""
        response = Response(answer.status, list(answer.headers), answer.body, reason=answer.reason)
        response.sized = response.header(b"content-length") is not None
        if not response.sized and (answer.status == 304 or call.request.method == b"HEAD"):
            response.length = None  # of what is not sent the agent gave none
        response.headers += (self._load(call, response), (JOURNAL, b"Reach-Journal", store.id))
        return response

    def _load(self, call: Call, response: Response) -> Field:
        local = self._local
        # an answer that is all here gives its place back before the caller reads this
        running = local.running - (call.agent_ms > 0.0 and isinstance(response.body, bytes))
        return fields.load_field(running, local.queued, local.room, call.queue_ms, call.agent_ms)


def _may_be_kept(run: Run, response: Response) -> bool:
    return run.joinable and response.tunnel is None and not fields.is_event_stream(response.index.get(b"content-type"))


def _says_not_done(call: Call, run: Run, response: Response) -> bool:
    return (response.status >= 429 or call.verdict != "") and keeps(
        response.status, call.verdict, b"retry-after" in response.index, run.repeatable) == "forget"


def _unknown(why: str) -> Problem:
    return Problem("outcome_unknown", f"An earlier call with the same key may have run: {why}. Ask the agent whether "
                   "it did, before you send it again with another key.")


_REFUSED: dict[str, Callable[[], Problem]] = {
    "outcome_unknown": lambda: _unknown("it ended without an answer that is known here"),
    "key_reused": lambda: Problem("key_reused", "Another request was sent with this Idempotency-Key: give each "
                                  "request its own, and repeat a key only with the very same request."),
    "in_progress": lambda: Problem("in_progress", "The first call with this key is still running, and its request is "
                                   "too long to be compared: wait and ask again."),
    "answer_not_kept": lambda: Problem("answer_not_kept", "The agent has answered the first call with this key; the "
                                       "answer was a stream or too long, and cannot be given again."),
}
