"""A caller that goes away, a connection that merely breaks: what ends at once, what goes on, and that nothing stays."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote

import pytest
from harness.sidecars import Asked, Mesh, Node, closed_port, hangs, hangs_up, ok, request, says, until
from sidecar.http1.raw import Answer, Peer

from reach_sidecar.config import CapabilityConfig

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"4\r\nmore\r\n"


async def streams(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """An answer without an end."""
    writer.write(HEAD)
    while True:
        writer.write(CHUNK)
        await writer.drain()
        await asyncio.sleep(0.01)


class Gate:
    """An agent that answers when it is let."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        await self.open.wait()
        writer.write(ok(b"ran"))


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
    """It may come back for the answer, whenever: neither the going nor the broken connection ends the run."""
    gate = Gate()
    a, b = await inner.pair(gate)
    b.sidecar._mesh.service.abandon_after_s = 0.02
    client = await begun(inner, a, b, "Idempotency-Key: order-7")
    client.close()
    await until(lambda: not any(a.slots().values()))
    await until(lambda: not b.sidecar._mesh.service.connections)
    await asyncio.sleep(0.2)  # it would have ended ten times over
    assert (b.sidecar.local.running, b.agent.gone) == (1, 0)
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x", "Idempotency-Key: order-7", body=b"work"))
    await until(lambda: b.slots()["in"] == 2)
    gate.open.set()
    answer = await asking
    assert (answer.status, answer.body) == (200, b"ran")
    await inner.idle()
    assert (await inner.ask(a, "/to/summarize/x", "Idempotency-Key: order-7", body=b"work")).body == b"ran"
    assert (len(b.agent.asked), b.agent.gone) == (1, 0)


async def test_a_connection_that_merely_breaks_is_made_again_and_joins_the_run(inner: Mesh) -> None:
    gate = Gate()
    a, b = await inner.pair(gate)
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x", body=b"work"))
    await until(lambda: b.agent.asked)
    a.peer("b").pool.close()
    await until(lambda: b.slots()["in"] == 2)
    assert (b.sidecar.local.running, b.agent.gone) == (1, 0)
    gate.open.set()
    answer = await asking
    assert (answer.status, answer.body, answer.header("Reach-Attempts")) == (200, b"ran", "2")
    await inner.idle()
    assert (len(b.agent.asked), b.agent.gone) == (1, 0)
    assert [line["status"] for line in await b.log(event="deliver")] == [200, 200]


async def test_a_broken_connection_that_nobody_comes_back_from_ends_the_run_after_a_while(inner: Mesh) -> None:
    """Its key was made by the calling sidecar, which repeats it within moments or never."""
    b = await inner.node("b", hangs, "summarize")
    b.sidecar._mesh.service.abandon_after_s = 0.3
    client = await inner.connect(b, "mesh")
    await client.send(inner.delivery(b, method="POST", body=b"work"))
    await until(lambda: b.agent.asked)
    broke = time.monotonic()
    client.reset()
    await until(lambda: not b.sidecar._mesh.service.connections)
    assert (b.sidecar.local.running, b.agent.gone) == (1, 0)
    await until(lambda: b.agent.gone == 1)
    assert time.monotonic() - broke > 0.2
    await inner.idle()


async def test_a_run_that_others_wait_for_goes_on(inner: Mesh) -> None:
    """The one that began it breaks off and asks for its end; the one that joined gets the answer."""
    gate = Gate()
    b = await inner.node("b", gate, "summarize")
    b.sidecar._mesh.service.abandon_after_s = 0.02
    sent = inner.delivery(b, method="POST", body=b"work")
    first, second = await inner.connect(b, "mesh"), await inner.connect(b, "mesh")
    await first.send(sent)
    await until(lambda: b.agent.asked)
    await second.send(sent)
    await until(lambda: b.slots()["in"] == 2)
    await asyncio.sleep(0.05)  # until it has joined
    first.reset()
    key = b.agent.last.one("Idempotency-Key")
    assert (await delete(inner, b, key)).status == 404
    await asyncio.sleep(0.2)
    assert b.agent.gone == 0
    gate.open.set()
    answer = await second.final()
    assert (answer.status, answer.body) == (200, b"ran")
    await inner.idle()
    assert (len(b.agent.asked), b.agent.gone) == (1, 0)


