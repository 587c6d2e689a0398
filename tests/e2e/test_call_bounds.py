"""What one call may take from others: retries of its chain, time, an agent's connection, room for kept answers."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from harness.delivery import Gate, in_turn, said
from harness.sidecars import Asked, Mesh, Script, ok, request, until

from reach_sidecar.config import CapabilityConfig
from reach_sidecar.config_sections import DedupConfig
from reach_sidecar.journal.notes import Notes

FAILS = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
TURNS_DOWN = b"HTTP/1.1 503 No\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
CHAIN_RETRIES = 2


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off of 10 to 20 ms and a doubling."""
    monkeypatch.setattr("reach_sidecar.policy.backoff.FIRST_S", 0.01)
    monkeypatch.setattr("reach_sidecar.policy.backoff.JITTER_S", 0.01)


def does(name: str = "pay", **more: Any) -> CapabilityConfig:
    return CapabilityConfig(**{"name": name, **more})


# -- retries


@pytest.mark.parametrize(("answer", "idempotent"), [(FAILS, True), (TURNS_DOWN, False)], ids=["500", "turned down"])
@pytest.mark.parametrize("calls", [1, 2, 5, 12])
async def test_calls_side_by_side_share_the_retries_of_their_chain(inner: Mesh, answer: bytes, idempotent: bool,
                                                                  calls: int) -> None:
    """The agent of `relay` makes them all at once, with the trace that it got."""
    async def asks_all(asked: Asked, writer: asyncio.StreamWriter) -> None:
        trace = f"traceparent: {asked.one('traceparent')}"
        await asyncio.gather(*(inner.ask(relay, "/to/down/x", trace, body=b"w") for _ in range(calls)))
        writer.write(ok())

    root = await inner.node("root")
    relay = await inner.node("relay", asks_all, does("relay"))
    below = [await inner.node(f"d{n}", answer, does("down", idempotent=idempotent)) for n in range(3)]
    for node in (root, relay):
        node.learn(relay.entry(), *(one.entry() for one in below))
    assert (await inner.ask(root, "/to/relay/x", body=b"w")).status == 200
    asked = sum(len(one.agent.asked) for one in below)
    assert asked == calls + CHAIN_RETRIES


@pytest.mark.parametrize("session", [(), ("Reach-Session: s",)], ids=["without a session", "in a session"])
async def test_what_was_turned_down_goes_on_at_once(inner: Mesh, session: tuple[str, ...]) -> None:
    """Nothing ran, so it is no doubt that the called side has never been heard of before."""
    a = await inner.node("a")
    nodes = [await inner.node(name, in_turn(TURNS_DOWN, ok()), does()) for name in ("b1", "b2")]
    a.learn(*(node.entry() for node in nodes))
    answer = await inner.ask(a, "/to/pay/x", *session, body=b"w")
    assert answer.status == 200, said(answer)
    assert sum(len(node.agent.asked) for node in nodes) == int(answer.header("Reach-Attempts") or 0)


async def test_a_busy_agent_is_no_doubt_in_a_session(inner: Mesh) -> None:
    gate = Gate()
    a, other = await inner.node("a"), await inner.node("other")
    nodes = [await inner.node(name, gate, does(), agent={"max_concurrency": 1, "queue": 0}) for name in ("b1", "b2")]
    for node in (a, other):
        node.learn(*(one.entry() for one in nodes))
    held = [asyncio.ensure_future(inner.ask(other, f"/to/@{node.id}/x", body=b"w")) for node in nodes]
    await until(lambda: all(node.agent.asked for node in nodes))
    call = asyncio.ensure_future(inner.ask(a, "/to/pay/x", "Reach-Session: s", body=b"w"))
    await until(lambda: a.slots()["out"] == 1)
    await asyncio.sleep(0.02)
    gate.open()
    answer = await call
    assert answer.status == 200, said(answer)
    assert {(await one).status for one in held} == {200}


# -- time


@pytest.fixture
def swallowed() -> Iterator[str]:
    """An address that says nothing at all to who connects, as a host that is gone."""
    hole = socket.socket()
    hole.bind(("127.0.0.1", 0))
    hole.listen(0)
    waiting = []
    for _ in range(4):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(hole.getsockname())
        waiting.append(one)
    yield f"127.0.0.1:{hole.getsockname()[1]}"
    for one in (*waiting, hole):
        one.close()


@pytest.mark.parametrize("timeout", ["400ms", "1200ms"])
async def test_a_call_with_little_time_gets_past_a_host_that_is_gone(inner: Mesh, swallowed: str,
                                                                    timeout: str) -> None:
    a = await inner.node("a")
    gone, there = [await inner.node(name, ok(), does(attributes={"at": [name]})) for name in ("b1", "b2")]
    a.learn(gone.entry(address=swallowed), there.entry())
    for _ in range(3):
        answer = await inner.ask(a, "/to/pay/x", "Reach-Prefer: at=b1", f"Reach-Timeout: {timeout}", body=b"w")
        assert (answer.status, answer.header("Reach-Agent")) == (200, "b2"), said(answer)
    assert a.peer("b1").track("pay").breaker.failures > 0, "others hear of it"


