"""Each key runs once: repeats join, are answered again, or are told why not. Over real sockets, at the mesh door."""

import asyncio
from typing import Any

import pytest
from harness.sidecars import Asked, Mesh, closed_port, hangs, hangs_up, ok, says, until
from sidecar.forward.keyed import STORED, Gate, ask, begin, call, capability, once, own_fields, settled

from reach_sidecar.config import CapabilityConfig, DedupConfig

# -- what is given again

ANSWERS = {
    "plain": (ok(b"done", b"X-One: 1", b"x-ONE:  two", b"Set-Cookie: a", b"Set-Cookie: b"), "POST"),
    "empty": (ok(b""), "POST"),
    "binary": (ok(bytes(range(256)) * 100), "POST"),
    "own reason": (b"HTTP/1.1 299 Quite Fine\r\nContent-Length: 2\r\n\r\nhm", "POST"),
    "204": (b"HTTP/1.1 204 No Content\r\nX-Y: z\r\n\r\n", "POST"),
    "304": (b"HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n", "GET"),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 700\r\n\r\n", "GET"),
    "HEAD": (b"HTTP/1.1 200 OK\r\nContent-Length: 700\r\n\r\n", "HEAD"),
    "HEAD without a length": (b"HTTP/1.1 200 OK\r\nX-Y: z\r\n\r\n", "HEAD"),
    "404": (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", "POST"),
    "500": (b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno", "POST"),
    "its own word": (ok(b"done", b"Reach-Outcome: failure"), "POST"),
}


@STORED
@pytest.mark.parametrize("name", ANSWERS)
async def test_a_repeat_gets_the_same_byte_for_byte(inner: Mesh, dedup: str, name: str) -> None:
    data, method = ANSWERS[name]
    b = await inner.node("b", data, capability(dedup))
    first, second = [await ask(inner, b, method=method) for _ in range(2)]
    assert (second.status, second.reason, second.body) == (first.status, first.reason, first.body)
    assert own_fields(second) == own_fields(first)
    assert second.header("Reach-Journal") == first.header("Reach-Journal")
    assert len(b.agent.asked) == 1
    lines = await b.log(event="deliver")
    assert [line.get("dedup") for line in lines] == [None, "replay"]


@STORED
@pytest.mark.parametrize("pieces", [[b"done"], [b"a" * 1000] * 50, [b"x" * 70_000] * 4], ids=["one", "many", "long"])
async def test_what_streamed_is_given_again_with_its_length(inner: Mesh, dedup: str, pieces: list[bytes]) -> None:
    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\nX-y: Z\r\n\r\n")
        for piece in pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\nX-Sum: 1\r\n\r\n")

    b = await inner.node("b", script, capability(dedup))
    first = await ask(inner, b)
    await settled(b)
    second = await ask(inner, b)
    assert second.body == first.body == b"".join(pieces)
    assert second.trailers == []
    assert second.header("Content-Length") == str(len(first.body))
    assert ("X-y", "Z") in second.headers
    assert len(b.agent.asked) == 1


@pytest.mark.parametrize(("dedup", "size", "again"), [
    ("memory", 1 << 20, 200), ("memory", (1 << 20) + 1, 409), ("durable", 3 << 20, 200),
])
@pytest.mark.parametrize("chunked", [False, True])
async def test_how_much_is_kept(inner: Mesh, dedup: str, size: int, again: int, chunked: bool) -> None:
    data = b"x" * size
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (size, data)
    b = await inner.node("b", answer if chunked else ok(data), capability(dedup))
    assert (await ask(inner, b)).body == data
    await settled(b)
    second = await ask(inner, b)
    assert second.status == again
    if again == 409:
        assert (second.code, second.json["executed"]) == ("answer_not_kept", "yes")
    else:
        assert second.body == data
    assert len(b.agent.asked) == 1


@STORED
async def test_an_event_stream_is_not_kept_and_counts_from_its_end(inner: Mesh, dedup: str) -> None:
    end = asyncio.Event()

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: 1\n\n")
        await end.wait()
        writer.close()

    b = await inner.node("b", script, capability(dedup), dedup=DedupConfig(keep=1.0))
    client = await begin(inner, b, call())
    async with asyncio.timeout(5):
        await client.reader.readuntil(b"data: 1")
    await asyncio.sleep(1.1)  # longer than it would be remembered
    assert (await ask(inner, b)).code == "answer_not_kept"
    assert len(once(b)) == 1
    end.set()
    await settled(b)
    assert (await ask(inner, b)).code == "answer_not_kept"
    assert len(b.agent.asked) == 1


async def test_an_event_stream_that_nobody_reads_ends_whoever_gave_the_key(inner: Mesh) -> None:
    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while True:
            writer.write(b"data: 1\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    b = await inner.node("b", script, capability("memory"))
    b.sidecar._mesh.service.abandon_after_s = 0.05
    client = await begin(inner, b, call())
    async with asyncio.timeout(5):
        await client.reader.readuntil(b"data: 1")
    client.close()
    await until(lambda: b.agent.gone == 1)
    await inner.idle()
    assert len(once(b)) == 0


# -- who is told what

@STORED
@pytest.mark.parametrize("change", [
    {"body": b"other"}, {"method": "PUT"}, {"path": "/y"}, {"path": "/x?q"}, {"fields": ("Content-Type: text/plain",)},
], ids=str)
async def test_another_request_with_the_same_key(inner: Mesh, dedup: str, change: dict[str, Any]) -> None:
    b = await inner.node("b", ok(), capability(dedup))
    await ask(inner, b)
    more = dict(change)
    answer = await ask(inner, b, "order-1", *more.pop("fields", ()), **more)
    assert (answer.code, answer.status, answer.json["executed"]) == ("key_reused", 422, "no")
    assert len(b.agent.asked) == 1


@STORED
@pytest.mark.parametrize("change", [
    {"caller": "c"}, {"target": "refund"}, {"fields": ("Reach-Scope: u2",)}, {"key": "order-2"}, {"key": None},
], ids=str)
async def test_who_shares_nothing(inner: Mesh, dedup: str, change: dict[str, Any]) -> None:
    b = await inner.node("b", ok(), capability(dedup), CapabilityConfig(name="refund", dedup=dedup))  # type: ignore[arg-type]
    await ask(inner, b)
    more = dict(change)
    assert (await ask(inner, b, more.pop("key", "order-1"), *more.pop("fields", ()), **more)).status == 200
    assert len(b.agent.asked) == 2


@STORED
async def test_the_trace_id_in_a_body_makes_no_other_request(inner: Mesh, dedup: str) -> None:
    b = await inner.node("b", ok(), capability(dedup))
    for digit in "ab":
        trace = digit * 32
        answer = await ask(inner, b, "order-1", f"traceparent: 00-{trace}-{'1' * 16}-01",
                           body=b'{"trace": "%b"}' % trace.encode())
        assert answer.status == 200
    assert len(b.agent.asked) == 1


@STORED
async def test_those_who_come_while_it_runs_get_the_same_answer(inner: Mesh, dedup: str) -> None:
    gate = Gate(ok(b"once", b"X-Y: z"))
    b = await inner.node("b", gate, capability(dedup), agent={"max_concurrency": 1})
    asking = [asyncio.ensure_future(ask(inner, b)) for _ in range(20)]
    await until(lambda: b.agent.asked)
    await until(lambda: len(once(b)._runs) == 1 and len(next(iter(once(b)._runs.values()))._waiting) == 19)
    assert (b.sidecar.local.running, b.sidecar.local.queued) == (1, 0)  # they need no place
    gate.open.set()
    answers = await asyncio.gather(*asking)
    assert {answer.body for answer in answers} == {b"once"}
    assert len({tuple(own_fields(answer)) for answer in answers}) == 1
    assert len(b.agent.asked) == 1
    await settled(b)


@STORED
async def test_a_joiner_has_a_deadline_of_its_own(inner: Mesh, dedup: str) -> None:
    b = await inner.node("b", hangs, capability(dedup))
    b.sidecar._mesh.service.abandon_after_s = 0.05
    first = await begin(inner, b, call())
    await until(lambda: b.agent.asked)
    answer = await ask(inner, b, "order-1", "Reach-Timeout: 80ms")
    assert (answer.code, answer.json["executed"]) == ("deadline_exceeded", "unknown")
    first.close()


@STORED
async def test_a_long_request_is_not_joined(inner: Mesh, dedup: str) -> None:
    gate = Gate()
    b = await inner.node("b", gate, capability(dedup))
    body = bytes(256 * 1024 + 1)
    first = asyncio.ensure_future(ask(inner, b, body=body))
    await until(lambda: b.agent.asked)
    answer = await ask(inner, b, body=body)
    assert (answer.code, answer.status, answer.json["executed"]) == ("in_progress", 409, "unknown")
    gate.open.set()
    assert (await first).status == 200
    assert (await ask(inner, b, body=body)).code == "answer_not_kept"
    assert len(b.agent.asked) == 1


@STORED
@pytest.mark.parametrize("body", [b"Content-Length: 2\r\n\r\nno", b"Transfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"],
                         ids=["whole", "chunked"])
@pytest.mark.parametrize(("head", "idempotent", "runs"), [
    (b"HTTP/1.1 503 X\r\nRetry-After: 1\r\n", False, 2), (b"HTTP/1.1 429 X\r\nRetry-After: 1\r\n", False, 2),
    (b"HTTP/1.1 200 X\r\nReach-Outcome: retryable_failure\r\n", False, 2), (b"HTTP/1.1 500 X\r\n", True, 2),
    (b"HTTP/1.1 500 X\r\n", False, 1), (b"HTTP/1.1 429 X\r\n", False, 1),
])
async def test_what_was_not_done_may_run_again(inner: Mesh, dedup: str, head: bytes, body: bytes, idempotent: bool,
                                               runs: int) -> None:
    b = await inner.node("b", head + body, capability(dedup, idempotent=idempotent))
    for _ in range(2):
        answer = await ask(inner, b)
        assert answer.body == b"no"
        await settled(b)
    assert len(b.agent.asked) == runs


@STORED
async def test_who_waits_for_what_was_not_done_runs_next(inner: Mesh, dedup: str) -> None:
    gate = Gate(b"HTTP/1.1 503 X\r\nRetry-After: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n")

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if len(b.agent.asked) > 1:
            writer.write(ok(b"now"))
            return
        await gate(asked, writer)
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(b"no\r\n0\r\n\r\n")

    b = await inner.node("b", script, capability(dedup))
    asking = [asyncio.ensure_future(ask(inner, b)) for _ in range(3)]
    await until(lambda: len(once(b)._runs) == 1 and len(next(iter(once(b)._runs.values()))._waiting) == 2)
    gate.open.set()
    assert sorted(answer.body for answer in await asyncio.gather(*asking)) == [b"no", b"now", b"now"]
    assert len(b.agent.asked) == 2


@STORED
@pytest.mark.parametrize(("script", "idempotent", "code", "again", "runs"), [
    (hangs_up, False, "outcome_unknown", "outcome_unknown", 1),
    (says(b"nonsense\r\n\r\n"), False, "bad_agent_response", "outcome_unknown", 1),
    (says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", close=True), False, "outcome_unknown", "outcome_unknown", 1),
    (hangs_up, True, "outcome_unknown", "outcome_unknown", 2),
], ids=["hangs up", "nonsense", "dies behind its head", "repeatable"])
async def test_a_run_without_an_answer_stays_in_doubt(inner: Mesh, dedup: str, script: Any, idempotent: bool, code: str,
                                                      again: str, runs: int) -> None:
    b = await inner.node("b", script, capability(dedup, idempotent=idempotent))
    assert (await ask(inner, b)).code == code
    await settled(b)
    assert (await ask(inner, b)).code == again
    assert len(b.agent.asked) == runs


@STORED
async def test_an_answer_that_breaks_off_leaves_doubt(inner: Mesh, dedup: str) -> None:
    b = await inner.node("b", says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", close=True), capability(dedup))
    client = await begin(inner, b, call())
    assert await client.is_reset()
    await settled(b)
    assert (await ask(inner, b)).code == "outcome_unknown"
    assert len(b.agent.asked) == 1


@STORED
@pytest.mark.parametrize("why", ["closed port", "draining", "unfit", "busy", "its time was over"])
async def test_what_did_not_run_leaves_nothing_behind(inner: Mesh, dedup: str, why: str) -> None:
    b = await inner.node("b", ok(), capability(dedup), agent={"max_concurrency": 1, "queue": 1})
    local = b.sidecar.local
    address, fields = local.address, ()
    if why == "closed port":
        local.address = f"http://127.0.0.1:{closed_port()}"
    elif why == "draining":
        local.closing = True
    elif why == "unfit":
        local.unfit = True
    elif why == "busy":
        local.running, local.queued = 1, 1
    else:
        local.running, fields = 1, ("Reach-Timeout: 50ms",)  # type: ignore[assignment]
    answer = await ask(inner, b, "order-1", *fields)
    assert (answer.status, answer.json["executed"]) == (504 if fields else answer.status, "no")
    local.address, local.closing, local.unfit, local.running, local.queued = address, False, False, 0, 0
    await settled(b)
    assert (await ask(inner, b)).status == 200
    assert len(b.agent.asked) == 1
