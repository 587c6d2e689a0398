"""What is being delivered here: whom a cancelling ends, and what the agent's own calls inherit."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from reach_core.trace import TraceContext
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.chain import Chains
from reach_sidecar.forward.running import RunningCalls
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Request
from reach_sidecar.policy.inherit import Inherited

TRACE, OTHER_TRACE = "ab" * 16, "cd" * 16


def made(span: str, *, trace: str = TRACE, caller: str = "a", key: bytes = b"k", deadline: float = 100.0,
         left: int = 2, session: bytes = b"", wanted: Callable[[], bool] | None = None) -> Call:
    call = Call(Request(b"POST", b"/x", 11, [], Body.whole(b"")), 0.0)
    call.trace, call.span_id = TraceContext(trace, span), span
    call.caller, call.key, call.deadline, call.retries_left, call.session = caller, key, deadline, left, session
    call.request.wanted = wanted
    return call


class Work:
    """Calls that run until they are stopped."""

    def __init__(self) -> None:
        self.running = RunningCalls(Chains())
        self.stopped: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self, call: Call) -> None:
        self.tasks.append(asyncio.create_task(self._run(call)))
        await asyncio.sleep(0)

    async def _run(self, call: Call) -> None:
        self.running.enter(call)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.stopped.append(call.span_id)
            raise
        finally:
            self.running.leave(call)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_the_caller_ends_its_own_call_only() -> None:
    work = Work()
    await work.begin(made("1", key=b"one"))
    await work.begin(made("2", key=b"two"))
    await work.begin(made("3", key=b"one", caller="c"))
    assert len(work.running) == 3
    for caller, key in (("b", b"one"), ("", b"one"), ("a", b""), ("a", b"three"), ("c", b"two")):
        assert not work.running.cancel(caller, key)
    assert work.running.cancel("a", b"one")
    assert not work.running.cancel("a", b"one"), "it is on its way out"
    await asyncio.gather(work.tasks[0], return_exceptions=True)
    assert (work.stopped, len(work.running)) == (["1"], 2)
    await work.end()
    assert len(work.running) == 0


async def test_what_is_still_wanted_goes_on() -> None:
    wanted = True
    work = Work()
    await work.begin(made("1", wanted=lambda: wanted))
    assert not work.running.cancel("a", b"k")
    assert len(work.running) == 1
    wanted = False
    assert work.running.cancel("a", b"k")
    await work.end()
    assert work.stopped == ["1"]


async def test_whoever_leaves_takes_only_itself_along() -> None:
    """Two calls may have one key, where the capability keeps none."""
    running = RunningCalls(Chains())
    first, second = made("1"), made("2")
    running.enter(first)
    running.enter(second)
    running.leave(first)
    running.leave(first)
    assert len(running) == 1
    assert running.inherited("2", TRACE) is not None
    running.leave(second)
    assert len(running) == 0


# -- inheriting

async def test_the_span_names_the_call() -> None:
    running = RunningCalls(Chains())
    running.enter(made("1", deadline=10.0, left=1, session=b"s"))
    running.enter(made("2", deadline=90.0, left=2, session=b"t"))
    assert running.inherited("1", TRACE) == Inherited(10.0, 1, b"s")
    assert running.inherited("2", TRACE) == Inherited(90.0, 2, b"t")


async def test_a_trace_alone_gets_the_gentlest_of_its_calls() -> None:
    """An agent that makes spans of its own; the calls of other traces do not count."""
    running = RunningCalls(Chains())
    running.enter(made("1", deadline=10.0, left=1, session=b"s"))
    running.enter(made("2", deadline=90.0, left=2, session=b"t"))
    running.enter(made("3", deadline=999.0, left=0, trace=OTHER_TRACE))
    assert running.inherited("own", TRACE) == Inherited(90.0, 1, b"")


@pytest.mark.parametrize(("span", "trace"), [("own", OTHER_TRACE), ("1", OTHER_TRACE)])
async def test_nothing_is_inherited_from_another_trace(span: str, trace: str) -> None:
    """A span id alone proves nothing: it may be made up, or old."""
    running = RunningCalls(Chains())
    assert running.inherited(span, trace) is None
    running.enter(made("1"))
    assert running.inherited(span, trace) is None


async def test_what_the_chain_has_spent_here_is_gone() -> None:
    chains = Chains()
    running = RunningCalls(chains)
    running.enter(made("1", left=2))
    for left in (1, 0, 0):
        chains.spend(TRACE, 1)
        found = running.inherited("1", TRACE)
        assert found is not None
        assert found.retries_left == left
