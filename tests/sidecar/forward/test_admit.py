"""Room at the agent: places, the queue, and what is refused before it has run."""

import asyncio

import pytest
from harness.sidecars import Asked, Mesh, ok, request, until

from reach_core.peer import Limits
from reach_core.problem import Problem
from reach_sidecar.forward.admit import Room
from reach_sidecar.forward.failure import Refusal
from reach_sidecar.membership.local import LocalAgent


def room(places: int = 1, queue: int = 8) -> tuple[Room, LocalAgent]:
    local = LocalAgent("b", address="http://127.0.0.1:1", limits=Limits(max_concurrency=places, queue=queue))
    return Room(local), local


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def waiting(rooms: Room, count: int, deadline: float | None = None) -> list["asyncio.Task[None]"]:
    tasks = []
    for _ in range(count):
        tasks.append(asyncio.create_task(rooms.wait(deadline or soon())))
        await asyncio.sleep(0)
    return tasks


async def test_places() -> None:
    one, local = room(places=2)
    assert [one.try_enter() for _ in range(3)] == [True, True, False]
    assert local.running == 2
    one.leave()
    assert one.try_enter()
    one.leave()
    one.leave()
    assert local.running == 0


async def test_where_nobody_may_wait_it_is_busy_at_once() -> None:
    one, local = room(queue=0)
    assert one.try_enter()
    with pytest.raises(Refusal, match="limit of 1 calls and 0 wait"):
        one.try_enter()
    assert (local.running, local.queued) == (1, 0)
    one.leave()
    assert one.try_enter()


async def test_first_come_first_served_and_nobody_jumps_the_queue() -> None:
    one, local = room()
    assert one.try_enter()
    tasks = await waiting(one, 3)
    assert (local.running, local.queued) == (1, 3)
    for index in range(3):
        one.leave()
        assert not one.try_enter()
        await tasks[index]
        assert [task.done() for task in tasks] == [number <= index for number in range(3)]
        assert (local.running, local.queued) == (1, 2 - index)
    one.leave()
    assert (local.running, local.queued) == (0, 0)


