"""A call's time and an agent's room, over real sockets (design §3, "Timeouts", "Room")."""

import asyncio
import time

import pytest
from harness.delivery import Gate, in_turn, said, under_way
from harness.sidecars import Asked, Mesh, Script, hangs, ok, request, until

from reach_core.deadline import parse_timeout
from reach_sidecar.config import CapabilityConfig

URL = "/to/work/x"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def after(seconds: float, answer: bytes = b"") -> Script:
    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        writer.write(answer or ok())

    return script


def drips(chunks: int, every_s: float) -> Script:
    """An answer that goes on for a while."""
    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        for _ in range(chunks):
            writer.write(b"4\r\ndrip\r\n")
            await asyncio.sleep(every_s)
        writer.write(b"0\r\n\r\n")

    return script


def told_s(asked: Asked) -> float:
    """What the agent was told of its time."""
    return parse_timeout(asked.one("Reach-Timeout").encode())


# -- the total


async def test_the_time_that_remains_is_lowered_at_every_hop(inner: Mesh) -> None:
    """In the queue, too."""
    gate = Gate()
    a, b = await inner.pair(in_turn(gate, ok()), "work", agent={"max_concurrency": 1})
    first = await under_way(inner, a, b, URL, "Reach-Timeout: 5s")
    second = asyncio.ensure_future(inner.ask(a, URL, "Reach-Timeout: 5s", body=b"work"))
    await until(lambda: b.sidecar.local.queued == 1)
    await asyncio.sleep(0.2)
    gate.open()
    await asyncio.gather(first, second)
    at_once, queued = (told_s(asked) for asked in b.agent.asked)
    assert 3.0 < at_once < 5.0
    assert 2.0 < queued <= at_once - 0.2


async def test_each_attempt_has_less(inner: Mesh) -> None:
    """The back-off is taken off, and both sides agree within what the way takes."""
    not_done = b"HTTP/1.1 503 No\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
    a, b = await inner.pair(in_turn(not_done, ok()), "work")
    began = time.monotonic()
    assert (await inner.ask(a, URL, "Reach-Timeout: 5s", body=b"work")).status == 200
    first, second = (told_s(asked) for asked in b.agent.asked)
    assert second <= first
    assert second >= 5.0 - (time.monotonic() - began) - 0.05


@pytest.mark.parametrize(("given", "low_s", "high_s"), [
    ("", 0.5, 2.0),  # the sidecar's default_timeout
    ("1500ms", 0.2, 1.5), ("1s", 0.2, 1.0), ("1h", 3590.0, 3600.0),
])
async def test_how_much_there_is(inner: Mesh, given: str, low_s: float, high_s: float) -> None:
    a = await inner.node("a", default_timeout=2.0)
    b = await inner.node("b", ok(), "work")
    inner.share()
    await inner.ask(a, URL, *([f"Reach-Timeout: {given}"] if given else []), body=b"work")
    assert low_s < told_s(b.agent.last) <= high_s


# -- what the table of errors says of time: what the agent does, the call's time, the capability's, and the answer

TABLE: dict[str, tuple[Script, str, float | None, str, float]] = {
    "the call's time": (hangs, "200ms", None, "504 deadline_exceeded (unknown) timeout", 0.2),
    "the capability's": (hangs, "5s", 0.2, "504 deadline_exceeded (unknown) timeout", 0.2),
    "the smaller one: the call's": (hangs, "200ms", 5.0, "504 deadline_exceeded (unknown) timeout", 0.2),
    "in time": (after(0.1), "3s", 3.0, "200 b in 1", 0.1),
    "once it streams, no longer": (drips(14, 0.05), "500ms", 0.5, "200 b in 1", 0.7),
}


@pytest.mark.parametrize("what", TABLE)
async def test_when_it_ends(inner: Mesh, what: str) -> None:
    script, total, timeout, expected, took_s = TABLE[what]
    a, b = await inner.pair(script, CapabilityConfig(name="work", timeout=timeout))
    began = time.monotonic()
    got = await inner.ask(a, URL, f"Reach-Timeout: {total}", body=b"work")
    assert said(got) == expected
    assert took_s - 0.02 <= time.monotonic() - began < took_s + 2.0
    if got.status == 504:
        await until(lambda: b.agent.gone == 1, "its agent is told by a closed connection")
    await inner.idle()


async def test_waiting_in_the_queue_counts(inner: Mesh) -> None:
    """It never reached the agent; the called side says so, if it comes to that before its caller gives up."""
    a, b = await inner.pair(hangs, "work", agent={"max_concurrency": 1})
    await under_way(inner, a, b, URL)
    began = time.monotonic()
    got = await inner.ask(a, URL, "Reach-Timeout: 200ms", body=b"work")
    assert (got.status, got.code, len(b.agent.asked)) == (504, "deadline_exceeded", 1)
    assert got.json["executed"] in ("no", "unknown")
    assert time.monotonic() - began < 3.0
    await until(lambda: b.sidecar.local.queued == 0)


