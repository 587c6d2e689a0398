"""One exchange after another with scripted servers: what comes back, and what each kind of failure is called."""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sidecar.http1.raw import Script, answering, read_head, reset, until

from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.http1.client import AnswerTimeout, BadAnswer, ClientConnection, ConnectFailed, ExchangeBroken
from reach_sidecar.http1.deadlines import Deadlines
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.message import Field, Response, field
from reach_sidecar.http1.pool import Pool

HEAD = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def ask(pool: Pool, method: bytes = b"GET", head: bytes = HEAD, body: Any = b"", *, within_s: float = 5.0,
              **how: Any) -> Response:
    connection = await pool.acquire(1.0)
    return await connection.exchange(method, head, body, asyncio.get_running_loop().time() + within_s, **how)


async def whole(response: Response) -> bytes:
    body = response.body
    return body if isinstance(body, bytes) else await body.collect(1 << 26)


def then(raw: bytes, *more: bytes, end: str = "close") -> Script:
    """Read one head, send `raw` and, a moment later each, `more`; then close, reset or stay."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(raw)
        for piece in more:
            await asyncio.sleep(0.02)
            writer.write(piece)
        await asyncio.sleep(0.02)
        if end == "reset":
            reset(writer)
        elif end == "close":
            writer.close()
        else:
            await reader.read()

    return script


@pytest.mark.parametrize(("raw", "status", "body", "length", "reusable"), [
    (OK, 200, b"ok", 2, True),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", 0, True),
    (b"HTTP/1.1 404\r\nContent-Length: 2\r\n\r\nno", 404, b"no", 2, True),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, b"ok", 2, True),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", 200, b"ok", 2, False),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", 2, False),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: Keep-Alive\r\n\r\nok", 200, b"ok", 2, True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", 0, True),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", 304, b"", 99, True),
    (b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"ok", 2, True),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2 \r\n\r\nok", 200, b"ok", 2, True),
])  # fmt: skip
@pytest.mark.parametrize("bytewise", [False, True])
async def test_answers(upstream: Any, pool_to: Any, raw: bytes, status: int, body: bytes, length: int, reusable: bool,
                       bytewise: bool) -> None:  # fmt: skip
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_head(reader):
            for piece in [raw[at:at + 1] for at in range(len(raw))] if bytewise else [raw]:
                writer.write(piece)
                await asyncio.sleep(0)

    server = await upstream(script)
    pool = pool_to(server.port)
    for _ in range(2):
        response = await ask(pool)
        assert (response.status, await whole(response)) == (status, body)
        assert response.length == length or (bytewise and response.length is None)
    assert server.connections == (1 if reusable else 2)
    assert pool.idle == (1 if reusable else 0)
    if not reusable:
        await until(lambda: len(pool) == 0, "closing what cannot be reused")


async def test_an_answer_to_head_has_no_body_whatever_it_announces(upstream: Any, pool_to: Any) -> None:
    server = await upstream(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    pool = pool_to(server.port)
    for _ in range(2):
        response = await ask(pool, b"HEAD", HEAD.replace(b"GET", b"HEAD"))
        assert (response.body, response.length) == (b"", 1000)
    assert server.connections == 1


async def test_headers_arrive_as_sent(upstream: Any, pool_to: Any) -> None:
    server = await upstream(b"HTTP/1.1 200 Fine by me\r\nX-a: 1\r\nx-A: 2\r\nContent-Length: 0\r\n\r\n")
    response = await ask(pool_to(server.port))
    assert response.reason == b"Fine by me"
    assert [name for _, name, _ in response.headers] == [b"X-a", b"x-A", b"Content-Length"]


async def test_a_streamed_answer_comes_chunk_by_chunk_with_its_trailers(upstream: Any, pool_to: Any) -> None:
    go_on = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_head(reader):
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for number in range(3):
                writer.write(b"1\r\n%d\r\n" % number)
                await go_on.wait()
                go_on.clear()
            writer.write(b"0\r\nX-Sum: 3\r\n\r\n")

    server = await upstream(script)
    pool = pool_to(server.port)
    response = await ask(pool)
    assert isinstance(response.body, Body)
    for number in range(3):
        assert await response.body.read() == b"%d" % number
        assert pool.idle == 0, "a connection is handed back when its answer is complete, not before"
        go_on.set()
    assert await response.body.read() == b""
    assert response.body.trailers == [field("X-Sum", "3")]
    assert pool.idle == 1


async def test_trailers_alone(upstream: Any, pool_to: Any) -> None:
    server = await upstream(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n")
    pool = pool_to(server.port)
    response = await ask(pool)
    assert isinstance(response.body, Body)
    assert await response.body.read() == b""
    assert response.body.trailers == [field("A", "b")]
    assert pool.idle == 1


async def test_an_answer_that_ends_with_the_connection(upstream: Any, pool_to: Any) -> None:
    server = await upstream(then(b"HTTP/1.1 200 OK\r\n\r\nfirst ", b"second"))
    response = await ask(pool_to(server.port))
    assert (await whole(response), response.length) == (b"first second", None)


@pytest.mark.parametrize("head", [
    b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
])  # fmt: skip
@pytest.mark.parametrize("end", ["reset", "close"])
async def test_a_cut_answer_never_looks_complete(upstream: Any, pool_to: Any, head: bytes, end: str) -> None:
    if end == "close" and b":" not in head:
        return  # a FIN is the end of such an answer
    server = await upstream(then(head + b"12", b"3", end=end))
    pool = pool_to(server.port)
    response = await ask(pool)
    with pytest.raises(BodyError):
        await whole(response)
    await until(lambda: len(pool) == 0)


async def test_a_broken_chunk_cuts_the_answer(upstream: Any, pool_to: Any) -> None:
    server = await upstream(then(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokX", end="stay"))
    pool = pool_to(server.port)
    response = await ask(pool)
    with pytest.raises(BodyError, match="longer than its size"):
        await whole(response)
    await until(lambda: len(pool) == 0)


async def test_interim_answers_are_passed_on_but_not_100(upstream: Any, pool_to: Any) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    server = await upstream(early + b"HTTP/1.1 100 Continue\r\n\r\n" + b"HTTP/1.1 102 Busy\r\n\r\n" + OK)
    seen: list[tuple[int, list[Field]]] = []
    response = await ask(pool_to(server.port), interim=lambda status, headers: seen.append((status, headers)))
    assert await whole(response) == b"ok"
    assert seen == [(103, [field("Link", "</a>")]), (102, [])]


UPGRADE = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


async def test_a_switch_makes_a_tunnel_that_no_pool_gets_back(upstream: Any, pool_to: Any) -> None:
    answers = [OK, SWITCH + b"hello"]

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await read_head(reader)
            writer.write(answer)
        await reader.read()

    server = await upstream(script)
    pool = pool_to(server.port)
    await ask(pool)
    response = await ask(pool, head=UPGRADE)
    connection = response.tunnel
    assert isinstance(connection, ClientConnection)
    assert (response.status, pool.idle, len(pool)) == (101, 0, 1)
    assert not connection.closed
    await until(lambda: connection._stash == b"hello", "keeping what came before the tunnel was joined")


async def test_connect_makes_a_tunnel(upstream: Any, pool_to: Any) -> None:
    server = await upstream(then(b"HTTP/1.1 200 Established\r\n\r\n", end="stay"))
    response = await ask(pool_to(server.port), b"CONNECT", b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n")
    assert response.tunnel is not None


async def test_a_refused_connect_is_an_answer(upstream: Any, pool_to: Any) -> None:
    server = await upstream(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")
    response = await ask(pool_to(server.port), b"CONNECT", b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n")
    assert (response.status, response.tunnel, await whole(response)) == (403, None, b"no")


# -- what goes wrong before the answer


@pytest.mark.parametrize("raw", [
    b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 100 Continue\r\n\r\n", b"H",
])  # fmt: skip
@pytest.mark.parametrize("end", ["reset", "close"])
async def test_broken_before_the_answer(upstream: Any, pool_to: Any, raw: bytes, end: str) -> None:
    server = await upstream(then(raw, end=end))
    pool = pool_to(server.port)
    with pytest.raises(ExchangeBroken):
        await ask(pool)
    await until(lambda: len(pool) == 0)


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 200 OK\r\nA:", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_never_answered(upstream: Any, pool_to: Any, raw: bytes) -> None:
    server = await upstream(then(raw, end="stay"))
    pool = pool_to(server.port)
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(AnswerTimeout):
        await ask(pool, within_s=0.15)
    assert 0.14 < loop.time() - started < 4.0
    await until(lambda: len(pool) == 0)


async def test_the_deadline_is_for_the_head_alone(upstream: Any, pool_to: Any) -> None:
    server = await upstream(then(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", *[b"x"] * 4))
    response = await ask(pool_to(server.port), within_s=0.05)
    assert await whole(response) == b"xxxx"


async def test_a_connection_that_was_lost_at_once_does_not_wait(upstream: Any, pool_to: Any) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reset(writer)

    server = await upstream(script)
    pool = pool_to(server.port)
    connection = await pool.connect()
    await until(lambda: connection.closed)
    with pytest.raises(ConnectFailed):
        await connection.exchange(b"GET", HEAD, b"", asyncio.get_running_loop().time() + 5)
    assert len(pool) == 0


async def test_a_cancelled_exchange_closes_its_connection(upstream: Any, pool_to: Any) -> None:
    server = await upstream(then(b"", end="stay"))
    pool = pool_to(server.port)
    task = asyncio.ensure_future(ask(pool))
    await until(lambda: server.connections)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: len(pool) == 0)


BAD_ANSWERS = {
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a mail server": b"220 mail ESMTP\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x28",
    "HTTP/0.9": b"<html>hello</html>",
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n",
    "lower case": b"http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "leading line end": b"\r\n" + OK,
    "no status": b"HTTP/1.1\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    "a status over 599": b"HTTP/1.1 600 OK\r\nContent-Length: 0\r\n\r\n",
    "a status of letters": b"HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n",
    "a negative status": b"HTTP/1.1 -200 OK\r\nContent-Length: 0\r\n\r\n",
    "two spaces": b"HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n",
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "bare LF at the end": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nok",
    "CR in a value": b"HTTP/1.1 200 OK\r\nA: b\rc\r\nContent-Length: 0\r\n\r\n",
    "NUL in a value": b"HTTP/1.1 200 OK\r\nA: b\0c\r\nContent-Length: 0\r\n\r\n",
    "NUL in the reason": b"HTTP/1.1 200 O\0K\r\nContent-Length: 0\r\n\r\n",
    "a folded line": b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "space before the colon": b"HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 0\r\n\r\n",
    "no colon": b"HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 0\r\n\r\n",
    "CL twice": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "a list of lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
    "CL and TE": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "TE twice": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "gzip, chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "gzip": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
    "TE in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a head over 64 KiB": b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000 + b"\r\n\r\n",
    "a head without an end": b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000,
    "a switch nobody asked for": SWITCH,
    "a switch to nothing": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "a bad answer behind a 103": b"HTTP/1.1 103 Early\r\n\r\nHTTP/3 200 OK\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("raw", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
async def test_bad_answers(upstream: Any, pool_to: Any, raw: bytes) -> None:
    server = await upstream(then(raw, end="stay"))
    pool = pool_to(server.port)
    with pytest.raises(BadAnswer):
        await ask(pool, within_s=3.0)
    await until(lambda: len(pool) == 0)


# -- request bodies


def streamed(*pieces: bytes, trailers: list[Field] | None = None, complete: bool = True) -> Body:
    body = Body()
    for piece in pieces:
        body.feed(piece)
    body.trailers = trailers or []
    if complete:
        body.finish()
    return body


async def test_a_body_goes_out_chunked_each_piece_at_once(upstream: Any, pool_to: Any) -> None:
    seen = bytearray()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not seen.endswith(b"\r\n\r\n") or b"0\r\n" not in seen:
            seen.extend(await reader.read(65536))
        writer.write(OK)

    server = await upstream(script)
    body = streamed(b"one", complete=False)
    task = asyncio.ensure_future(ask(pool_to(server.port), b"POST", POST, body, chunked=True))
    await until(lambda: seen == POST + b"3\r\none\r\n")
    body.feed(b"more")
    await until(lambda: seen.endswith(b"4\r\nmore\r\n"))
    body.trailers = [field("X-Sum", "7")]
    body.finish()
    assert (await task).status == 200
    assert seen.endswith(b"0\r\nX-Sum: 7\r\n\r\n")


async def test_the_answer_may_come_before_the_request_is_out(upstream: Any, pool_to: Any) -> None:
    """Duplex: each piece of the body is answered while the body goes on."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while (line := await reader.readuntil(b"\r\n")) != b"0\r\n":
            data = await reader.readexactly(int(line, 16))
            await reader.readexactly(2)
            writer.write(b"%x\r\n%b\r\n" % (len(data), data.upper()))
        writer.write(b"0\r\n\r\n")
        await reader.read()

    server = await upstream(script)
    pool = pool_to(server.port)
    body = streamed(complete=False)
    response = await ask(pool, b"POST", POST, body, chunked=True)
    assert isinstance(response.body, Body)
    for word in (b"one", b"two", b"three"):
        body.feed(word)
        assert await response.body.read() == word.upper()
    body.finish()
    assert await response.body.read() == b""
    assert pool.idle == 1, "both directions are complete"


