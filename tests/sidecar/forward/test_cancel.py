"""A caller that goes away, a connection that merely breaks: what ends at once, what goes on, and that nothing stays."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote

import pytest
from harness.sidecars import Asked, Mesh, Node, closed_port, hangs, hangs_up, ok, request, says, until
from sidecar.http1.raw import Answer, Peer

from reach_sidecar.config import CapabilityConfig
from reach_sidecar.forward.cancel import RunningCalls

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"4\r\nmore\r\n"


async def streams(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """An answer without an end."""
    writer.write(HEAD)
    while True:
        writer.write(CHUNK)
        await writer.drain()
        await asyncio.sleep(0.01)


async def begun(inner: Mesh, a: Node, b: Node, *fields: str, streaming: bool = False) -> Peer:
    """A client whose call has reached the agent."""
    client = await inner.connect(a)
    await client.send(request("/to/summarize/x", *fields, method="POST", body=b"work"))
    if streaming:
        async with asyncio.timeout(5):
            await client.reader.readuntil(CHUNK)
    else:
        await until(lambda: b.agent.asked)
    return client


async def cancels(node: Node) -> int:
    return len([line for line in await node.log(event="deliver") if line["outcome"] == "caller_gone"])


@pytest.mark.parametrize("leave", [Peer.close, Peer.reset, Peer.half_close], ids=["close", "reset", "half_close"])
@pytest.mark.parametrize("streaming", [False, True], ids=["before the head", "while streaming"])
async def test_a_client_that_goes_away_ends_the_agents_work(inner: Mesh, leave: Callable[[Peer], None],
                                                            streaming: bool) -> None:
    a, b = await inner.pair(streams if streaming else hangs)
    b.sidecar._mesh.service.abandon_after_s = 3600.0  # what ends it is not the broken connection
    client = await begun(inner, a, b, streaming=streaming)
    leave(client)
    await until(lambda: b.agent.gone == 1)
    await inner.idle()
    [call], [deliver] = await a.log(event="call"), await b.log(event="deliver")
    assert (call["outcome"], deliver["outcome"]) == ("caller_gone", "caller_gone")
    assert call["status"] == deliver["status"] == (200 if streaming else 499)
    assert call["trace_id"] == deliver["trace_id"]


async def test_one_that_waits_for_a_place_is_cancelled_too(inner: Mesh) -> None:
    a, b = await inner.pair(hangs, agent={"max_concurrency": 1})
    b.sidecar._mesh.service.abandon_after_s = 3600.0
    first = await begun(inner, a, b)
    second = await inner.connect(a)
    await second.send(request("/to/summarize/x"))
    await until(lambda: b.sidecar.local.queued == 1)
    second.close()
    await until(lambda: b.sidecar.local.queued == 0)
    first.close()
    await inner.idle()
    assert len(b.agent.asked) == 1


async def test_a_key_of_the_agents_own_keeps_the_run(inner: Mesh) -> None:
    """It may come back for the answer: the run ends only as one whose connection broke."""
    a, b = await inner.pair(hangs)
    b.sidecar._mesh.service.abandon_after_s = 0.3
    client = await begun(inner, a, b, "Idempotency-Key: order-7")
    left = time.monotonic()
    client.close()
    await until(lambda: b.agent.gone == 1)
    assert time.monotonic() - left > 0.25
    await inner.idle()


async def test_a_connection_that_merely_breaks_leaves_the_run_going(inner: Mesh) -> None:
    a, b = await inner.pair(hangs)
    b.sidecar._mesh.service.abandon_after_s = 0.3
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x", body=b"work"))
    await until(lambda: b.agent.asked)
    a.peer("b").pool.close()
    answer = await asking
    broke = time.monotonic()
    assert answer.code == "outcome_unknown"
    assert (b.sidecar.local.running, b.agent.gone) == (1, 0)
    await until(lambda: b.agent.gone == 1)
    assert time.monotonic() - broke > 0.2
    await inner.idle()


async def test_a_run_that_goes_on_may_end_by_itself(inner: Mesh) -> None:
    go = asyncio.Event()

    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(ok())

    a, b = await inner.pair(slow)
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x", body=b"work"))
    await until(lambda: b.agent.asked)
    a.peer("b").pool.close()
    await asking
    go.set()
    await inner.idle()
    assert b.agent.gone == 0
    [line] = await b.log(event="deliver")
    assert line["status"] == 200


async def test_a_sidecar_that_cannot_be_told_holds_nobody(inner: Mesh) -> None:
    a, b = await inner.pair(hangs)
    client = await begun(inner, a, b)
    a.learn(b.entry(address=f"127.0.0.1:{closed_port()}"))
    client.close()
    await until(lambda: not any(a.slots().values()))
    await a.sidecar.canceller.stop()


async def test_two_calls_with_one_key_do_not_end_each_other(inner: Mesh) -> None:
    a, b = await inner.pair(hangs)
    first = await begun(inner, a, b, "Idempotency-Key: same")
    second = await inner.connect(a)
    await second.send(request("/to/summarize/x", "Idempotency-Key: same"))
    await until(lambda: len(b.agent.asked) == 2)
    first.close()
    await asyncio.sleep(0.1)
    assert b.agent.gone == 0
    b.sidecar._mesh.service.abandon_after_s = 0.01
    second.close()


# -- DELETE /v1/calls/{key}

async def delete(inner: Mesh, node: Node, key: str, caller: str = "a") -> Answer:
    target = f"/v1/calls/{quote(key, safe='')}"
    return await inner.raw(node, request(target, f"Reach-Caller: {caller}", method="DELETE"), door="mesh")


async def test_only_the_caller_may_cancel_and_only_its_own(inner: Mesh) -> None:
    key = "a/b ?&%é"
    b = await inner.node("b", hangs, "summarize")
    client = await inner.connect(b, "mesh")
    await client.send(request("/x", "Reach-Target: summarize", "Reach-Agent: b", "Reach-Caller: a")[:-2]
                      + b"Idempotency-Key: " + key.encode() + b"\r\n\r\n")
    await until(lambda: b.agent.asked)
    for answer in (await delete(inner, b, key, "c"), await delete(inner, b, key, ""), await delete(inner, b, "other")):
        assert (answer.status, answer.code) == (404, "not_found")
    assert b.agent.gone == 0
    assert (await delete(inner, b, key)).status == 204
    await until(lambda: b.agent.gone == 1)
    assert await client.ended()
    assert (await delete(inner, b, key)).status == 404
    await inner.idle()


async def test_running_calls_by_themselves() -> None:
    running = RunningCalls()
    stopped = []

    async def run(key: bytes) -> None:
        running.enter("a", key)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(key)
            raise
        finally:
            running.leave("a", key)

    tasks = [asyncio.create_task(run(key)) for key in (b"1", b"2")]
    await asyncio.sleep(0)
    assert len(running) == 2
    assert not running.cancel("b", b"1")
    assert running.cancel("a", b"1")
    assert not running.cancel("a", b"1")
    await asyncio.gather(tasks[0], return_exceptions=True)
    assert (stopped, len(running)) == ([b"1"], 1)
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    assert len(running) == 0


async def test_whoever_leaves_takes_only_itself_along() -> None:
    """The second call with a key is the one that is registered; the first leaving does not take it out."""
    running = RunningCalls()
    go = [asyncio.Event(), asyncio.Event()]

    async def run(index: int) -> None:
        running.enter("a", b"k")
        await go[index].wait()
        running.leave("a", b"k")

    tasks = [asyncio.create_task(run(0)), asyncio.create_task(run(1))]
    await asyncio.sleep(0)
    go[0].set()
    await tasks[0]
    assert len(running) == 1
    go[1].set()
    await tasks[1]
    assert len(running) == 0


# -- whatever goes wrong, every slot is free again

async def answers(inner: Mesh, a: Node, b: Node) -> None:
    await inner.ask(a, "/to/summarize/x", body=b"work")


async def client_leaves(inner: Mesh, a: Node, b: Node) -> None:
    (await begun(inner, a, b)).close()


async def client_leaves_a_stream(inner: Mesh, a: Node, b: Node) -> None:
    (await begun(inner, a, b, streaming=True)).reset()


async def client_leaves_while_sending(inner: Mesh, a: Node, b: Node) -> None:
    client = await inner.connect(a)
    await client.send(request("/to/summarize/x", "Content-Length: 1000000", method="POST") + b"x" * 100_000)
    await until(lambda: b.agent.asked)
    client.close()


async def mesh_breaks(inner: Mesh, a: Node, b: Node) -> None:
    asking = asyncio.ensure_future(answers(inner, a, b))
    await until(lambda: b.agent.asked)
    a.peer("b").pool.close()
    await asking


async def agent_dies(inner: Mesh, a: Node, b: Node) -> None:
    asking = asyncio.ensure_future(answers(inner, a, b))
    await until(lambda: b.agent.asked)
    await b.agent.close()
    await asking


async def in_a_hurry(inner: Mesh, a: Node, b: Node) -> None:
    await inner.ask(a, "/to/summarize/x", "Reach-Timeout: 60ms", body=b"work")


async def nonsense_in_the_body(inner: Mesh, a: Node, b: Node) -> None:
    await inner.ask(a, "/to/summarize/x", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\nzz\r\n")


async def refused(inner: Mesh, a: Node, b: Node) -> None:
    b.sidecar.local.closing = True
    await answers(inner, a, b)


async def sidecar_cut(inner: Mesh, a: Node, b: Node) -> None:
    asking = asyncio.ensure_future(answers(inner, a, b))
    await until(lambda: b.agent.asked)
    await b.sidecar._mesh.stop(0.0)
    await asking


@pytest.mark.parametrize(("script", "happens"), [
    (ok(), answers), (hangs_up, answers), (b"nonsense\r\n\r\n", answers), (hangs, client_leaves),
    (streams, client_leaves_a_stream), (hangs, mesh_breaks), (hangs, agent_dies), (hangs, in_a_hurry),
    (ok(), nonsense_in_the_body), (ok(), refused), (hangs, sidecar_cut), (hangs, client_leaves_while_sending),
    (says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", close=True), answers),
    (says(HEAD + CHUNK, close=True), answers), (says(HEAD + b"zz\r\n"), answers),
    (says(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), answers),
], ids=lambda value: getattr(value, "__name__", None))
async def test_slots_are_free_again(inner: Mesh, script: object,
                                    happens: Callable[[Mesh, Node, Node], Awaitable[None]]) -> None:
    read_first = happens is not client_leaves_while_sending
    a, b = await inner.pair(script, CapabilityConfig(name="summarize"), read_first=read_first)  # type: ignore[arg-type]
    b.sidecar._mesh.service.abandon_after_s = 0.05
    await happens(inner, a, b)
    await inner.idle()
    for node in (a, b):
        assert not await node.log(event="defect")
    assert len(await a.log(event="call")) == 1
    assert len(await b.log(event="deliver")) == 1
