"""Answers as clients see them: framing for each kind of client, streams, cuts, time limits, and the order of it all."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sidecar.http1.raw import Door, echo, until

from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.message import Request, Response, field
from reach_sidecar.http1.server import ServerConnection, Service

Doors = Callable[..., Awaitable[Door]]
GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
HEAD = b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n"
OLD = b"GET /a HTTP/1.0\r\n\r\n"
UPLOAD = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def answer_with(make: Callable[[], Response]) -> Callable[[Request], Awaitable[Response]]:
    async def handler(request: Request) -> Response:
        return make()

    return handler


def stream(length: int | None = None, *headers: tuple[str, str], status: int = 200) -> Response:
    return Response(status, [field(*header) for header in headers], Body(), length=length)


class Source:
    """What fills a body, as a connection would: it can be paused, and it is told when nobody reads on."""

    def __init__(self) -> None:
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.abandoned = False
        self.body = Body(self)

    def pause_body(self) -> None:
        self.flowing.clear()

    def resume_body(self) -> None:
        self.flowing.set()

    def abandon_body(self) -> None:
        self.abandoned = True


# -- one answer


@pytest.mark.parametrize(("request_", "connection"), [
    (GET, None), (OLD, "close"), (OLD.replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"), "keep-alive"),
])  # fmt: skip
async def test_a_whole_answer(door: Doors, request_: bytes, connection: str | None) -> None:
    opened = await door(answer_with(lambda: Response(200, [field("X-a", "1"), field("x-A", "2")], b"hello")))
    answer = await (await opened.ask(request_)).final()
    assert (answer.body, answer.header("content-length")) == (b"hello", "5")
    assert answer.headers[:2] == [("X-a", "1"), ("x-A", "2")]
    assert answer.header("connection") == connection


@pytest.mark.parametrize("status", [204, 304])
async def test_some_statuses_have_no_body(door: Doors, status: int) -> None:
    opened = await door(answer_with(lambda: Response(status, [], b"not for you")))
    peer = await opened.ask(GET + GET)
    for _ in range(2):
        assert (await peer.final()).status == status
    assert (await peer.send(GET)).writer is peer.writer
    answer = await peer.final()
    assert (answer.header("content-length") is None) is (status == 204)
    assert answer.header("transfer-encoding") is None


@pytest.mark.parametrize("make", [
    lambda: Response(200, [], b"hello"), lambda: stream(5), lambda: stream(), lambda: Response(404, [], b"hello"),
])  # fmt: skip
async def test_head_has_the_head_alone(door: Doors, make: Callable[[], Response]) -> None:
    opened = await door(answer_with(make))
    peer = await opened.ask(HEAD + HEAD)
    for _ in range(2):
        answer = await peer.answer("HEAD")
        assert answer is not None
        assert answer.header("transfer-encoding") is None
        assert answer.header("content-length") in ("5", None)


async def test_an_interim_answer_goes_ahead(door: Doors) -> None:
    async def handler(request: Request) -> Response:
        if request.interim is not None:
            request.interim(103, [field("Link", "</a>")])
        return Response(200, [], b"ok")

    opened = await door(handler)
    peer = await opened.ask(GET)
    early = await peer.answer()
    assert early is not None
    assert (early.status, early.headers) == (103, [("Link", "</a>")])
    assert (await peer.final()).body == b"ok"
    first = await (await opened.ask(OLD)).answer()
    assert first is not None
    assert first.status == 200, "HTTP/1.0 knows no interim answers"


async def test_a_handler_that_fails_is_a_500_and_a_report(door: Doors) -> None:
    async def handler(request: Request) -> Response:
        raise KeyError("oops")

    opened = await door(handler)
    peer = await opened.ask(GET + GET)
    for _ in range(2):
        assert ((await peer.final()).status, len(opened.crashes)) == (500, 2)


# -- streams


@pytest.mark.parametrize(("length", "request_", "framing"), [
    (6, GET, ("content-length", "6")), (None, GET, ("transfer-encoding", "chunked")), (None, OLD, ("connection", "close")),
    (6, OLD, ("content-length", "6")),
])  # fmt: skip
async def test_each_piece_goes_out_at_once(door: Doors, length: int | None, request_: bytes,
                                           framing: tuple[str, str]) -> None:  # fmt: skip
    response = stream(length)
    sent: list[tuple[int, BaseException | None]] = []
    response.when_sent(lambda size, error: sent.append((size, error)))
    opened = await door(answer_with(lambda: response))
    body = response.body
    assert isinstance(body, Body)
    peer = await opened.ask(request_)
    head = await peer.reader.readuntil(b"\r\n\r\n")
    assert b"%b: %b" % (framing[0].encode(), framing[1].encode()) in head.replace(b"C", b"c").replace(b"T", b"t").replace(
        b"L", b"l").replace(b"E", b"e")
    chunked = framing[1] == "chunked"
    for piece in (b"abc", b"def"):
        body.feed(piece)
        expected = b"3\r\n" + piece + b"\r\n" if chunked else piece
        async with asyncio.timeout(2):
            assert await peer.reader.readexactly(len(expected)) == expected
    assert not sent
    body.trailers = [field("X-Sum", "6")]
    body.finish()
    if chunked:
        assert await peer.reader.readuntil(b"\r\n\r\n") == b"0\r\nX-Sum: 6\r\n\r\n"
    await until(lambda: sent == [(6, None)])
    if request_ is OLD:
        assert await peer.ended()
    else:
        assert (await (await peer.send(HEAD)).answer("HEAD")) is not None


@pytest.mark.parametrize(("length", "request_"), [(100, GET), (None, GET), (100, OLD), (None, OLD)])
async def test_a_stream_that_fails_never_looks_complete(door: Doors, length: int | None, request_: bytes) -> None:
    source = Source()
    reports: list[BaseException | None] = []

    async def handler(request: Request) -> Response:
        response = Response(200, [], source.body, length=length)
        response.when_sent(lambda size, error: reports.append(error))
        return response

    opened = await door(handler)
    peer = await opened.ask(request_ + GET)
    source.body.feed(b"half")
    await peer.reader.readuntil(b"half")
    source.body.fail(BodyError("cut off"))
    assert await peer.is_reset(), "a FIN would look like the end"
    assert [type(error) for error in reports] == [BodyError]


async def test_a_failed_stream_ends_the_pipeline(door: Doors) -> None:
    """Requests behind it are not run: nobody could get their answers."""
    calls = 0

    async def handler(request: Request) -> Response:
        nonlocal calls
        calls += 1
        response = stream()
        assert isinstance(response.body, Body)
        response.body.fail(BodyError("cut off"))
        return response

    opened = await door(handler)
    peer = await opened.ask(GET * 20)
    assert await peer.is_reset()
    await until(lambda: not opened.service.connections)
    assert calls == 1


async def test_a_client_that_does_not_read_stops_the_source(door: Doors) -> None:
    source = Source()
    total, fed = 48 << 20, 0
    opened = await door(answer_with(lambda: Response(200, [], source.body)))
    peer = await opened.ask(GET)

    async def feed() -> None:
        nonlocal fed
        while fed < total:
            await source.flowing.wait()
            source.body.feed(b"%08d" % (fed >> 13) * 1024)
            fed += 8192
            await asyncio.sleep(0)
        source.body.finish()

    feeding = asyncio.ensure_future(feed())
    await until(lambda: not source.flowing.is_set())
    last = -1
    while last != fed:
        last = fed
        await asyncio.sleep(0.05)
    assert fed < 12 << 20
    connection = next(iter(opened.service.connections))
    assert connection.transport is not None
    assert connection.transport.get_write_buffer_size() < 1 << 20
    answer = await peer.final()
    await feeding
    assert answer.whole
    assert len(answer.body) == total
    assert answer.body[::8192] == b"".join(b"%08d" % number for number in range(total >> 13))[::8]


async def test_a_handler_that_does_not_read_stops_the_client(door: Doors) -> None:
    go_on = asyncio.Event()
    bodies: list[Body] = []

    async def handler(request: Request) -> Response:
        bodies.append(request.body)
        await go_on.wait()
        return await echo_size(request)

    async def echo_size(request: Request) -> Response:
        size = 0
        while data := await request.body.read():
            size += len(data)
        return Response.json(200, size)

    total, sent = 48 << 20, 0
    opened = await door(handler)
    peer = await opened.ask(UPLOAD % total)

    async def send() -> None:
        nonlocal sent
        while sent < total:
            peer.writer.write(bytes(1 << 16))
            await peer.writer.drain()
            sent += 1 << 16

    sending = asyncio.ensure_future(send())
    await until(lambda: sent)
    last = -1
    while last != sent:
        last = sent
        await asyncio.sleep(0.05)
    assert sent < 12 << 20
    assert bodies[0].size < 1 << 20
    go_on.set()
    assert (await peer.final()).json == total
    await sending


# -- request bodies


async def test_a_body_streams_in_piece_by_piece(door: Doors) -> None:
    pieces: list[bytes] = []

    async def handler(request: Request) -> Response:
        while data := await request.body.read():
            pieces.append(data)
        return Response.json(200, [value.decode() for _, _, value in request.body.trailers])

    opened = await door(handler)
    peer = await opened.ask(CHUNKED)
    for piece in (b"one", b"two"):
        await peer.send(b"3\r\n" + piece + b"\r\n")
        await until(lambda piece=piece: pieces[-1:] == [piece])  # type: ignore[misc]
    await peer.send(b"0\r\nX-Sum: 6\r\n\r\n")
    assert (await peer.final()).json == ["6"]


async def test_continue_is_sent_when_the_body_is_asked_for(door: Doors) -> None:
    asked = asyncio.Event()

    async def handler(request: Request) -> Response:
        assert request.expects_continue
        await asked.wait()
        return await echo(request)

    opened = await door(handler)
    peer = await opened.ask(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(peer.reader.read(1), 0.05)
    asked.set()
    interim = await peer.answer()
    assert interim is not None
    assert interim.status == 100
    assert (await (await peer.send(b"hi")).final()).json["body"] == "hi"


async def test_no_continue_for_who_does_not_wait(door: Doors) -> None:
    opened = await door()
    peer = await opened.ask(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nhi")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(peer.reader.read(1), 0.05)
    answer = await (await peer.send(b"ho")).answer()
    assert answer is not None
    assert (answer.status, answer.json["body"]) == (200, "hiho")


async def test_a_final_answer_instead_of_continue_ends_the_connection(door: Doors) -> None:
    opened = await door(answer_with(lambda: Response(403, [], b"no")))
    peer = await opened.ask(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    answer = await peer.answer()
    assert answer is not None
    assert (answer.status, answer.header("connection")) == (403, "close")
    assert await peer.ended()


async def test_no_continue_inside_an_answer(door: Doors) -> None:
    """A handler may answer first and read afterwards: the 100 would land in the middle of its body."""
    response = stream(4)
    reading: list[asyncio.Task[bytes]] = []

    async def handler(request: Request) -> Response:
        async def read_late() -> bytes:
            await asyncio.sleep(0.02)
            return await request.body.read()

        reading.append(asyncio.ensure_future(read_late()))
        return response

    opened = await door(handler)
    peer = await opened.ask(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    await asyncio.sleep(0.05)
    body = response.body
    assert isinstance(body, Body)
    body.feed(b"done")
    body.finish()
    assert (await peer.final()).body == b"done"
    with pytest.raises(BodyError):
        await reading[0]


async def test_a_small_body_nobody_wanted_keeps_the_connection(door: Doors) -> None:
    opened = await door(answer_with(lambda: Response(403, [], b"no")))
    peer = await opened.ask(UPLOAD % 60_000)
    answer = await peer.final()
    assert (answer.status, answer.header("connection")) == (403, None)
    await peer.send(bytes(60_000) + GET)
    assert (await peer.final()).status == 403


@pytest.mark.parametrize("head", [UPLOAD % (4 << 20), CHUNKED + b"400000\r\n"])
async def test_a_large_body_nobody_wanted_ends_the_connection_behind_the_answer(door: Doors, head: bytes) -> None:
    opened = await door(answer_with(lambda: Response(403, [], b"no")))
    peer = await opened.ask(head)
    sending = asyncio.ensure_future(peer.send(*[bytes(1 << 18)] * 16))
    answer = await peer.final()
    assert (answer.status, answer.body) == (403, b"no")
    await sending
    assert await peer.ended()


async def test_an_unread_body_does_not_reset_the_answer_away(door: Doors) -> None:
    """The body filled up unread before the answer came: hanging up has to drain it first."""
    async def handler(request: Request) -> Response:
        await until(lambda: request.body.size > 64 << 10)
        return Response(403, [], b"no")

    opened = await door(handler, linger_s=2.0)
    peer = await opened.ask(UPLOAD % (24 << 20))
    for _ in range(96):
        peer.writer.write(bytes(1 << 18))
        await peer.writer.drain()  # raises where the connection was reset
    assert (await peer.final()).body == b"no"
    assert await peer.ended()


@pytest.mark.parametrize("raw", [UPLOAD % 10 + b"half", CHUNKED + b"a\r\nhalf", CHUNKED + b"4\r\nhalf\r\n"])
@pytest.mark.parametrize("end", ["half_close", "reset"])
async def test_a_request_cut_short_is_seen_as_cut(door: Doors, raw: bytes, end: str) -> None:
    seen: list[object] = []

    async def handler(request: Request) -> Response:
        try:
            while data := await request.body.read():
                seen.append(data)
        except (BodyError, asyncio.CancelledError) as error:
            seen.append(type(error))
            raise
        seen.append("complete")
        return Response(200, [])

    opened = await door(handler)
    peer = await opened.ask(raw)
    await until(lambda: seen == [b"half"])
    getattr(peer, end)()
    await until(lambda: len(seen) == 2)
    assert seen[1] in (BodyError, asyncio.CancelledError)
    assert await peer.ended()


async def test_a_broken_chunk_reaches_a_handler_that_does_not_catch_it(door: Doors) -> None:
    opened = await door()
    peer = await opened.ask(CHUNKED + b"2\r\nok\r\n")
    await peer.send(b"zz\r\n")
    answer = await peer.final()
    assert (answer.status, answer.code, answer.header("connection")) == (400, "bad_request", "close")
    assert opened.crashes == []
    assert await peer.ended()


async def test_a_broken_chunk_behind_a_begun_answer_ends_it(door: Doors) -> None:
    response = stream()
    opened = await door(answer_with(lambda: response))
    peer = await opened.ask(CHUNKED + b"zz\r\n" + GET)
    body = response.body
    assert isinstance(body, Body)
    body.feed(b"still")
    body.finish()
    assert (await peer.final()).body == b"still"
    assert await peer.ended()


# -- order


async def test_answers_come_in_the_order_of_the_requests(door: Doors) -> None:
    """The first is the slowest, and requests keep coming while others run."""
    running = 0

    async def handler(request: Request) -> Response:
        nonlocal running
        running += 1
        assert running == 1, "one at a time"
        await asyncio.sleep(0.03 if request.target in (b"/0", b"/2") else 0)
        running -= 1
        return await echo(request)

    opened = await door(handler)
    peer = await opened.connect()
    for number in range(6):
        await peer.send(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number)
        await asyncio.sleep(0.008)
    for number in range(6):
        assert (await peer.final()).json["target"] == f"/{number}"
    assert not opened.crashes


async def test_pipelining_stops_reading_beyond_its_bound(door: Doors) -> None:
    go_on = asyncio.Event()

    async def handler(request: Request) -> Response:
        await go_on.wait()
        return Response(200, [])

    opened = await door(handler, pipelined=3)
    peer = await opened.ask(GET * 50)
    connection = next(iter(opened.service.connections))
    await until(lambda: len(connection._queue) == 3)
    assert len(connection._stash) == 46 * len(GET)
    go_on.set()
    for _ in range(50):
        assert (await peer.final()).status == 200


async def test_a_connect_waits_for_its_turn_with_its_bytes(door: Doors) -> None:
    """Behind a running request, what follows a CONNECT must not be read as HTTP."""
    targets: list[bytes] = []

    async def handler(request: Request) -> Response:
        targets.append(request.target)
        if request.method == b"CONNECT":
            await asyncio.sleep(0.02)
            response = Response(200, [])
            response.length, response.inner_host = None, b"inner:80"
            return response
        await asyncio.sleep(0.02)
        return Response.json(200, request.connect_host and request.connect_host.decode())

    opened = await door(handler)
    peer = await opened.ask(GET + b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n" + GET + GET)
    assert (await peer.final()).json is None
    assert (await peer.final("CONNECT")).status == 200
    assert (await peer.final()).json == "inner:80"
    assert (await peer.final()).json == "inner:80"
    assert targets == [b"/a", b"a:80", b"/a", b"/a"]


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_a_connect_to_one_of_ours_goes_on_as_http(door: Doors, version: bytes) -> None:
    async def handler(request: Request) -> Response:
        if request.method == b"CONNECT":
            response = Response(200, [], reason=b"Connection established")
            response.length, response.inner_host = None, request.target
            return response
        return Response.json(200, request.connect_host and request.connect_host.decode())

    opened = await door(handler)
    peer = await opened.ask(b"CONNECT a.reach:80 HTTP/%b\r\nHost: a.reach:80\r\n\r\n" % version)
    answer = await peer.answer("CONNECT")
    assert answer is not None
    assert (answer.status, answer.reason) == (200, "Connection established")
    assert answer.header("content-length") is None
    for _ in range(2):
        assert (await (await peer.send(GET)).final()).json == "a.reach:80"


# -- time


async def test_a_slow_head_is_refused(door: Doors) -> None:
    opened = await door(head_timeout_s=0.1)
    started = time.monotonic()
    peer = await opened.ask(b"GET / HTTP/1.1\r\n")

    async def drip() -> None:
        while True:
            await peer.send(b"X-A: b\r\n")
            await asyncio.sleep(0.02)

    dripping = asyncio.ensure_future(drip())
    answer = await peer.final()
    dripping.cancel()
    assert (answer.status, answer.code, answer.header("connection")) == (408, "request_timeout", "close")
    assert 0.09 < time.monotonic() - started < 4.0
    assert opened.refusals[0][1] == "request_timeout"
    assert await peer.ended()


async def test_a_stray_line_end_is_no_slow_head(door: Doors) -> None:
    opened = await door(head_timeout_s=0.05, idle_timeout_s=0.3)
    peer = await opened.ask(b"\r", b"\n")
    await asyncio.sleep(0.15)
    assert (await (await peer.send(GET)).final()).status == 200


async def test_an_idle_connection_is_closed_without_a_word(door: Doors) -> None:
    opened = await door(idle_timeout_s=0.1)
    fresh, used = await opened.connect(), await opened.ask(GET)
    assert (await used.final()).status == 200
    assert await fresh.ended()
    assert await used.ended()
    await until(lambda: not opened.service.connections)


async def test_a_running_request_is_not_idle(door: Doors) -> None:
    async def handler(request: Request) -> Response:
        await asyncio.sleep(0.3)
        return Response(200, [], b"late")

    opened = await door(handler, idle_timeout_s=0.05, head_timeout_s=0.05, stream_idle_s=0.05)
    peer = await opened.ask(GET + GET)
    assert (await peer.final()).body == b"late"
    assert (await peer.final()).body == b"late"


@pytest.mark.parametrize(("kind", "cut"), [("text/plain", True), ("text/event-stream; charset=utf-8", False)])
async def test_a_stalled_stream_is_cut_unless_it_carries_events(door: Doors, kind: str, cut: bool) -> None:
    source = Source()
    opened = await door(answer_with(lambda: Response(200, [field("Content-Type", kind)], source.body)), stream_idle_s=0.1)
    peer = await opened.ask(GET)
    source.body.feed(b"first")
    await peer.reader.readuntil(b"first\r\n")
    if cut:
        assert await peer.ended()
        await until(lambda: source.abandoned)
    else:
        await asyncio.sleep(0.3)
        source.body.feed(b"second")
        source.body.finish()
        assert b"second" in await peer.reader.readuntil(b"0\r\n\r\n")


async def test_a_stream_that_moves_is_left_alone(door: Doors) -> None:
    source = Source()
    opened = await door(answer_with(lambda: Response(200, [], source.body)), stream_idle_s=0.15)
    peer = await opened.ask(GET)
    for _ in range(10):
        source.body.feed(b"x")
        await asyncio.sleep(0.04)
    source.body.finish()
    assert (await peer.final()).body == b"x" * 10


async def test_a_stalled_upload_is_cut(door: Doors) -> None:
    opened = await door(stream_idle_s=0.1)
    peer = await opened.ask(UPLOAD % 10 + b"half")
    assert await peer.ended()


async def test_a_client_that_takes_nothing_of_a_whole_answer_is_cut(door: Doors) -> None:
    sent: list[BaseException | None] = []

    async def handler(request: Request) -> Response:
        response = Response(200, [], bytes(32 << 20))
        response.when_sent(lambda size, error: sent.append(error))
        return response

    opened = await door(handler, stream_idle_s=0.1)
    await (await opened.connect(receive_buffer=1 << 14)).send(GET)
    await until(lambda: sent)
    assert sent[0] is not None
    await until(lambda: not opened.service.connections)


async def test_a_slow_reader_gets_the_last_answer_whole(door: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for as long as the client goes on taking."""
    monkeypatch.setattr("reach_sidecar.http1.connection.CLOSE_TIMEOUT_S", 0.15)
    opened = await door(answer_with(lambda: Response(200, [], bytes(8 << 20))), linger_s=0.05)
    peer = await (await opened.connect(receive_buffer=1 << 16)).send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    await peer.reader.readuntil(b"\r\n\r\n")
    got, started = 0, time.monotonic()
    while data := await peer.reader.read(1 << 17):
        got += len(data)
        if time.monotonic() - started < 0.8:
            await asyncio.sleep(0.01)
    assert got == 8 << 20