async def test_too_little_time_is_said_at_once(inner: Mesh) -> None:
    """Under the shortest answer lately. With enough of it the call goes on, and other capabilities are not touched."""
    a, b = await inner.pair(after(0.15), "work", "play")
    await asyncio.gather(*(inner.ask(a, URL, body=b"work") for _ in range(10)))
    got = await inner.ask(a, URL, "Reach-Timeout: 100ms", body=b"work")
    assert said(got) == "504 deadline_too_short (no) not tried"
    assert len(b.agent.asked) == 10
    assert (await inner.ask(a, URL, "Reach-Timeout: 2s", body=b"work")).status == 200
    assert (await inner.ask(a, "/to/play/x", "Reach-Timeout: 100ms", body=b"work")).code == "deadline_exceeded"


@pytest.mark.parametrize("adaptive", [True, False])
async def test_a_time_out_that_is_learned(inner: Mesh, adaptive: bool) -> None:
    """1.5 × p95 of the last calls; what is declared stays the upper bound."""
    script: list[Script | bytes] = [after(0.05)] * 30
    a, b = await inner.pair(in_turn(*script, hangs), CapabilityConfig(name="work", adaptive=adaptive, timeout=1.0))
    await asyncio.gather(*(inner.ask(a, URL, body=b"work") for _ in range(30)))
    began = time.monotonic()
    got = await inner.ask(a, URL, body=b"work")
    took_s = time.monotonic() - began
    assert said(got) == "504 deadline_exceeded (unknown) timeout"
    assert (took_s < 0.7) if adaptive else (took_s >= 1.0)
    assert len(b.agent.asked) == 31


# -- room


async def test_places_and_queue(inner: Mesh) -> None:
    """Two work, two wait, the fifth is refused; who waits gets in by turn."""
    gate = Gate()
    a, b = await inner.pair(gate, "work", agent={"max_concurrency": 2, "queue": 2})
    tasks = []
    for number in range(4):
        tasks.append(asyncio.ensure_future(inner.ask(a, f"/to/work/{number}", body=b"work")))
        await until(lambda: b.sidecar.local.running + b.sidecar.local.queued == len(tasks))
    assert (b.sidecar.local.running, b.sidecar.local.queued, len(b.agent.asked)) == (2, 2, 2)
    got = await inner.ask(a, URL, body=b"work")
    assert said(got) in ("503 backpressure (no) busy", "503 backpressure (no) not tried")
    assert int(got.header("Retry-After") or 0) >= 1
    gate.open()
    assert [task.status for task in await asyncio.gather(*tasks)] == [200] * 4
    assert [asked.target for asked in b.agent.asked] == ["/0", "/1", "/2", "/3"]
    await inner.idle()


async def test_an_agent_that_is_full_is_shown_as_such(inner: Mesh) -> None:
    gate = Gate()
    a, b = await inner.pair(gate, "work", agent={"max_concurrency": 1, "queue": 0})
    task = await under_way(inner, a, b, URL)
    await inner.ask(a, URL, body=b"work")
    listing = (await inner.ask(a, "/v1/agents?capability=work")).json
    [shown] = listing["agents"]
    assert shown["excluded"]["reason"] == "full"
    assert shown["excluded"]["detail"]
    assert (shown["load"]["running"], shown["load"]["limit"]) == (1, 1)
    gate.open()
    await task
    await asyncio.sleep(0.3)
    assert (await inner.ask(a, "/v1/agents?capability=work")).json["agents"][0]["excluded"] is None


async def test_one_that_is_full_is_passed_over(inner: Mesh) -> None:
    a = await inner.node("a")
    b1 = await inner.node("b1", hangs, "work", agent={"max_concurrency": 1, "queue": 0})
    await inner.node("b2", ok(), "work")
    inner.share()
    held = await under_way(inner, a, b1, "/to/@b1/x")
    for _ in range(5):
        got = await inner.ask(a, URL, body=b"work")
        assert (got.status, got.header("Reach-Agent")) == (200, "b2")
    held.cancel()


# -- a body that takes its time


async def test_a_caller_that_is_slow_to_send(inner: Mesh) -> None:
    """The call's time runs from its head on."""
    a, b = await inner.pair(ok(), "work")
    client = await inner.connect(a)
    began = time.monotonic()
    await client.send(request(URL, "Reach-Timeout: 200ms", "Content-Length: 10", method="POST", body=b"half"))
    got = await client.final()
    assert (got.status, got.code) == (504, "deadline_exceeded")
    assert time.monotonic() - began < 3.0
    assert len(b.agent.asked) <= 1