async def test_a_run_that_goes_on_may_end_by_itself(inner: Mesh) -> None:
    gate = Gate()
    b = await inner.node("b", gate, "summarize")
    client = await inner.connect(b, "mesh")
    await client.send(inner.delivery(b, method="POST", body=b"work"))
    await until(lambda: b.agent.asked)
    client.reset()
    await until(lambda: not b.sidecar._mesh.service.connections)
    gate.open.set()
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
    """They are one execution; it ends for the second although the first has gone."""
    gate = Gate()
    a, b = await inner.pair(gate)
    first = await begun(inner, a, b, "Idempotency-Key: same")
    second = await begun(inner, a, b, "Idempotency-Key: same")
    await until(lambda: b.slots()["in"] == 2)
    first.close()
    await until(lambda: a.slots()["out"] == 1)
    assert b.agent.gone == 0
    gate.open.set()
    answer = await second.final()
    assert (answer.status, answer.body) == (200, b"ran")
    await inner.idle()
    assert len(b.agent.asked) == 1


# -- DELETE /v1/calls/{key}

async def delete(inner: Mesh, node: Node, key: str, caller: str = "a", key_encoding: str = "utf-8") -> Answer:
    target = f"/v1/calls/{quote(key, safe='', encoding=key_encoding)}"
    return await inner.raw(node, request(target, f"Reach-Caller: {caller}", method="DELETE"), door="mesh")


async def test_only_the_caller_may_cancel_and_only_its_own(inner: Mesh) -> None:
    b = await inner.node("b", hangs, "summarize")
    client = await inner.connect(b, "mesh")
    await client.send(inner.delivery(b, method="POST", body=b"work"))
    await until(lambda: b.agent.asked)
    key = b.agent.last.one("Idempotency-Key")
    for answer in (await delete(inner, b, key, "c"), await delete(inner, b, key, ""), await delete(inner, b, "other")):
        assert (answer.status, answer.code) == (404, "not_found")
    assert b.agent.gone == 0
    assert (await delete(inner, b, key)).status == 204
    await until(lambda: b.agent.gone == 1)
    assert await client.ended()
    assert (await delete(inner, b, key)).status == 404
    await inner.idle()


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_odd_keys_are_found_and_an_agents_own_keeps_the_run(inner: Mesh, method: str) -> None:
    """A safe method keeps no key, so nobody can come back for its answer: that one is ended."""
    key = "a/b ?&%\xe9"
    b = await inner.node("b", hangs, CapabilityConfig(name="summarize", dedup="off" if method == "GET" else "memory"))
    client = await inner.connect(b, "mesh")
    body = b"work" if method == "POST" else None
    await client.send(inner.delivery(b, key=key, method=method, body=body))
    await until(lambda: b.agent.asked)
    answer = await delete(inner, b, key, key_encoding="latin-1")
    assert answer.status == (204 if method == "GET" else 404)
    if method == "GET":
        await until(lambda: b.agent.gone == 1)
    else:
        assert b.agent.gone == 0


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
    """The call joins its own run, and waits for it as long as it may."""
    asking = asyncio.ensure_future(in_a_hurry(inner, a, b, "400ms"))
    await until(lambda: b.agent.asked)
    a.peer("b").pool.close()
    await asking


async def agent_dies(inner: Mesh, a: Node, b: Node) -> None:
    asking = asyncio.ensure_future(answers(inner, a, b))
    await until(lambda: b.agent.asked)
    await b.agent.close()
    await asking


async def in_a_hurry(inner: Mesh, a: Node, b: Node, timeout: str = "60ms") -> None:
    await inner.ask(a, "/to/summarize/x", f"Reach-Timeout: {timeout}", body=b"work")


async def nonsense_in_the_body(inner: Mesh, a: Node, b: Node) -> None:
    await inner.ask(a, "/to/summarize/x", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\nzz\r\n")


async def refused(inner: Mesh, a: Node, b: Node) -> None:
    b.sidecar.local.closing = True
    await answers(inner, a, b)


async def sidecar_cut(inner: Mesh, a: Node, b: Node) -> None:
    asking = asyncio.ensure_future(in_a_hurry(inner, a, b, "400ms"))
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
    [call] = await a.log(event="call")
    sent = {line["attempt_span_id"] for line in (call, *await a.log(event="attempt"))}
    delivered = [line["parent_id"] for line in await b.log(event="deliver")]
    assert delivered
    assert len(delivered) == len(set(delivered)), "one line for each attempt that arrived"
    assert set(delivered) <= sent