async def test_a_full_queue_is_busy() -> None:
    one, local = room(queue=2)
    assert one.try_enter()
    tasks = await waiting(one, 2)
    with pytest.raises(Refusal) as refusal:
        one.try_enter()
    assert (refusal.value.reason, refusal.value.executed) == ("busy", "no")
    assert "limit of 1 calls and 2 wait" in refusal.value.detail
    assert (local.running, local.queued) == (1, 2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (local.running, local.queued) == (1, 0)


async def test_waiting_ends_at_the_deadline_without_having_run() -> None:
    one, local = room()
    assert one.try_enter()
    [task] = await waiting(one, 1, soon(0.02))
    with pytest.raises(Problem) as problem:
        await task
    assert (problem.value.code, problem.value.executed) == ("deadline_exceeded", "no")
    assert (local.running, local.queued) == (1, 0)
    one.leave()
    assert local.running == 0


async def test_a_place_goes_past_those_who_gave_up() -> None:
    one, local = room()
    assert one.try_enter()
    tasks = await waiting(one, 3)
    tasks[0].cancel()
    one.leave()  # before the cancelled one could leave the queue
    await tasks[1]
    assert tasks[0].cancelled()
    assert not tasks[2].done()
    assert (local.running, local.queued) == (1, 1)
    tasks[2].cancel()
    await asyncio.gather(tasks[2], return_exceptions=True)
    one.leave()
    assert (local.running, local.queued) == (0, 0)


async def test_a_place_that_comes_together_with_the_cancelling_is_given_back() -> None:
    one, local = room()
    assert one.try_enter()
    tasks = await waiting(one, 2)
    one.leave()
    tasks[0].cancel()
    await tasks[1]
    assert (local.running, local.queued) == (1, 0)
    one.leave()
    assert local.running == 0


async def test_a_place_and_the_deadline_at_once() -> None:
    one, local = room()
    assert one.try_enter()
    [task] = await waiting(one, 1, soon(-1.0))
    one.leave()
    await asyncio.gather(task, return_exceptions=True)
    if task.exception() is None:
        one.leave()
    assert (local.running, local.queued) == (0, 0)


# -- with real calls

class Gate:
    """An agent that answers when it is let."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        await self.open.wait()
        writer.write(ok(asked.body))


async def test_calls_wait_in_their_order(inner: Mesh) -> None:
    gate = Gate()
    a, b = await inner.pair(gate, agent={"max_concurrency": 1})
    tasks = []
    for number in range(4):
        tasks.append(asyncio.ensure_future(inner.ask(a, "/to/summarize/x", body=b"%d" % number)))
        await until(lambda count=number: b.sidecar.local.running + b.sidecar.local.queued == count + 1)  # type: ignore[misc]
    assert (b.sidecar.local.running, b.sidecar.local.queued, len(b.agent.asked)) == (1, 3, 1)
    await asyncio.sleep(0.05)
    gate.open.set()
    answers = await asyncio.gather(*tasks)
    assert [answer.body for answer in answers] == [b"0", b"1", b"2", b"3"]
    assert [asked.body for asked in b.agent.asked] == [b"0", b"1", b"2", b"3"]
    assert "queue;dur=0.0," in str(answers[0].header("Server-Timing"))
    queue_ms = float(str(answers[3].header("Server-Timing")).split(",")[0].split("dur=")[1])
    assert queue_ms > 30.0
    assert a.peer("b").heard_at is not None
    await inner.idle()


async def test_time_that_ends_in_the_queue_was_not_run(inner: Mesh) -> None:
    gate = Gate()
    a, b = await inner.pair(gate, agent={"max_concurrency": 1})
    held = asyncio.ensure_future(inner.ask(a, "/to/summarize/x"))
    await until(lambda: b.agent.asked)
    answer = await inner.ask(a, "/to/summarize/x", "Reach-Timeout: 100ms", body=b"work")
    assert (answer.status, answer.code) == (504, "deadline_exceeded")
    assert len(b.agent.asked) == 1
    gate.open.set()
    assert (await held).status == 200
    await inner.idle()


async def test_what_a_queued_call_says_of_executed(inner: Mesh) -> None:
    """Said by the called sidecar in so many words: the caller may repeat it."""
    gate = Gate()
    a, b = await inner.pair(gate, agent={"max_concurrency": 1})
    held = asyncio.ensure_future(inner.ask(a, "/to/summarize/x"))
    await until(lambda: b.agent.asked)
    answer = await inner.deliver(b, "Reach-Timeout: 60ms")
    assert (answer.code, answer.json["executed"]) == ("deadline_exceeded", "no")
    gate.open.set()
    await held


async def test_one_that_goes_away_leaves_the_queue(inner: Mesh) -> None:
    gate = Gate()
    a, b = await inner.pair(gate, agent={"max_concurrency": 1})
    held = asyncio.ensure_future(inner.ask(a, "/to/summarize/x"))
    await until(lambda: b.agent.asked)
    client = await inner.connect(a)
    await client.send(request("/to/summarize/x"))
    await until(lambda: b.sidecar.local.queued == 1)
    client.close()
    await until(lambda: b.sidecar.local.queued == 0, patience_s=2.0)
    gate.open.set()
    assert (await held).status == 200
    await inner.idle()
    assert len(b.agent.asked) == 1


async def test_an_agent_that_takes_more_at_run_time(inner: Mesh) -> None:
    """Those that wait come in at once, not when the one before them is done."""
    gate = Gate()
    a, b = await inner.pair(gate, agent={"max_concurrency": 1})
    tasks = [asyncio.ensure_future(inner.ask(a, "/to/summarize/x", body=b"x")) for _ in range(4)]
    await until(lambda: b.sidecar.local.queued == 3)
    b.sidecar.local.declare("b", max_concurrency=3)
    await until(lambda: len(b.agent.asked) == 3)
    assert (b.sidecar.local.running, b.sidecar.local.queued) == (3, 1)
    gate.open.set()
    assert [answer.status for answer in await asyncio.gather(*tasks)] == [200] * 4
    await inner.idle()


async def test_one_that_takes_less_gets_there() -> None:
    one, local = room(places=3)
    assert [one.try_enter() for _ in range(3)] == [True] * 3
    [task] = await waiting(one, 1)
    local.declare("b", max_concurrency=1)
    one.leave()
    one.leave()
    await asyncio.sleep(0)
    assert (local.running, task.done()) == (1, False)
    one.leave()
    await task
    assert (local.running, local.queued) == (1, 0)
    one.leave()


# -- at the door

async def test_draining_closing_and_unfit(inner: Mesh) -> None:
    b = await inner.node("b", ok(), "summarize")
    await until(lambda: b.sidecar.local.confirmed)
    b.sidecar.local.set_unfit(True)
    answer = await inner.deliver(b)
    assert (answer.header("Reach-Refused"), answer.status) == ("agent_unreachable", 503)
    b.sidecar.local.closing = True
    answer = await inner.deliver(b)
    assert (answer.header("Reach-Refused"), answer.status) == ("draining", 503)
    b.sidecar.local.closing = False
    b.sidecar.local.set_unfit(False)
    b.sidecar.local.set_draining(True)
    assert (await inner.deliver(b)).status == 200, "others are asked not to call: who has not heard is served"
    assert answer.json["agent"] == "b"


async def test_a_full_house_is_said_to_the_mesh(inner: Mesh) -> None:
    """With the load, so that the caller leaves it alone for a moment."""
    gate = Gate()
    a, b = await inner.pair(gate, agent={"max_concurrency": 1, "queue": 0})
    held = asyncio.ensure_future(inner.ask(a, "/to/summarize/x"))
    await until(lambda: b.agent.asked)
    answer = await inner.deliver(b)
    assert (answer.header("Reach-Refused"), answer.status, answer.json["executed"]) == ("busy", 503, "no")
    assert str(answer.header("Reach-Load")).startswith("1 0 1 ")
    gate.open.set()
    assert (await held).status == 200
    await inner.idle()
    assert len(b.agent.asked) == 1


async def test_a_refused_call_is_not_running(inner: Mesh) -> None:
    """Neither for the agent's own calls to inherit from, nor for the next one with its key to join."""
    b = await inner.node("b", ok(), "summarize")
    b.sidecar.local.closing = True
    assert (await inner.deliver(b, key="k", body=b"x")).header("Reach-Refused") == "draining"
    assert len(b.sidecar.running) == 0
    b.sidecar.local.closing = False
    assert (await inner.deliver(b, key="k", body=b"x")).status == 200
    assert len(b.agent.asked) == 1