async def test_an_early_answer_gives_up_the_connection(upstream: Any, pool_to: Any) -> None:
    server = await upstream(then(b"HTTP/1.1 413 Too much\r\nContent-Length: 2\r\n\r\nno", end="stay"))
    pool = pool_to(server.port)
    response = await ask(pool, b"POST", POST, streamed(b"x", complete=False), chunked=True)
    assert (response.status, await whole(response)) == (413, b"no")
    assert pool.idle == 0
    await until(lambda: len(pool) == 0)


async def test_a_body_that_fails_cuts_the_request(upstream: Any, pool_to: Any) -> None:
    rest: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        rest.append(b"")
        while data := await reader.read(1000):
            rest.append(data)
        rest.append(b"end")

    server = await upstream(script)
    pool = pool_to(server.port)
    body = streamed(b"half", complete=False)
    task = asyncio.ensure_future(ask(pool, b"POST", POST, body, chunked=True))
    await until(lambda: b"4\r\nhalf\r\n" in rest)
    body.fail(BodyError("the client went away"))
    with pytest.raises(ExchangeBroken):
        await task
    await until(lambda: rest[-1] == b"end")
    assert b"0\r\n\r\n" not in b"".join(rest)


ASK = POST[:-2] + b"Expect: 100-continue\r\n\r\n"


