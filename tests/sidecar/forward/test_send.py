"""One attempt, from a request on the outbound door to the answer: bodies, heads, and what breaks on the way."""

import asyncio
import time

import pytest
from harness.sidecars import Asked, Mesh, ok, request, says, until
from sidecar.http1.raw import Answer, reset

KEEP = 256 * 1024


async def test_what_the_caller_learns_about_the_way(inner: Mesh) -> None:
    a, b = await inner.pair()
    answer = await inner.ask(a, "/to/summarize/x")
    trace_id = b.agent.last.one("traceparent").split("-")[1]
    assert answer.header("Reach-Trace-Id") == trace_id
    assert answer.header("Reach-Agent") == "b"
    assert answer.header("Reach-Attempts") == "1"
    assert answer.header("Reach-Matched") == "exact"
    parts = [part.strip().split(";dur=") for part in str(answer.header("Server-Timing")).split(",")]
    assert [name for name, _ in parts] == ["queue", "agent", "mesh"]
    assert all(0.0 <= float(ms) < 5000 for _, ms in parts)


async def test_what_it_learns_after_more_than_one_attempt(inner: Mesh) -> None:
    a = await inner.node("a")
    b1, _ = await inner.node("b1", ok(), "summarize"), await inner.node("b2", ok(), "summarize")
    inner.share()
    a.peer("b2").hear_load(60, 60, asyncio.get_running_loop().time())
    b1.sidecar.local.closing = True
    answer = await inner.ask(a, "/to/summarize/x", body=b"x")
    assert (answer.header("Reach-Agent"), answer.header("Reach-Attempts")) == ("b2", "2")
    parts = [part.strip().split(";dur=") for part in str(answer.header("Server-Timing")).split(",")]
    assert [name for name, _ in parts] == ["queue", "agent", "mesh", "retry"]
    assert 0.0 < float(parts[-1][1]) < 5000
    assert (await inner.ask(a, "/to/summarize/x", body=b"x")).header("Reach-Retries-Left") is None


