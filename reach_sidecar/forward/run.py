"""One run of a key at the called side: who waits for its answer, and where that is kept.

The two stores, in memory and on disk, differ in what has to be waited for. `Store` is what they have in common.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from reach_core.problem import Problem
from reach_sidecar.forward.failure import Refusal
from reach_sidecar.http1.message import Response
from reach_sidecar.journal.answer import Answer
from reach_sidecar.journal.database import StoreUnavailable
from reach_sidecar.journal.memory import MOST_ANSWER_BYTES, Memory
from reach_sidecar.journal.runs import Runs
from reach_sidecar.journal.spool import Spool
from reach_sidecar.policy.dedup import State


class Store:
    """Where runs are kept: in `memory`, or `durable` with `runs`. Ends of runs that nobody waits for are noted in
    tasks of their own."""

    def __init__(self, store_id: bytes, memory: Memory | None, runs: Runs | None) -> None:
        self.id = store_id
        self.memory = memory
        self.runs = runs
        self.durable = runs is not None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def state(self, key: bytes) -> tuple[State, bytes] | None:
        """State and fingerprint, of a store in memory."""
        assert self.memory is not None
        return self.memory.state(key, self._loop.time())

    async def look(self, key: bytes) -> tuple[State, bytes] | None:
        """The same of a durable one. Raises Refusal where it cannot be read."""
        assert self.runs is not None
        try:
            row = await self.runs.get(key)
        except StoreUnavailable as error:
            raise _refusal(error) from None
        return None if row is None else (row.state, row.fingerprint)

    async def answer(self, key: bytes) -> Answer:
        """Of a key whose state is `done`. Raises Problem where it cannot be read."""
        if self.memory is not None:
            return self.memory.answer(key)
        assert self.runs is not None
        try:
            row = await self.runs.get(key)
        except StoreUnavailable as error:
            raise _refusal(error) from None
        if row is None or row.answer is None:
            raise Problem("answer_not_kept", "The answer to the first call with this key is no longer kept.")
        return row.answer

    def has_room(self, made: bool) -> bool:
        return self.memory is None or self.memory.has_room(made, self._loop.time())

    def keep(self, run: "Run", response: Response, body: bytes) -> None:
        assert self.memory is not None
        self.memory.keep(run.key, run.fingerprint, run.made, self._loop.time(), response.status, response.reason,
                         response.headers, body)

    def mark(self, run: "Run", state: State) -> None:
        """The run ended in `state`, without an answer to keep."""
        if self.memory is not None:
            self.memory.mark(run.key, run.fingerprint, state, run.made, self._loop.time())
        elif self.runs is not None and run.noted:
            self.later(self.note_end(run.key, state))

    async def note_end(self, key: bytes, state: State) -> None:
        """On disk: it ended in `state`."""
        assert self.runs is not None
        with contextlib.suppress(StoreUnavailable):  # it stays `running` there, which a repeat takes for unknown
            await (self.runs.not_kept(key) if state == "not_kept" else self.runs.unknown(key))

    async def forget(self, key: bytes) -> None:
        assert self.runs is not None
        with contextlib.suppress(StoreUnavailable):
            await self.runs.forget(key)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Until all ends are noted."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))


Ended = Answer | Problem | None  # None: the store has the answer


class Run:
    """`joinable`: its request is known whole, so that a repeat can be compared. `noted`: it is on disk as running."""

    __slots__ = ("_loop", "_parts", "_response", "_size", "_spool", "_waiting", "fingerprint", "joinable", "key",
                 "made", "noted", "repeatable", "store")

    def __init__(self, store: Store, key: bytes, fingerprint: bytes, made: bool, repeatable: bool,
                 joinable: bool) -> None:
        self.store = store
        self.key = key
        self.fingerprint = fingerprint
        self.made = made
        self.repeatable = repeatable
        self.joinable = joinable
        self.noted = False
        self._waiting: list[asyncio.Future[Ended]] = []
        self._parts: list[bytes] | None = None  # of an answer in memory that streams
        self._size = 0
        self._spool: Spool | None = None  # of a durable one
        self._response: Response | None = None

    # -- others with the same key

    def wanted(self) -> bool:
        """Shall it go on although its own caller went away? An agent's own key may always come back."""
        return not self.made or bool(self._waiting)

    async def join(self, deadline: float) -> Answer:
        """What it ends with. Raises Problem, at the deadline too."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[Ended] = loop.create_future()
        self._waiting.append(place)
        timer = loop.call_at(deadline, _too_late, place)
        try:
            ended = await place
        finally:
            timer.cancel()
            if place in self._waiting:
                self._waiting.remove(place)
        if isinstance(ended, Problem):
            raise _same(ended)
        return await self.store.answer(self.key) if ended is None else ended

    def _tell(self, ended: Ended) -> None:
        waiting, self._waiting = self._waiting, []
        for place in waiting:
            if not place.done():
                place.set_result(ended)

    # -- its beginning, on disk

    async def begin(self, deadline: float, again: bool) -> None:
        """Note it as running before the agent is called. Raises Refusal where that cannot be written, Problem where it
        is not written in time. `again`: the key has a row of a run that is known to have ended."""
        runs = self.store.runs
        assert runs is not None
        self.noted = True
        try:
            async with asyncio.timeout_at(deadline):
                if again:
                    await runs.unknown(self.key)
                await runs.begin(self.key, self.fingerprint)
        except StoreUnavailable as error:
            raise _refusal(error) from None
        except TimeoutError:
            raise Problem("deadline_exceeded", "The call's time was over before it could be noted on disk.",
                          executed="no") from None

    # -- its end

    async def failed(self, problem: Problem) -> None:
        """Without an answer. What did not run, or may run twice, leaves nothing behind."""
        if problem.executed == "no" or self.repeatable:
            if self.noted:
                await self.store.forget(self.key)
        else:
            self.store.mark(self, "unknown")
        self._tell(problem)

    def broke(self) -> None:
        """It was cancelled, or this sidecar made a mistake."""
        self.store.mark(self, "unknown")
        self._tell(Problem("outcome_unknown", "The call with this key was broken off; the agent may have done the "
                           "work."))

    async def answered(self, response: Response, body: bytes, *, forget: bool) -> None:
        store = self.store
        if store.memory is not None:
            if not forget:
                store.keep(self, response, body)
        elif store.runs is not None:
            if forget:
                await store.forget(self.key)
            else:
                with contextlib.suppress(StoreUnavailable):  # it stays `running` there: a repeat is told `unknown`
                    await store.runs.done(self.key, _answer(response, body))
        if self._waiting:
            self._tell(_answer(response, body))

    async def not_kept(self, *, forget: bool) -> None:
        """It is answered by something that cannot be given again; `forget`: which says that nothing was done."""
        if self.store.memory is not None:
            if not forget:
                self.store.mark(self, "not_kept")
        elif forget:
            await self.store.forget(self.key)
        else:
            await self.store.note_end(self.key, "not_kept")
        self._tell(Problem("no_agent_available", "The agent could not do it now.") if forget else
                   Problem("answer_not_kept", "The agent answers the first call with this key by something that "
                           "cannot be given again."))

    def record(self, response: Response) -> Callable[[bytes], None]:
        """Keep what streams to the caller as well; the result is fed with it."""
        self._response = Response(response.status, list(response.headers), reason=response.reason)
        if self.store.runs is not None:
            self._spool = self.store.runs.spool(self.key)
        self._parts = []
        return self._add

    def _add(self, data: bytes) -> None:
        self._size += len(data)
        if self._parts is not None:
            self._parts.append(data)
            if self._size > MOST_ANSWER_BYTES:
                self._parts = None
        if self._spool is not None and not self._spool.add(data):
            self._spool = None

    def streamed(self, error: BaseException | None, ended: Callable[[], None]) -> None:
        """All of it is out, or the rest will never come. `ended` is called once the store can be asked for it."""
        response, parts, spool = self._response, self._parts, self._spool
        assert response is not None
        if error is not None:
            if spool is not None:
                spool.drop()
            self.broke()
            ended()
        elif spool is not None:
            self.store.later(self._keep_spooled(spool, response, parts, ended))
        else:
            if parts is not None and self.store.memory is not None:
                self.store.keep(self, response, b"".join(parts))
            else:
                self.store.mark(self, "not_kept")
            self._tell_streamed(response, parts)
            ended()

    async def _keep_spooled(self, spool: Spool, response: Response, parts: list[bytes] | None,
                            ended: Callable[[], None]) -> None:
        kept = False
        try:
            with contextlib.suppress(StoreUnavailable):
                kept = await spool.done(response.status, response.reason, tuple(response.headers))
        finally:
            self._tell_streamed(response, parts, kept=kept)
            ended()

    def _tell_streamed(self, response: Response, parts: list[bytes] | None, *, kept: bool = False) -> None:
        if parts is not None:
            self._tell(_answer(response, b"".join(parts)))
        elif kept:
            self._tell(None)
        else:
            self._tell(Problem("answer_not_kept", "The agent has answered the first call with this key; the answer "
                               "was too long to be given to two at once. Ask again."))


def _answer(response: Response, body: bytes) -> Answer:
    return Answer(response.status, response.reason, tuple(response.headers), body)


def _too_late(place: "asyncio.Future[Ended]") -> None:
    if not place.done():
        place.set_result(Problem("deadline_exceeded", "The call's time was over while the first one with the same key "
                                 "still ran."))


def _refusal(error: StoreUnavailable) -> Refusal:
    return Refusal("store_unavailable", f"its store of answered calls cannot be used: {error}")


def _same(problem: Problem) -> Problem:
    """Each who waits raises a problem of its own: the layers above write into it."""
    if isinstance(problem, Refusal):
        return Refusal(problem.reason, problem.detail)
    return Problem(problem.code, problem.detail, executed=problem.executed, status=problem.status)
