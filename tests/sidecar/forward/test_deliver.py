"""The last step: the agent itself."""

import asyncio

import msgspec
import pytest
from harness.sidecars import Asked, Mesh, closed_port, hangs, ok, request, until

from reach_sidecar.config import CapabilityConfig
from reach_sidecar.http1.client import ConnectFailed
from reach_sidecar.http1.pool import Pool
from reach_sidecar.policy.timeout import ENOUGH


async def test_what_the_agent_sees_of_the_call(inner: Mesh) -> None:
    a, b = await inner.pair()
    await inner.ask(a, "/to/summarize/x", "Reach-Timeout: 9s", "Reach-Session: s1", "Idempotency-Key: k1")
    got = b.agent.last
    assert got.one("Host") == f"127.0.0.1:{b.agent.port}"
    assert (got.one("Reach-Caller"), got.one("Reach-Attempt"), got.one("Reach-Session")) == ("a", "1", "s1")
    assert got.one("Idempotency-Key") == "k1"
    assert int(got.one("Reach-Timeout").removesuffix("ms")) <= 9000
    assert not got.all("Connection")


async def test_the_capabilitys_own_time(inner: Mesh) -> None:
    a, b = await inner.pair(ok(), CapabilityConfig(name="summarize", timeout=2.0))
    await inner.ask(a, "/to/summarize/x")
    assert int(b.agent.last.one("Reach-Timeout").removesuffix("ms")) <= 2000
    await inner.ask(a, "/to/summarize/x", "Reach-Timeout: 1s")
    assert int(b.agent.last.one("Reach-Timeout").removesuffix("ms")) <= 1000


async def test_connections_to_the_agent_are_used_again_for_a_moment(inner: Mesh) -> None:
    a, b = await inner.pair()
    await until(lambda: b.sidecar.local.confirmed)
    for _ in range(4):
        assert (await inner.ask(a, "/to/summarize/x", body=b"x")).status == 200
    assert len({id(asked.reader) for asked in b.agent.asked}) == 1
    b.sidecar.deliver.prune(asyncio.get_running_loop().time() + 2.0)
    assert (await inner.ask(a, "/to/summarize/x", body=b"x")).status == 200
    assert len({id(asked.reader) for asked in b.agent.asked}) == 2