@pytest.mark.parametrize("size", [0, 1, 1000, KEEP - 1, KEEP, KEEP + 1, 3 * KEEP])
@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_both_ways(inner: Mesh, size: int, chunked: bool) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]

    async def echo(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if chunked:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for at in range(0, len(asked.body), 50_000):
                piece = asked.body[at:at + 50_000]
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            writer.write(b"0\r\n\r\n")
        else:
            writer.write(ok(asked.body))

    a, b = await inner.pair(echo)
    if chunked:
        data = b"".join(b"%x\r\n%b\r\n" % (len(body[at:at + 70_000]), body[at:at + 70_000])
                        for at in range(0, size, 70_000)) + b"0\r\n\r\n"
        answer = await inner.ask(a, "/to/summarize/x", "Transfer-Encoding: chunked", body=data)
    else:
        answer = await inner.ask(a, "/to/summarize/x", body=body)
    assert answer.status == 200
    assert b.agent.last.body == body
    assert answer.body == body
    assert answer.whole
    await inner.idle()


async def test_no_body_is_no_body(inner: Mesh) -> None:
    a, b = await inner.pair()
    for method in ("GET", "DELETE", "OPTIONS"):
        await inner.ask(a, "/to/summarize/x", method=method)
        assert not b.agent.last.all("Content-Length")
        assert not b.agent.last.all("Transfer-Encoding")
    await inner.ask(a, "/to/summarize/x", body=b"")
    assert b.agent.last.one("Content-Length") == "0"


async def test_content_codings_are_not_touched(inner: Mesh) -> None:
    packed = bytes.fromhex("1f8b0800000000000003cb48cdc9c9070086a6103605000000")
    a, b = await inner.pair(ok(packed, b"Content-Encoding: gzip", b"ETag: \"x\""))
    answer = await inner.ask(a, "/to/summarize/x", "Content-Encoding: gzip", "Accept-Encoding: br;q=1, *;q=0",
                             body=packed)
    assert (b.agent.last.body, answer.body) == (packed, packed)
    assert b.agent.last.one("Accept-Encoding") == "br;q=1, *;q=0"
    assert answer.header("Content-Encoding") == "gzip"


async def test_trailers_both_ways(inner: Mesh) -> None:
    a, b = await inner.pair(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
                            b"2\r\nhi\r\n0\r\nX-Sum: 9\r\n\r\n")
    answer = await inner.ask(a, "/to/summarize/x", "Transfer-Encoding: chunked", "Trailer: X-In",
                             body=b"3\r\nabc\r\n0\r\nX-In: 1\r\nX-Two: 2\r\n\r\n")
    assert b.agent.last.trailers == [("X-In", "1"), ("X-Two", "2")]
    assert (answer.body, answer.trailers) == (b"hi", [("X-Sum", "9")])


@pytest.mark.parametrize(("raw", "method", "status", "body"), [
    (b"HTTP/1.1 204 No Content\r\nX: 1\r\n\r\n", "DELETE", 204, b""),
    (b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 99\r\n\r\n", "GET", 304, b""),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", "HEAD", 200, b""),
    (b"HTTP/1.1 404 Nope\r\nContent-Length: 2\r\n\r\nno", "GET", 404, b"no"),
    (b"HTTP/1.1 503 Busy\r\nRetry-After: 700\r\nContent-Length: 0\r\n\r\n", "POST", 503, b""),
    (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "POST", 503, b""),
    (b"HTTP/1.1 429 Slowly\r\nContent-Length: 0\r\n\r\n", "GET", 429, b""),
    (b"HTTP/1.1 500 \r\nContent-Length: 3\r\n\r\nbad", "POST", 500, b"bad"),
    (b"HTTP/1.1 207 Multi-Status\r\nContent-Length: 1\r\n\r\nx", "PROPFIND", 207, b"x"),
])
async def test_the_agents_own_answer_passes_whatever_its_status(inner: Mesh, raw: bytes, method: str, status: int,
                                                                body: bytes) -> None:
    a, _ = await inner.pair(raw)
    answer = await inner.ask(a, "/to/summarize/x", method=method, body=b"x" if method == "POST" else None)
    assert (answer.status, answer.body, answer.whole) == (status, body, True)
    assert answer.header("Reach-Agent") == "b"
    if status in (200, 304):
        assert answer.header("Content-Length") == "99"
    assert answer.header("Reach-Attempts") == "1"
    assert answer.header("Retry-After") == ("700" if b"Retry-After" in raw else None), "the call's time is over then"
    await inner.idle()


async def test_an_answer_that_ends_with_the_connection(inner: Mesh) -> None:
    a, _ = await inner.pair(says(b"HTTP/1.0 200 OK\r\n\r\nall there is", close=True))
    answer = await inner.ask(a, "/to/summarize/x")
    assert (answer.status, answer.body, answer.whole) == (200, b"all there is", True)


async def test_interim_answers_pass_ahead_of_the_final_one(inner: Mesh) -> None:
    async def hints(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n")
        await writer.drain()
        writer.write(ok(b"final"))

    a, _ = await inner.pair(hints)
    client = await inner.connect(a)
    await client.send(request("/to/summarize/x"))
    found = [await client.answer() for _ in range(3)]
    assert [answer.status for answer in found if answer] == [103, 102, 200]
    assert found[0] is not None
    assert found[0].header("Link") == "</a>"


async def test_each_chunk_comes_as_it_is_made(inner: Mesh) -> None:
    """The next one is only made once the one before has been seen at the far end."""
    seen: asyncio.Queue[None] = asyncio.Queue()

    async def streams(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(3):
            writer.write(b"8\r\ndata: %d\n\r\n" % number)
            await seen.get()
        writer.write(b"0\r\n\r\n")

    a, _ = await inner.pair(streams)
    client = await inner.connect(a)
    await client.send(request("/to/summarize/x"))
    async with asyncio.timeout(5):
        await client.reader.readuntil(b"\r\n\r\n")
        for number in range(3):
            assert b"data: %d\n" % number in await client.reader.readuntil(b"\n\r\n")
            seen.put_nowait(None)
        assert await client.reader.readuntil(b"0\r\n\r\n")
    await inner.idle()


async def test_an_early_answer_is_not_held_back(inner: Mesh) -> None:
    """The agent answers before it has read the request; nobody waits for the rest."""
    a, _b = await inner.pair(says(b"HTTP/1.1 413 No\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig", close=True),
                            read_first=False)
    client = await inner.connect(a)
    await client.send(request("/to/summarize/x", "Content-Length: 1000000", method="POST") + b"x" * 1000)
    answer = await client.final()
    assert (answer.status, answer.body) == (413, b"big")
    await inner.idle()


async def test_expect_continue_asks_the_far_end_and_never_the_agent(inner: Mesh) -> None:
    a, b = await inner.pair()
    client = await inner.connect(a)
    await client.send(request("/to/summarize/x", "Expect: 100-continue", "Content-Length: 4", method="POST"))
    first = await client.answer()
    assert first is not None
    assert first.status == 100
    await client.send(b"body")
    assert (await client.final()).status == 200
    assert b.agent.last.body == b"body"
    assert not b.agent.last.all("Expect")


async def test_a_refusal_costs_no_body(inner: Mesh) -> None:
    a, b = await inner.pair()
    b.sidecar.local.closing = True
    client = await inner.connect(a)
    await client.send(request("/to/summarize/x", "Expect: 100-continue", "Content-Length: 4000000", method="POST"))
    answer = await client.answer()
    assert answer is not None
    assert (answer.status, answer.code) == (503, "no_agent_available"), "and no 100 before it"


async def test_slow_pieces_of_a_body(inner: Mesh) -> None:
    a, b = await inner.pair()
    client = await inner.connect(a)
    head = request("/to/summarize/x", "Transfer-Encoding: chunked", method="POST")
    await client.send(head, b"1\r", b"\na\r\n", b"2\r\nb", b"c\r\n", b"0\r\n", b"\r\n", pause_s=0.01)
    assert (await client.final()).status == 200
    assert b.agent.last.body == b"abc"


# -- what breaks

async def cut(inner: Mesh, start: bytes) -> tuple[Answer, list[dict[str, object]]]:
    async def breaks(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        await writer.drain()
        await asyncio.sleep(0.02)
        reset(writer)

    a, _ = await inner.pair(breaks)
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    await inner.idle()
    return answer, await a.log(event="call")


@pytest.mark.parametrize("start", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf",
    b"HTTP/1.0 200 OK\r\n\r\nhalf of it",
])
async def test_an_agent_that_breaks_off_breaks_off_the_caller(inner: Mesh, start: bytes) -> None:
    """A cut answer never looks complete, and never is tried again."""
    answer, [line] = await cut(inner, start)
    assert answer.status == 200
    assert not answer.whole
    assert (line["outcome"], line["status"]) == ("cut_off", 200)


async def test_an_agent_that_dies_behind_the_head_of_its_answer_has_given_none(inner: Mesh) -> None:
    """Nothing went to the caller yet, so it is told instead of cut off."""
    answer, [line] = await cut(inner, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    assert (answer.status, answer.code, answer.whole) == (502, "outcome_unknown", True)
    assert line["outcome"] == "outcome_unknown"


async def test_nonsense_inside_a_chunked_answer_breaks_it_off(inner: Mesh) -> None:
    a, _ = await inner.pair(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\nmore")
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    # nothing of an answer that is broken from the start needs to have left its sidecar yet: then it is an error
    assert not answer.whole or (answer.status, answer.code) == (502, "outcome_unknown")
    await inner.idle()


async def test_a_request_that_breaks_off_is_its_senders_fault(inner: Mesh) -> None:
    a, b = await inner.pair()
    answer = await inner.ask(a, "/to/summarize/x", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\nnonsense\r\n")
    assert (answer.status, answer.code, answer.json["executed"]) == (400, "bad_request", "unknown")
    await inner.idle()
    assert not b.sidecar.local.unfit


# -- a peer whose sidecar misbehaves

async def misled(inner: Mesh, reply: bytes, *, close: bool = True, timeout: str = "400ms") -> Answer:
    """A call to `b`, at whose address something answers `reply`."""
    a, b = await inner.pair()
    fake = await inner.agent(says(reply, close=close))
    a.learn(b.entry(address=f"127.0.0.1:{fake.port}"))
    answer = await inner.ask(a, "/to/summarize/x", f"Reach-Timeout: {timeout}", body=b"x")
    await inner.idle()
    return answer


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b'{"detail": 5}', b'{"detail": null}'])
async def test_a_refusal_without_words(inner: Mesh, body: bytes) -> None:
    answer = await misled(inner, b"HTTP/1.1 503 X\r\nReach-Refused: busy\r\nContent-Length: %d\r\n\r\n%b"
                          % (len(body), body))
    assert (answer.status, answer.code, answer.json["executed"]) == (503, "backpressure", "no")


@pytest.mark.parametrize("rest", [b"Content-Length: 50\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
                                  b"Content-Length: 200000\r\n\r\n" + b" " * 200_000])
@pytest.mark.parametrize("close", [False, True])
async def test_a_refusal_that_does_not_come_whole_is_one_all_the_same(inner: Mesh, rest: bytes, close: bool) -> None:
    """It neither holds the call past its deadline nor is blamed on the caller."""
    answer = await misled(inner, b"HTTP/1.1 503 X\r\nReach-Refused: draining\r\n" + rest, close=close)
    assert (answer.status, answer.json["executed"]) in [(503, "no"), (504, "no")]
    assert answer.json["attempts"] == [{"agent": "b", "result": "draining", "ms": answer.json["attempts"][0]["ms"]}]


async def test_not_allowed_is_final(inner: Mesh) -> None:
    answer = await misled(inner, ok(b'{"detail": "Policy says no."}', b"Reach-Refused: not_allowed"))
    assert (answer.status, answer.code, answer.json["executed"]) == (403, "not_allowed", "no")
    assert "Policy says no." in answer.json["detail"]


@pytest.mark.parametrize(("fault", "executed", "code"), [
    ("bad_request", "no", "bad_request"), ("key_reused", "no", "key_reused"), ("in_progress", "unknown", "in_progress"),
    ("internal_error", "unknown", "internal_error"), ("from_the_future", "yes", "bad_gateway"),
    ("from_the_future", "nonsense", "bad_gateway"), ("deadline_exceeded", "no", "deadline_exceeded"),
])
async def test_a_peers_last_word(inner: Mesh, fault: str, executed: str, code: str) -> None:
    answer = await misled(inner, ok(b'{"detail": "Because.", "executed": "%b"}' % executed.encode(),
                                    b"Reach-Fault: " + fault.encode()))
    assert (answer.code, answer.json["detail"]) == (code, "Because.")
    assert answer.json["executed"] == (executed if executed != "nonsense" else "unknown")
    assert [(one["agent"], one["result"]) for one in answer.json["attempts"]] == [("b", code)]
    assert answer.header("Reach-Attempts") == "1"


async def test_a_peer_that_says_nothing_is_given_up_in_time(inner: Mesh) -> None:
    answer = await misled(inner, b"HTTP/1.1 200 OK\r\nX: ", close=False, timeout="150ms")
    assert (answer.status, answer.code) == (504, "deadline_exceeded")


async def test_a_peer_that_closed_its_idle_connection_costs_nothing(inner: Mesh) -> None:
    a, b = await inner.pair()
    for _ in range(3):
        assert (await inner.ask(a, "/to/summarize/x", body=b"x")).header("Reach-Attempts") == "1"
        for connection in list(b.sidecar._mesh.service.connections):
            connection.close()
        await until(lambda: not b.sidecar._mesh.service.connections)


async def test_a_peer_that_leaves_lets_running_calls_end(inner: Mesh) -> None:
    """The news that it left comes while its last answers are still on their way."""
    go = asyncio.Event()

    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(ok(b"late"))

    a, b = await inner.pair(slow)
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x", body=b"x"))
    await until(lambda: b.agent.asked)
    entry = b.entry()
    a.learn(entry)
    a.learn(entry.tombstone(time.time_ns() // 1_000_000))
    assert a.peer("b") is None
    go.set()
    answer = await asking
    assert (answer.status, answer.body) == (200, b"late")


async def test_an_address_that_changes_lets_running_calls_end(inner: Mesh) -> None:
    go = asyncio.Event()

    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(ok(b"late"))

    a, b = await inner.pair(slow)
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x", body=b"x"))
    await until(lambda: b.agent.asked)
    a.learn(b.entry(address="127.0.0.1:1"))
    go.set()
    assert (await asking).body == b"late"
    await inner.idle()




@pytest.mark.parametrize("reply", [
    ok(b"hello"), ok(b"hello", b"Server: nginx"), b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000,
], ids=["ok", "nginx", "404", "stream", "large"])
async def test_an_answer_without_a_sidecars_mark_is_not_the_agents(inner: Mesh, reply: bytes) -> None:
    """Another program has got the port of a sidecar that is gone."""
    a, b = await inner.pair()
    fake = await inner.agent(says(reply))
    a.learn(b.entry(address=f"127.0.0.1:{fake.port}"))
    answer = await inner.ask(a, "/to/summarize/x", body=b"x")
    assert (answer.status, answer.code, answer.json["executed"]) == (502, "bad_agent_response", "unknown")
    assert f"what answers at 127.0.0.1:{fake.port} is not a sidecar" in answer.json["detail"]
    await inner.idle()
    again = await inner.ask(a, "/to/summarize/x", body=b"x")
    assert (again.status, again.code, again.json["executed"]) == (503, "no_agent_available", "no")
    assert len(fake.asked) == 1, "it is left alone for a while"


async def test_an_upgrade_by_a_stranger_is_no_tunnel(inner: Mesh) -> None:
    a, b = await inner.pair()
    fake = await inner.agent(says(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"))
    a.learn(b.entry(address=f"127.0.0.1:{fake.port}"))
    answer = await inner.ask(a, "/to/summarize/x", "Connection: Upgrade", "Upgrade: websocket")
    assert (answer.status, answer.code) == (502, "bad_agent_response")
    await until(lambda: not fake._tasks)
    await inner.idle()


async def test_a_load_that_cannot_be_read_is_a_mark_all_the_same(inner: Mesh) -> None:
    answer = await misled(inner, ok(b"done", b"Reach-Load: from the future"))
    assert (answer.status, answer.body) == (200, b"done")


async def test_what_the_mesh_door_refuses_is_not_the_agents_answer(inner: Mesh) -> None:
    """A caller's head that fits the outbound door fits the mesh door too, with all that is added on the way."""
    a, b = await inner.pair()
    large = [f"X-Large-{n}: {'x' * 8000}" for n in range(8)]
    answer = await inner.ask(a, "/to/summarize/x", *large)
    assert answer.status == 200
    assert len(b.agent.last.headers) > 8
    b.sidecar._mesh.service.limits = b.sidecar._mesh.service.limits._replace(head_bytes=4096)
    answer = await inner.ask(a, "/to/summarize/x", *large)
    assert (answer.status, answer.code, answer.json["executed"]) == (431, "header_too_large", "no")
    assert [(one["agent"], one["result"]) for one in answer.json["attempts"]] == [("b", "header_too_large")]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_an_empty_chunked_body_is_said_to_be_empty(inner: Mesh, method: str) -> None:
    """Some servers answer 411 to a POST that says nothing of its length."""
    a, b = await inner.pair()
    await inner.ask(a, "/to/summarize/x", "Transfer-Encoding: chunked", method=method, body=b"0\r\n\r\n")
    assert b.agent.last.one("Content-Length") == "0"
    assert not b.agent.last.all("Transfer-Encoding")
    await inner.ask(a, "/to/summarize/x", method=method)
    assert b.agent.last.one("Content-Length") == "0"