async def test_closing_gives_up_on_a_client_that_takes_nothing(door: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reach_sidecar.http1.connection.CLOSE_TIMEOUT_S", 0.05)
    opened = await door(answer_with(lambda: Response(200, [], bytes(32 << 20))))
    await (await opened.connect(receive_buffer=1 << 16)).send(GET)
    await until(lambda: opened.service.connections)
    connection = next(iter(opened.service.connections))
    await until(lambda: connection._write_paused)
    connection.close()
    await until(lambda: not opened.service.connections, patience_s=2.0)


# -- coming and going


@pytest.mark.parametrize("end", ["half_close", "close", "reset"])
async def test_a_client_that_goes_away_cancels_its_request(door: Doors, end: str) -> None:
    state: list[str] = []

    async def handler(request: Request) -> Response:
        state.append("running")
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            state.append("cancelled")
            raise
        return Response(200, [])

    opened = await door(handler)
    peer = await opened.ask(GET + GET)
    await until(lambda: state)
    getattr(peer, end)()
    await until(lambda: state == ["running", "cancelled"])
    await until(lambda: not opened.service.connections)


async def test_a_broken_connection_leaves_the_run_going_for_a_while(door: Doors) -> None:
    state: list[object] = []

    async def handler(request: Request) -> Response:
        state.append(asyncio.get_running_loop().time())
        try:
            await asyncio.sleep(30)
        finally:
            state.append(asyncio.get_running_loop().time())
        return Response(200, [])

    opened = await door(handler, abandon_after_s=0.15)
    peer = await opened.ask(GET)
    await until(lambda: state)
    peer.reset()
    await until(lambda: len(state) == 2)
    assert state[1] - state[0] > 0.14  # type: ignore[operator]


@pytest.mark.parametrize("request_", [GET, OLD])
async def test_half_closing_a_stream_never_makes_it_look_complete(door: Doors, request_: bytes) -> None:
    source = Source()
    opened = await door(answer_with(lambda: Response(200, [], source.body)))
    peer = await opened.ask(request_)
    source.body.feed(b"half")
    await peer.reader.readuntil(b"half")
    peer.half_close()
    assert await peer.is_reset()
    await until(lambda: source.abandoned)


async def test_half_closing_behind_a_whole_request_that_is_answered_at_once(door: Doors) -> None:
    opened = await door()
    peer = await opened.ask(GET)
    answer = await peer.final()
    peer.half_close()
    assert answer.json["target"] == "/a"
    assert await peer.ended()


async def test_a_head_cut_short_is_told_so(door: Doors) -> None:
    opened = await door()
    peer = await opened.ask(b"GET / HTTP/1.1\r\nHos")
    peer.half_close()
    answer = await peer.final()
    assert (answer.status, answer.code) == (400, "bad_request")
    assert await peer.ended()


async def test_too_many_connections_are_turned_away(door: Doors) -> None:
    opened = await door(max_connections=2)
    first, second = await opened.ask(GET), await opened.ask(GET)
    assert (await first.final()).status == (await second.final()).status == 200
    third = await opened.connect()
    assert ((await third.final()).status, await third.ended()) == (503, True), "it is told, and hung up on"
    first.close()
    await until(lambda: len(opened.service.connections) == 1)
    assert (await (await opened.ask(GET)).final()).status == 200


async def test_a_refusal_can_be_read_while_the_client_still_sends(door: Doors) -> None:
    opened = await door(linger_s=1.0)
    peer = await opened.ask(b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", *[bytes(1 << 16)] * 20)
    assert (await peer.final()).status == 400
    assert await peer.ended()


async def test_a_client_that_ignores_the_refusal_is_cut(door: Doors) -> None:
    opened = await door(linger_s=0.05)
    peer = await opened.ask(b"GET / HTTP/2.0\r\nHost: a\r\n\r\n")
    assert (await peer.final()).status == 400
    await until(lambda: not opened.service.connections)


# -- fed by hand: no sockets, no chance


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.out = b""
        self.shut = False

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None

    def write(self, data: bytes) -> None:
        assert not self.shut
        self.out += data

    def write_eof(self) -> None:
        self.shut = True

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


async def fed(pieces: list[bytes]) -> bytes:
    connection = ServerConnection(Service(echo, Limits()))
    wire = Wire()
    connection.connection_made(wire)  # type: ignore[arg-type]
    for piece in pieces:
        connection.data_received(piece)
        await asyncio.sleep(0)
    for _ in range(40):
        await asyncio.sleep(0)
    return wire.out


VALID = [
    GET, b"\r\n" + HEAD, UPLOAD % 5 + b"hello", CHUNKED + b"5;x\r\nhello\r\n0\r\nA: b\r\n\r\n", UPLOAD % 0,
    b"POST /h2c HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi",
    b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX:  y \r\n\r\n", b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
]  # fmt: skip
LAST = [b"", b"", b"GET / HTTP/2.0\r\n\r\n", CHUNKED + b"x\r\n", GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + GET]


_TRACE_ID = re.compile(rb"[0-9a-f]{32}")  # a refusal has one of its own


@given(st.lists(st.sampled_from(VALID), max_size=5), st.sampled_from(LAST), st.lists(st.integers(0, 600), max_size=12))
@settings(max_examples=80)
def test_any_split_of_requests_gives_the_same_answers(requests: list[bytes], last: bytes, cuts: list[int]) -> None:
    raw = b"".join(requests) + last
    at = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    pieces = [raw[start:end] for start, end in zip(at, at[1:], strict=False) if start < end]  # noqa: RUF007
    whole = asyncio.run(fed([raw]))
    assert _TRACE_ID.sub(b"", asyncio.run(fed(pieces))) == _TRACE_ID.sub(b"", whole)
    assert len(re.findall(rb"HTTP/1\.1 \d\d\d ", whole)) == len(requests) + (last != b"")


@given(st.one_of(st.binary(max_size=300), st.lists(st.sampled_from([
    *VALID, b"\r\n", b"GET ", b"/", b" HTTP/1.1\r\n", b"Host: a\r\n", b"Content-Length: 3\r\n", b"\0", b"5\r\n", b"\n",
    b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", b"Expect: 100-continue\r\n",
]), max_size=12).map(b"".join)))  # fmt: skip
@settings(max_examples=80)
def test_arbitrary_bytes_are_answered_or_refused(raw: bytes) -> None:
    out = asyncio.run(fed([raw]))
    assert b"internal_error" not in out
    assert out == b"" or out.startswith(b"HTTP/1.1 ")


async def test_a_head_in_single_bytes_costs_no_more_than_in_one_piece() -> None:
    raw = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(5000)) + b"\r\n"
    assert 50_000 < len(raw) < 64 << 10
    connection = ServerConnection(Service(echo, Limits()))
    connection.connection_made(Wire())  # type: ignore[arg-type]
    started = time.process_time()
    for at in range(len(raw)):
        connection.data_received(raw[at:at + 1])
    assert connection.busy
    assert time.process_time() - started < 1.5, "quadratic: it took over 5 s when every byte was searched again"
    task: Any = connection._task
    await task


async def test_a_flood_of_line_ends_costs_nothing(door: Doors) -> None:
    opened = await door()
    started = time.process_time()
    peer = await opened.ask(b"\r\n" * 500_000 + GET)
    assert (await peer.final()).status == 200
    assert time.process_time() - started < 1.5




@pytest.mark.parametrize("wanted", [True, False])
async def test_an_answer_that_is_still_of_use_is_worked_on_without_its_client(wanted: bool) -> None:
    ended: list[str] = []
    go = asyncio.Event()
    begun = asyncio.Event()

    async def handler(request: Request) -> Response:
        request.wanted = lambda: wanted
        begun.set()
        try:
            await go.wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        ended.append("done")
        return Response(200, [], b"")

    door = Door(handler, Limits(), 0.02)
    await door.start()
    peer = await door.connect()
    await peer.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await begun.wait()
    peer.reset()
    if wanted:
        await asyncio.sleep(0.2)  # ten times as long as it would go on unwanted
        assert ended == []
        go.set()
    await until(lambda: ended)
    assert ended == ["done" if wanted else "cancelled"]
    await door.stop()
