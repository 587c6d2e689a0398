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
from reach_sidecar.journal.runs import KeyExists, Row, Runs
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

    def state(self, key: bytes) -> tuple[State, bytes | None] | None:
        """State and fingerprint, of a store in memory."""
        assert self.memory is not None
        return self.memory.state(key, self._loop.time())

    async def look(self, key: bytes, deadline: float) -> Row | None:
        """The row of a durable one, with its answer. Raises Refusal where it cannot be read, Problem where it is not
        read in time."""
        assert self.runs is not None
        try:
            async with asyncio.timeout_at(deadline):
                return await self.runs.get(key)
        except StoreUnavailable as error:
            raise _refusal(error) from None
        except TimeoutError:
            raise Problem("deadline_exceeded", "The call's time was over before its key could be looked up on disk.",
                          executed="no") from None

    def answer(self, key: bytes) -> Answer:
        """Of a key whose state in memory is `done`."""
        assert self.memory is not None
        return self.memory.answer(key)

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

    def later(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settle(self) -> None:
        """Until all ends are noted."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))


Ended = Answer | Problem | None  # None: the store says more, or nothing has run: look again


class Run:
    """`among` are the runs under way by key: it stays there until the store knows how it ended.

    `joinable`: its request is known whole, so that a repeat can be compared. `again`: the key has a row that says
    `running`, of a run that a crash has ended. `noted`: it is on disk as running. `reached`: the agent may have it.
    `state` is `not_kept` once the agent answers by what cannot be given again.
    """

    __slots__ = ("_among", "_parts", "_response", "_size", "_spool", "_waiting", "again", "deadline",
                 "fingerprint", "joinable", "key", "made", "noted", "reached", "repeatable", "state", "store")

    def __init__(self, store: Store, among: "dict[bytes, Run]", key: bytes, fingerprint: bytes, made: bool,
                 repeatable: bool, joinable: bool, deadline: float) -> None:
        self.store = store
        self.key = key
        self.fingerprint = fingerprint
        self.made = made
        self.repeatable = repeatable
        self.joinable = joinable
        self.deadline = deadline
        self.again = False
        self.noted = False
        self.reached = False
        self.state: State = "running"
        self._among = among
        self._waiting: set[asyncio.Future[Ended]] = set()
        self._parts: list[bytes] | None = None  # of an answer in memory that streams
        self._size = 0
        self._spool: Spool | None = None  # of a durable one
        self._response: Response | None = None

    # -- others with the same key

    def wanted(self) -> bool:
        """Shall it go on although its own caller went away? An agent's own key may always come back, but what cannot
        be given again is of use to nobody else."""
        return bool(self._waiting) or (not self.made and self.state == "running")

    async def join(self, deadline: float) -> Answer | None:
        """What it ends with; None: look again. Raises Problem, at the deadline too."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[Ended] = loop.create_future()
        self._waiting.add(place)
        timer = loop.call_at(deadline, _too_late, place)
        try:
            ended = await place
        finally:
            timer.cancel()
            self._waiting.discard(place)
        if isinstance(ended, Problem):
            raise _same(ended)
        return ended

    def over(self, ended: Ended) -> None:
        """The store knows how it ended, or nothing has run."""
        if self._among.get(self.key) is self:
            del self._among[self.key]
        if self._waiting:
            self._tell(ended)

    def _tell(self, ended: Ended) -> None:
        waiting, self._waiting = self._waiting, set()
        for place in waiting:
            if not place.done():
                place.set_result(ended)

    # -- its beginning

    async def begin(self) -> None:
        """The agent is called next; on disk it is noted as running before. Raises Refusal where that cannot be written,
        Problem where it is not written in time, KeyExists where the key has run to an end since it was looked up."""
        runs = self.store.runs
        if runs is not None:
            self.noted = True
            try:
                async with asyncio.timeout_at(self.deadline):
                    if self.again:
                        await runs.unknown(self.key)
                    await runs.begin(self.key, self.fingerprint)
            except KeyExists:
                self.noted = False  # the row is another's
                raise
            except StoreUnavailable as error:
                raise _refusal(error) from None
            except TimeoutError:
                raise Problem("deadline_exceeded", "The call's time was over before it could be noted on disk.",
                              executed="no") from None
        self.reached = True

    # -- its end

    async def failed(self, problem: Problem) -> None:
        """Without an answer. What did not run, or may run twice, leaves nothing behind."""
        if problem.executed == "no" or self.repeatable:
            # who has waited may have more time than this call had, or takes the answer as its own
            told = None if problem.code == "deadline_exceeded" and problem.executed == "no" else problem
            if self.noted:
                await self._note(self.store.forget(self.key), told)
            else:
                self.over(told)
        else:
            self._ends("unknown", problem)

    def broke(self) -> None:
        """It was cancelled, or this sidecar made a mistake."""
        if self.reached:
            self._ends("unknown", Problem("outcome_unknown", "The call with this key was broken off; the agent may "
                                          "have done the work."))
        elif self.noted:
            self.store.later(self._noted(self.store.forget(self.key), None))
        else:
            self.over(None)

    async def answered(self, response: Response, body: bytes, *, forget: bool) -> None:
        store = self.store
        if store.runs is None:
            self.answered_in_memory(response, body, forget=forget)
            return
        told = _answer(response, body)
        await self._note(store.forget(self.key) if forget else store.runs.done(self.key, told), told)

    def answered_in_memory(self, response: Response, body: bytes, *, forget: bool) -> None:
        """The same where nothing is to be waited for."""
        if not forget:
            self.store.keep(self, response, body)
        self.over(_answer(response, body) if self._waiting else None)

    async def not_kept(self, *, forget: bool) -> None:
        """It is answered by something that cannot be given again; `forget`: which says that nothing was done, and is
        no end where others wait: the next of them runs."""
        if forget:
            if self.noted:
                await self._note(self.store.forget(self.key), None)
            else:
                self.over(None)
            return
        self.state = "not_kept"
        self._tell(Problem("answer_not_kept", "The agent answers the first call with this key by something that "
                           "cannot be given again."))
        self.store.mark(self, "not_kept")  # so that a crash from here on finds it

    def passed(self) -> None:
        """What cannot be given again is out. It is remembered from here on."""
        self._ends("not_kept", None)

    def record(self, response: Response) -> Callable[[bytes], None]:
        """Keep what streams to the caller as well; the result is fed with it."""
        self._response = Response(response.status, list(response.headers), reason=response.reason)
        if self.store.runs is not None:
            self._spool = self.store.runs.spool(self.key)
        else:
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

    def streamed(self, error: BaseException | None) -> None:
        """All of it is out, or the rest will never come."""
        response, parts, spool = self._response, self._parts, self._spool
        assert response is not None
        if error is not None:
            if spool is not None:
                spool.drop()
            self.broke()
        elif spool is not None:
            self.store.later(self._noted(spool.done(response.status, response.reason, tuple(response.headers)), None))
        elif parts is not None and self.store.memory is not None:
            body = b"".join(parts)
            self.store.keep(self, response, body)
            self.over(_answer(response, body))
        else:
            self._ends("not_kept", Problem("answer_not_kept", "The agent has answered the first call with this key; "
                                           "the answer was too long to be given again."))

    def _ends(self, state: State, ended: Ended) -> None:
        """Without an answer to keep, and nobody waits until that is noted."""
        if self.store.durable and self.noted:
            self.store.later(self._noted(self.store.note_end(self.key, state), ended))
        else:
            self.store.mark(self, state)
            self.over(ended)

    async def _note(self, work: Coroutine[Any, Any, object], ended: Ended) -> None:
        """Wait until its end is on the disk, but not beyond the deadline. Who is cancelled here ends nothing."""
        task = self.store.later(self._noted(work, ended))
        await asyncio.wait((task,), timeout=max(0.0, self.deadline - asyncio.get_running_loop().time()))

    async def _noted(self, work: Coroutine[Any, Any, object], ended: Ended) -> None:
        try:
            with contextlib.suppress(StoreUnavailable):  # it stays `running` there, which a repeat takes for unknown
                await work
        finally:
            self.over(ended)


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
