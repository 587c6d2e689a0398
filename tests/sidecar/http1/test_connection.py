"""Tunnels, and the bytes that wait for one: two real connections joined, either end doing what it likes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sidecar.http1.raw import Door, Peer, Upstream, read_head, reset, until

from reach_sidecar.http1.client import ClientConnection
from reach_sidecar.http1.connection import Connection
from reach_sidecar.http1.message import Request, Response

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
UPGRADE = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


class Far:
    """The far end of a tunnel, in the hands of the test."""

    def __init__(self) -> None:
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter
        self.there = asyncio.Event()
        self.first = SWITCH  # what it says to the upgrade

    async def script(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(self.first)
        self.reader, self.writer = reader, writer
        self.there.set()
        await asyncio.Event().wait()


class Joined:
    def __init__(self, near: Peer, far: Far, door: Door, upstream: Upstream, sent: list[BaseException | None]) -> None:
        self.near = near
        self.far = far
        self.door = door
        self.upstream = upstream
        self.sent = sent

    async def gone(self) -> None:
        await until(lambda: not self.door.service.connections, "closing the near side")
        await until(lambda: self.sent == [None], "the report that the tunnel is over")


@pytest.fixture
async def join(door: Any, upstream: Any, pool_to: Any) -> Callable[..., Awaitable[Joined]]:
    """`await join(behind=b"…", wait=0.05)`: an upgraded connection from a client through the door to `Far`."""

    async def start(*, behind: bytes = b"", first: bytes = SWITCH, wait_s: float = 0.0, take_head: bool = True) -> Joined:
        far, sent = Far(), []  # type: ignore[var-annotated]
        far.first = first
        server = await upstream(far.script)
        pool = pool_to(server.port)

        async def handler(request: Request) -> Response:
            connection = await pool.connect()
            loop = asyncio.get_running_loop()
            response: Response = await connection.exchange(b"GET", UPGRADE, b"", loop.time() + 5)
            response.when_sent(lambda size, error: sent.append(error))
            await asyncio.sleep(wait_s)
            return response

        opened = await door(handler, stream_idle_s=0.05, idle_timeout_s=0.05)
        near = await opened.ask(UPGRADE + behind)
        if take_head:
            assert (await near.final()).status == 101
            await far.there.wait()
        return Joined(near, far, opened, server, sent)

    return start


Join = Callable[..., Awaitable[Joined]]


async def test_bytes_go_both_ways_at_once(join: Join) -> None:
    tunnel = await join()
    for number in range(3):
        await tunnel.near.send(b"ping %d" % number)
        assert await tunnel.far.reader.readexactly(6) == b"ping %d" % number
        tunnel.far.writer.write(b"pong %d" % number)
        assert await tunnel.near.reader.readexactly(6) == b"pong %d" % number


async def test_bytes_that_came_before_it_was_joined(join: Join) -> None:
    """Behind the client's upgrade, and behind the server's 101, while the handler still thinks."""
    tunnel = await join(behind=b"GET early", first=SWITCH + b"HTTP early", wait_s=0.05)
    assert await tunnel.far.reader.readexactly(9) == b"GET early"
    assert await tunnel.near.reader.readexactly(10) == b"HTTP early"
    await tunnel.near.send(b"later")
    assert await tunnel.far.reader.readexactly(5) == b"later"


async def test_it_may_be_silent_for_ever(join: Join) -> None:
    tunnel = await join()
    await asyncio.sleep(0.2)
    await tunnel.near.send(b"still here")
    assert await tunnel.far.reader.readexactly(10) == b"still here"


async def test_half_close_by_the_client(join: Join) -> None:
    tunnel = await join()
    await tunnel.near.send(b"bye")
    tunnel.near.half_close()
    assert await tunnel.far.reader.read() == b"bye"
    tunnel.far.writer.write(b"one more thing")
    assert await tunnel.near.reader.readexactly(14) == b"one more thing"
    tunnel.far.writer.close()
    assert await tunnel.near.ended()
    await tunnel.gone()


async def test_half_close_by_the_server(join: Join) -> None:
    tunnel = await join()
    tunnel.far.writer.write(b"bye")
    tunnel.far.writer.write_eof()
    assert await tunnel.near.reader.read() == b"bye"
    await tunnel.near.send(b"one more thing")
    assert await tunnel.far.reader.readexactly(14) == b"one more thing"
    tunnel.near.close()
    assert await tunnel.far.reader.read() == b""
    await tunnel.gone()


async def test_half_close_before_it_was_joined(join: Join) -> None:
    tunnel = await join(wait_s=0.1, take_head=False)
    await tunnel.far.there.wait()
    tunnel.far.writer.write_eof()
    assert (await tunnel.near.final()).status == 101
    assert await tunnel.near.reader.read() == b""
    await tunnel.near.send(b"still heard")
    assert await tunnel.far.reader.readexactly(11) == b"still heard"
    tunnel.near.close()
    await tunnel.gone()


async def test_the_far_side_is_gone_before_it_was_joined(join: Join) -> None:
    tunnel = await join(wait_s=0.1, take_head=False)
    await tunnel.far.there.wait()
    await asyncio.sleep(0.02)
    reset(tunnel.far.writer)
    assert (await tunnel.near.final()).status == 101
    assert await tunnel.near.ended()
    await tunnel.gone()


async def test_a_reset_by_the_client_reaches_the_server(join: Join) -> None:
    tunnel = await join()
    tunnel.near.reset()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(tunnel.far.reader.readexactly(1), 5)
    await tunnel.gone()


async def test_a_reset_by_the_server_reaches_the_client(join: Join) -> None:
    tunnel = await join()
    reset(tunnel.far.writer)
    assert await tunnel.near.ended()
    await tunnel.gone()


async def test_a_reset_behind_a_half_close(join: Join) -> None:
    """The direction that is over is not read any more: the loss shows when something is written."""
    tunnel = await join()
    tunnel.near.half_close()
    assert await tunnel.far.reader.read() == b""
    tunnel.near.reset()
    await asyncio.sleep(0.02)
    for _ in range(50):
        tunnel.far.writer.write(b"anyone?")
        await asyncio.sleep(0.005)
        if not tunnel.door.service.connections:
            break
    await tunnel.gone()


@pytest.mark.parametrize("downwards", [True, False])
async def test_back_pressure_and_nothing_is_lost(join: Join, downwards: bool) -> None:
    tunnel = await join()
    writer, reader = tunnel.near.writer, tunnel.far.reader
    if downwards:
        writer, reader = tunnel.far.writer, tunnel.near.reader
    total, sent = 40 << 20, 0

    async def send() -> None:
        nonlocal sent
        while sent < total:
            writer.write((b"%08d" % (sent >> 16)) * 8192)
            await writer.drain()
            sent += 1 << 16
        writer.write_eof()

    sending = asyncio.ensure_future(send())
    last = -1
    while last != sent or not sent:
        last = sent
        await asyncio.sleep(0.05)
    assert sent < 24 << 20, "a reader that stops must stop the sender"
    server = next(iter(tunnel.door.service.connections))
    for connection in (server, server._tunnel):
        assert isinstance(connection, Connection)
        assert connection.transport is not None
        assert connection.transport.get_write_buffer_size() < 2 << 20
    got = await asyncio.wait_for(reader.read(), 20)
    await sending
    assert len(got) == total
    assert got[:: 1 << 16] == b"0" * (total >> 16)
    assert got[-8:] == b"%08d" % ((total >> 16) - 1)


async def test_a_flood_in_front_of_the_tunnel_does_not_stall_it(join: Join) -> None:
    """More than the write buffer holds came with the upgrade: reading must be held once and released once."""
    flood = bytes(2 << 20)
    tunnel = await join(behind=flood, wait_s=0.1)
    assert await tunnel.far.reader.readexactly(len(flood)) == flood
    await tunnel.near.send(b"and on")
    assert await tunnel.far.reader.readexactly(6) == b"and on"


async def test_stopping_cuts_tunnels(join: Join) -> None:
    tunnel = await join()
    await tunnel.door.listener.stop(0.05)
    assert await tunnel.near.ended()
    assert await tunnel.far.reader.read() == b""


async def test_a_raw_connection_as_a_tunnel(door: Any, upstream: Any, pool_to: Any) -> None:
    """CONNECT to a server that speaks first and no HTTP at all."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        writer.write(b"you said " + await reader.readexactly(4))
        await writer.drain()
        writer.close()

    server = await upstream(greet)
    pool = pool_to(server.port)

    async def handler(request: Request) -> Response:
        connection = await pool.connect()
        connection.become_tunnel()
        response = Response(200, [], reason=b"Connection established")
        response.tunnel = connection
        return response

    opened = await door(handler)
    peer = await opened.ask(b"CONNECT a:25 HTTP/1.1\r\nHost: a:25\r\n\r\n")
    answer = await peer.answer("CONNECT")
    assert answer is not None
    assert (answer.status, answer.headers) == (200, [])
    assert await peer.reader.readline() == b"220 hello\r\n"
    await peer.send(b"EHLO")
    assert await peer.reader.read() == b"you said EHLO"