async def test_ask_first_accepted(upstream: Any, pool_to: Any) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await reader.readuntil(b"0\r\n\r\n") == b"3\r\none\r\n0\r\n\r\n"
        writer.write(OK)

    server = await upstream(script)
    pool = pool_to(server.port)
    response = await ask(pool, b"POST", ASK, streamed(b"one"), chunked=True, ask_first=True)
    assert await whole(response) == b"ok"
    assert pool.idle == 1


async def test_ask_first_refused_takes_nothing_of_the_body(upstream: Any, pool_to: Any) -> None:
    server = await upstream(then(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", end="stay"))
    pool = pool_to(server.port)
    body = streamed(b"one")
    response = await ask(pool, b"POST", ASK, body, chunked=True, ask_first=True)
    assert (response.status, body.taken) == (503, 0)
    await until(lambda: len(pool) == 0)


async def test_back_pressure_from_a_server_that_does_not_read(upstream: Any, pool_to: Any) -> None:
    go_on = asyncio.Event()
    got = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await read_head(reader)
        await go_on.wait()
        while data := await reader.read(1 << 16):
            got += len(data)
            if got == total:
                writer.write(OK)

    class Endless:
        trailers: list[Field] = []  # noqa: RUF012
        taken = 0

        async def read(self) -> bytes:
            if self.taken == total:
                return b""
            self.taken += 1 << 16
            return bytes(1 << 16)

    total = 64 << 20
    server = await upstream(script)
    body = Endless()
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % total
    task = asyncio.ensure_future(ask(pool_to(server.port), b"POST", head, body, within_s=20.0))
    await _settles(lambda: body.taken)
    assert body.taken < 16 << 20, "a slow reader must stop the sender"
    go_on.set()
    assert (await task).status == 200
    assert got == total


async def test_back_pressure_on_a_server_that_sends(upstream: Any, pool_to: Any) -> None:
    sent = 0
    total = 64 << 20

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while sent < total:
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16
        await reader.read()

    server = await upstream(script)
    response = await ask(pool_to(server.port))
    assert isinstance(response.body, Body)
    await _settles(lambda: sent)
    assert sent < 16 << 20
    assert response.body.size < 1 << 20
    got = 0
    while data := await response.body.read():
        got += len(data)
    assert got == total


async def _settles(value: Callable[[], int]) -> None:
    """Wait until the value has started and then stood still for a while."""
    last, since = -1, 0
    for _ in range(1000):
        await asyncio.sleep(0.01)
        since = since + 1 if value() == last and last > 0 else 0
        last = value()
        if since == 10:
            return
    raise AssertionError("it never settled")


# -- reuse


async def test_a_connection_the_server_closed_is_not_reused(upstream: Any, pool_to: Any) -> None:
    server = await upstream(answering(OK, close=True))
    pool = pool_to(server.port)
    for count in (1, 2, 3):
        assert (await ask(pool)).status == 200
        assert server.connections == count
        await asyncio.sleep(0.01)


async def test_a_close_that_the_loop_has_not_seen_yet(upstream: Any, pool_to: Any) -> None:
    server = await upstream(OK)
    pool = pool_to(server.port)
    await ask(pool)
    connection = pool._idle[0]
    handle = os.dup(server.writers[0].get_extra_info("socket").fileno())
    with socket.socket(fileno=handle) as sharing:
        sharing.shutdown(socket.SHUT_RDWR)
    assert not connection.closed
    assert not connection.alive(), "the kernel knows"
    assert pool.take_idle(10.0) is None
    assert (await ask(pool)).status == 200


@pytest.mark.parametrize("extra", [b"x", OK, b"\r\n"])
async def test_bytes_nobody_asked_for_end_the_connection(upstream: Any, pool_to: Any, extra: bytes) -> None:
    server = await upstream(OK)
    pool = pool_to(server.port)
    await ask(pool)
    assert pool.idle == 1
    server.writers[0].write(extra)
    await until(lambda: pool.idle == 0, "giving up a connection that talks on its own")
    assert (await ask(pool)).status == 200
    assert server.connections == 2


async def test_an_answer_longer_than_it_says_poisons_nothing(upstream: Any, pool_to: Any) -> None:
    server = await upstream(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
    pool = pool_to(server.port)
    for count in (1, 2):
        assert await whole(await ask(pool)) == b"ok"
        assert server.connections == count


# -- any split


class Wire:
    """A transport that swallows; the connection under it is fed by hand."""

    def __init__(self) -> None:
        self.open = True

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None

    def is_closing(self) -> bool:
        return not self.open

    def abort(self) -> None:
        self.open = False


class NoPool:
    def __init__(self) -> None:
        self.deadlines = Deadlines()

    def release(self, connection: ClientConnection) -> None: ...

    def forget(self, connection: ClientConnection) -> None: ...


SMALL = b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n"
STREAMS = [
    SMALL + b"Content-Length: 5\r\n\r\nhello", SMALL + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nT: u\r\n\r\n",
    SMALL + b"\r\nhello",
]  # fmt: skip


@given(raw=st.sampled_from(STREAMS), cuts=st.lists(st.integers(0, 110), max_size=10))
@settings(max_examples=60)
def test_any_split_of_an_answer_gives_the_same(raw: bytes, cuts: list[int]) -> None:
    async def feed() -> tuple[int, list[Field], bytes, list[int]]:
        connection = ClientConnection(NoPool(), Limits())
        connection.connection_made(Wire())  # type: ignore[arg-type]
        seen: list[int] = []
        task = asyncio.ensure_future(connection.exchange(
            b"GET", HEAD, b"", asyncio.get_running_loop().time() + 5, interim=lambda status, _: seen.append(status)))
        await asyncio.sleep(0)
        at = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
        for start, end in zip(at, at[1:], strict=False):  # noqa: RUF007
            if start < end:
                connection.data_received(raw[start:end])
        connection.eof_received()
        response = await task
        return response.status, response.headers[:1], await whole(response), seen

    assert asyncio.run(feed()) == (200, [field("A", "b")], b"hello", [103])