async def test_an_agent_that_closes_as_it_likes_costs_no_call(inner: Mesh) -> None:
    """It answers and hangs up a moment later, without a word of it in its answer."""
    async def closes(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(ok())
        await writer.drain()
        writer.close()

    a, _ = await inner.pair(closes)
    for _ in range(10):
        answer = await inner.ask(a, "/to/summarize/x", body=b"x")
        assert (answer.status, answer.header("Reach-Attempts")) == (200, "1")


async def test_an_agent_at_a_new_address(inner: Mesh) -> None:
    a, b = await inner.pair(ok(b"old"))
    assert (await inner.ask(a, "/to/summarize/x")).body == b"old"
    agent = await inner.agent(ok(b"new"))
    b.sidecar.local.declare("b", agent.url)
    assert (await inner.ask(a, "/to/summarize/x")).body == b"new"


async def test_the_old_address_ends_what_it_began(inner: Mesh) -> None:
    go = asyncio.Event()

    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(ok(b"old"))

    a, b = await inner.pair(slow)
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x"))
    await until(lambda: b.agent.asked)
    agent = await inner.agent(ok(b"new"))
    b.sidecar.local.declare("b", agent.url)
    assert (await inner.ask(a, "/to/summarize/x")).body == b"new"
    go.set()
    assert (await asking).body == b"old"
    await inner.idle()


async def test_nobody_listens(inner: Mesh) -> None:
    a = await inner.node("a")
    b = await inner.node("b", ok(), "summarize")
    await until(lambda: b.sidecar.local.confirmed)
    inner.share()
    b.sidecar.local.address = f"http://127.0.0.1:{closed_port()}"
    answer = await inner.ask(a, "/to/summarize/x", body=b"x")
    assert (answer.status, answer.code, answer.json["executed"]) == (503, "no_agent_available", "no")
    assert "connection refused" in answer.json["detail"]
    assert b.sidecar.local.unfit, "told to the mesh at once"
    assert any(line["event"] == "unfit" for line in await b.log())
    await inner.idle()


async def test_a_call_in_a_hurry_says_nothing_of_the_agent(inner: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may end while the connection is made. That must not keep everybody else from calling."""
    a, b = await inner.pair()
    await until(lambda: b.sidecar.local.confirmed)
    connect = Pool.connect

    async def slowly(pool: Pool, timeout_s: float | None = None) -> object:
        if pool.port != b.agent.port:
            return await connect(pool, timeout_s)
        await asyncio.sleep(timeout_s or 60.0)
        raise ConnectFailed("connecting timed out", hurried=True)

    monkeypatch.setattr(Pool, "connect", slowly)
    answer = await inner.ask(a, "/to/summarize/x", "Reach-Timeout: 50ms", body=b"x")
    assert (answer.status, answer.code) == (504, "deadline_exceeded")
    monkeypatch.undo()
    assert not b.sidecar.local.unfit
    assert a.peer("b").excluded(asyncio.get_running_loop().time()) is None
    assert (await inner.ask(a, "/to/summarize/x", body=b"x")).status == 200


async def test_an_agent_that_switches_protocols_unasked(inner: Mesh) -> None:
    a, _b = await inner.pair(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nxx")
    answer = await inner.ask(a, "/to/summarize/x", body=b"x")
    assert (answer.status, answer.code) == (502, "bad_agent_response")
    await inner.idle()


@pytest.mark.parametrize("upgrade", ["h2c", "HTTP/2.0", "foo"])
async def test_other_upgrades_are_stripped_and_the_body_kept(inner: Mesh, upgrade: str) -> None:
    a, b = await inner.pair()
    answer = await inner.ask(a, "/to/summarize/x", "Connection: Upgrade, HTTP2-Settings", f"Upgrade: {upgrade}",
                             "HTTP2-Settings: AAMAAABk", body=b"kept")
    assert answer.status == 200
    assert b.agent.last.body == b"kept"
    assert not {"upgrade", "http2-settings", "connection"} & {name.lower() for name, _ in b.agent.last.headers}


@pytest.mark.parametrize("again", [False, True])
async def test_a_websocket_is_a_tunnel(inner: Mesh, again: bool) -> None:
    """Also on connections that carried calls before."""
    async def shouts(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if not asked.all("Upgrade"):
            writer.write(ok())
            return
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                     b"Sec-WebSocket-Accept: x\r\n\r\nhello")
        while data := await asked.reader.read(100):
            writer.write(data.upper())
        writer.write(b"bye")
        writer.close()

    a, b = await inner.pair(shouts)
    if again:
        await inner.ask(a, "/to/summarize/x")
    client = await inner.connect(a)
    await client.send(request("/to/summarize/ws", "Connection: Upgrade", "Upgrade: websocket",
                              "Sec-WebSocket-Key: k"))
    answer = await client.answer()
    assert answer is not None
    assert answer.status == 101
    assert (answer.header("Upgrade"), answer.header("Sec-WebSocket-Accept")) == ("websocket", "x")
    assert b.agent.last.one("Upgrade") == "websocket"
    assert b.agent.last.one("Sec-WebSocket-Key") == "k"
    async with asyncio.timeout(5):
        assert await client.reader.readexactly(5) == b"hello"
        await client.send(b"a\x00b")
        assert await client.reader.readexactly(3) == b"A\x00B"
        assert a.slots()["out"] == 1
        client.half_close()
        assert await client.reader.read() == b"bye"
    await inner.idle()


async def test_a_tunnel_whose_client_vanishes(inner: Mesh) -> None:
    async def opens(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert not await asked.reader.read(1)

    a, b = await inner.pair(opens)
    client = await inner.connect(a)
    await client.send(request("/to/summarize/ws", "Connection: Upgrade", "Upgrade: websocket"))
    await client.answer()
    client.reset()
    await inner.idle()
    [line] = await b.log(event="deliver")
    assert line["status"] == 101


async def test_the_agent_is_asked_after_a_break(inner: Mesh) -> None:
    """It may be dead: its health is checked now and not at the next turn."""
    a, b = await inner.pair(hangs)
    await until(lambda: b.sidecar.local.confirmed)
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x", body=b"x"))
    await until(lambda: b.agent.asked)
    await b.agent.close()
    answer = await asking
    assert (answer.code, answer.json["executed"]) == ("outcome_unknown", "unknown")
    await until(lambda: b.sidecar.local.unfit)


async def test_a_capability_that_may_run_twice_is_the_called_sides_word(inner: Mesh) -> None:
    a, b = await inner.pair(ok(), CapabilityConfig(name="summarize", path="/own"))
    entry = b.entry()
    other = msgspec.structs.replace(entry.capabilities[0], path="/theirs")
    a.learn(msgspec.structs.replace(entry, capabilities=(other,)))
    await inner.ask(a, "/to/summarize")
    assert b.agent.last.target == "/theirs", "the path is chosen where the call begins"


# -- what the agent says of its work

def saying(body: bytes, *fields: bytes, status: bytes = b"200 OK", kind: bytes = b"application/json") -> bytes:
    lines = b"".join(field + b"\r\n" for field in (b"Content-Type: " + kind, *fields))
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, lines, len(body), body)


IN_JSON = CapabilityConfig(name="summarize", outcome="json")


@pytest.mark.parametrize(("declared", "answer", "status", "code"), [
    (IN_JSON, saying(b'{"status": "success", "n": 1}'), 200, None),
    (IN_JSON, saying(b'{"n": 1}'), 200, None),  # a missing field is success
    (IN_JSON, saying(b'{"success": true}'), 200, None),
    (IN_JSON, saying(b"[1]"), 200, None),
    (IN_JSON, saying(b"not json"), 200, None),
    (IN_JSON, saying(b'{"status": "failure"}', kind=b"text/plain"), 200, None),
    (IN_JSON, saying(b'{"status": "failure"}'), 502, "agent_failure"),
    (IN_JSON, saying(b'{"success": false}'), 502, "agent_failure"),
    (IN_JSON, saying(b'{"status": "invalid_request"}'), 422, "agent_invalid_request"),
    (IN_JSON, saying(b'{"status": "failure"}', status=b"404 No"), 404, None),  # of a success only
    (IN_JSON, saying(b'{"status": "failure"}', status=b"201 Made"), 502, "agent_failure"),
    (IN_JSON, saying(b'{"status": "failure"}', b"Reach-Outcome: success"), 200, None),  # the field wins
    ("summarize", saying(b'{"status": "failure"}'), 200, None),  # not declared to be looked at
    ("summarize", saying(b"x", b"Reach-Outcome: failure"), 502, "agent_failure"),
    ("summarize", saying(b"x", b"Reach-Outcome: SUCCESS", status=b"500 No"), 500, None),
    ("summarize", saying(b"x", b"Reach-Outcome: whatever"), 200, None),
])
async def test_a_200_that_carries_a_failure_is_a_failure(inner: Mesh, declared: object, answer: bytes, status: int,
                                                         code: str | None) -> None:
    a, b = await inner.pair(answer, declared)  # type: ignore[arg-type]
    got = await inner.ask(a, "/to/summarize/x", body=b"x")
    assert (got.status, got.code) == (status, code)
    if code is None:
        assert got.body == answer.partition(b"\r\n\r\n")[2], "as it was said"
    assert len(b.agent.asked) == 1
    await inner.idle()


async def test_a_word_that_is_none_does_not_reach_the_caller(inner: Mesh) -> None:
    a, _ = await inner.pair(saying(b"x", b"Reach-Outcome: whatever"))
    await inner.node("c", saying(b"x", b"reach-outcome:  Success "), "translate")
    inner.share()
    assert (await inner.ask(a, "/to/summarize/x", body=b"x")).header("Reach-Outcome") is None
    assert (await inner.ask(a, "/to/translate/x", body=b"x")).header("Reach-Outcome") == "success"


@pytest.mark.parametrize("framing", ["chunked", "chunked in pieces", "long"])
async def test_what_has_no_length_or_a_great_one_is_not_looked_into(inner: Mesh, framing: str) -> None:
    """Whichever way the pieces happen to arrive (design §4, `outcome`)."""
    said = b'{"status": "failure", "pad": "%b"}' % (b"x" * (2 << 20 if framing == "long" else 0))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if framing == "long":
            writer.write(head + b"Content-Length: %d\r\n\r\n" % len(said) + said)
            return
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
        if framing == "chunked in pieces":
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(said), said))

    a, _ = await inner.pair(script, IN_JSON)
    answer = await inner.ask(a, "/to/summarize/x", body=b"x")
    assert (answer.status, len(answer.body), answer.whole) == (200, len(said), True)
    await inner.idle()


async def test_a_json_answer_that_breaks_off_is_no_verdict(inner: Mesh) -> None:
    async def breaks(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"status\": ")
        await writer.drain()
        writer.close()

    a, _ = await inner.pair(breaks, IN_JSON)
    answer = await inner.ask(a, "/to/summarize/x", body=b"x")
    assert (answer.status, answer.code, answer.json["executed"]) == (502, "outcome_unknown", "unknown")
    await inner.idle()


# -- a bound that is learnt

async def test_an_adaptive_bound_is_learnt_from_what_calls_took(inner: Mesh) -> None:
    slow = False

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if slow:
            await asyncio.sleep(60)
        writer.write(ok())

    a, b = await inner.pair(script, CapabilityConfig(name="summarize", adaptive=True))
    for _ in range(ENOUGH):
        assert (await inner.ask(a, "/to/summarize/x", body=b"x")).status == 200
        assert ms_left(b.agent.last) > 60_000, "too few to tell"
    slow = True
    answer = await inner.ask(a, "/to/summarize/x", body=b"x")
    assert (answer.status, answer.code, answer.json["executed"]) == (504, "deadline_exceeded", "unknown")
    assert ms_left(b.agent.last) < 2_000, "after a few quick ones it waits no longer than that"
    learnt = b.sidecar.deliver._durations["summarize"]
    assert len(learnt) == ENOUGH + 2, "one that was cut off counts double"
    await inner.idle()


async def test_what_is_not_adaptive_learns_nothing(inner: Mesh) -> None:
    a, b = await inner.pair()
    await inner.ask(a, "/to/summarize/x", body=b"x")
    assert b.sidecar.deliver._durations == {}


def ms_left(asked: Asked) -> int:
    return int(asked.one("Reach-Timeout").removesuffix("ms"))