async def test_a_tunnel_is_in_no_pool(door: Any, upstream: Any, pool_to: Any, join: Join) -> None:
    tunnel = await join()
    server = next(iter(tunnel.door.service.connections))
    assert isinstance(server._tunnel, ClientConnection)
    tunnel.near.close()
    tunnel.far.writer.close()
    await tunnel.gone()


@given(raw=st.binary(max_size=40).map(lambda raw: b"G" + raw), rest=st.lists(st.binary(min_size=1, max_size=9), max_size=9))
def test_a_gathered_head_is_given_out_when_it_ends_and_loses_nothing(raw: bytes, rest: list[bytes]) -> None:
    async def gather() -> None:
        connection = Connection()
        connection._head = bytearray(raw.replace(b"\n", b"."))
        seen = bytes(connection._head)
        for piece in [*rest, b"\r\n\r\n"]:
            seen += piece
            out = connection.gather_head(piece)
            assert out in (b"", seen)
            if b"\r\n\r\n" in seen or seen.count(b"\n") != seen.count(b"\r\n"):
                assert out == seen
                return

    asyncio.run(gather())


class Wire:
    """A transport whose unsent bytes are what the test says."""

    def __init__(self, *unsent: int) -> None:
        self.unsent = list(unsent)
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: self.told.append(name)

    def is_closing(self) -> bool:
        return "close" in self.told or "abort" in self.told

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return self.unsent.pop(0) if len(self.unsent) > 1 else self.unsent[0]


def wired(*unsent: int) -> tuple[Connection, Wire]:
    connection, wire = Connection(), Wire(*unsent)
    connection.connection_made(wire)  # type: ignore[arg-type]
    return connection, wire


async def test_closing_waits_while_the_peer_takes_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reach_sidecar.http1.connection.CLOSE_TIMEOUT_S", 0.01)
    connection, wire = wired(900, 600, 300, 300)
    connection.close()
    await until(lambda: "abort" in wire.told)
    assert wire.unsent == [300], "it went on for as long as the number fell"


async def test_a_side_that_cannot_write_holds_the_other_until_it_can() -> None:
    (near, _), (far, far_wire) = wired(0), wired(0)
    near.pause_writing()
    task = asyncio.ensure_future(near.tunnel(far))
    await asyncio.sleep(0)
    assert far_wire.told[-1] == "pause_reading"
    near.resume_writing()
    assert far_wire.told[-1] == "resume_reading"
    near.pause_writing()
    assert far_wire.told[-1] == "pause_reading"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