async def test_hurried_calls_put_no_slow_host_out(inner: Mesh, swallowed: str) -> None:
    """Who leaves no time to connect says nothing of the agent."""
    a = await inner.node("a")
    slow, there = [await inner.node(name, ok(), does(attributes={"at": [name]})) for name in ("b1", "b2")]
    a.learn(slow.entry(address=swallowed), there.entry())
    for _ in range(10):
        await inner.ask(a, "/to/pay/x", "Reach-Prefer: at=b1", "Reach-Timeout: 60ms", body=b"w")
    assert a.peer("b1").track("pay").breaker.failures == 0
    assert a.peer("b1").out_until == 0.0


@pytest.mark.parametrize("stuck", ["get", "put", "drop"])
async def test_a_disk_that_hangs_takes_no_longer_than_the_call_has(inner: Mesh, monkeypatch: pytest.MonkeyPatch,
                                                                  stuck: str) -> None:
    a, b = await inner.pair(ok(), does(dedup="durable"))
    assert (await inner.ask(a, "/to/pay/x", "Idempotency-Key: first", body=b"w")).status == 200
    b.sidecar.local.closing = stuck == "drop"  # turns the call down, so that its note goes

    async def hangs(*_: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(Notes, stuck, hangs)
    async with asyncio.timeout(2):
        answer = await inner.ask(a, "/to/pay/x", "Idempotency-Key: k", "Reach-Timeout: 300ms", body=b"w")
    codes = ["no_agent_available", "deadline_exceeded"] if stuck == "drop" else ["deadline_exceeded"]
    assert answer.code in codes
    assert len(b.agent.asked) == 1


# -- the agent's connection


def begins(head: bytes) -> Script:
    """Begins its answer, and works on."""
    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await asyncio.sleep(60)

    return script


JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n"


@pytest.mark.parametrize(("head", "outcome"), [
    (JSON, "header"), (JSON, "json"), (JSON + b"{", "json"), (FAILS.replace(b"h: 0", b"h: 9") + b"x", "header"),
    (b"", "header"),
], ids=["its head", "a head of JSON", "half its JSON", "half a failure", "nothing"])
async def test_an_agent_that_has_begun_to_answer_hears_that_nobody_waits(inner: Mesh, head: bytes,
                                                                        outcome: str) -> None:
    """Else it would work on beside those whom its place was given to."""
    a, b = await inner.pair(begins(head), does(outcome=outcome))
    client = await inner.connect(a)
    await client.send(request("/to/pay/x", method="POST", body=b"w"))
    await until(lambda: b.agent.asked)
    await asyncio.sleep(0.05)
    client.close()
    await until(lambda: b.agent.gone == 1, "the end of the agent's connection")
    await inner.idle()
    assert not b.sidecar.deliver._pool


@pytest.fixture
async def half(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """The address of a sidecar that begins `request.param` and does not end it; set when its connection is closed."""
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(request.param)
        await reader.read()
        closed.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", closed
    server.close()


@pytest.mark.parametrize("half", [
    b"HTTP/1.1 503 No\r\nReach-Refused: busy\r\nReach-Load: 1 1 1 1 1\r\nContent-Length: 50\r\n\r\n{",
    b"HTTP/1.1 200 OK\r\nReach-Outcome: failure\r\nReach-Load: 1 1 1 1 1\r\nContent-Length: 50\r\n\r\n{",
], ids=["a refusal", "a failure"], indirect=True)
async def test_a_refusal_that_does_not_end_keeps_no_connection(inner: Mesh, half: tuple[str, asyncio.Event]) -> None:
    a, b = await inner.pair(ok(), does())
    address, closed = half
    a.learn(b.entry(address=address))
    client = await inner.connect(a)
    await client.send(request("/to/pay/x", method="POST", body=b"w"))
    await until(lambda: len(a.peer("b").pool) == 1)
    await asyncio.sleep(0.05)
    client.close()
    async with asyncio.timeout(3):
        await closed.wait()
    await inner.idle()
    assert len(a.peer("b").pool) == 0


# -- room


async def test_tasks_without_an_id_take_no_lasting_room(inner: Mesh) -> None:
    """Nobody can come back for their answers, so these give way to newer ones."""
    a, b = await inner.pair(ok(b"x" * 8000), does("x"), dedup=DedupConfig(memory=1 << 20))
    task = json.dumps({"capability": "x", "task": {}}).encode()
    client = await inner.connect(a)
    statuses: Counter[int] = Counter()
    for _ in range(200):
        await client.send(request("/tasks/run", "Content-Type: application/json", method="POST", body=task))
        statuses[(await client.final("POST")).status] += 1
    assert statuses == {200: 200}
    keys = {one.one("Idempotency-Key") for one in b.agent.asked}
    assert len(keys) == 200
