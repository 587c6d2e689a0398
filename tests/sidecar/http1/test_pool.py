"""Connections kept for reuse: the last used first, the old ones closed, and none that is not good any more."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest
from sidecar.http1.raw import until

from reach_sidecar.http1.client import ClientConnection, ConnectFailed
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.pool import Pool

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def use(pool: Pool, connection: ClientConnection) -> None:
    response = await connection.exchange(b"GET", HEAD, b"", asyncio.get_running_loop().time() + 5)
    assert response.body == b"ok"


async def filled(pool: Pool, count: int) -> list[ClientConnection]:
    """A pool with `count` idle connections, the last one used last."""
    connections = [await pool.connect() for _ in range(count)]
    for connection in connections:
        await use(pool, connection)
    assert pool.idle == count
    return connections


async def test_the_last_used_comes_first(upstream: Any, pool_to: Any) -> None:
    pool = pool_to((await upstream(OK)).port)
    one, two, three = await filled(pool, 3)
    assert [pool.take_idle(5.0) for _ in range(4)] == [three, two, one, None]
    assert three.reused


async def test_acquire_makes_a_new_one_only_when_none_is_good(upstream: Any, pool_to: Any) -> None:
    server = await upstream(OK)
    pool = pool_to(server.port)
    first = await pool.acquire(5.0)
    second = await pool.acquire(5.0)
    assert first is not second
    await use(pool, first)
    assert await pool.acquire(5.0) is first
    assert server.connections == 2


async def test_what_was_idle_too_long_is_closed_instead(upstream: Any, pool_to: Any) -> None:
    pool = pool_to((await upstream(OK)).port)
    old, fresh = await filled(pool, 2)
    old.idle_since -= 1.0
    assert pool.take_idle(0.5) is fresh
    assert pool.take_idle(0.5) is None
    await until(lambda: len(pool) == 1)
    assert old.closed


async def test_prune_closes_the_old_ones_and_keeps_the_rest(upstream: Any, pool_to: Any) -> None:
    pool = pool_to((await upstream(OK)).port)
    one, two, three = await filled(pool, 3)
    one.idle_since -= 2.0
    three.idle_since -= 2.0
    pool.prune(asyncio.get_running_loop().time(), 1.0)
    assert pool.idle == 1
    await until(lambda: len(pool) == 1)
    assert pool.take_idle(1.0) is two


async def test_a_lost_connection_is_forgotten(upstream: Any, pool_to: Any) -> None:
    server = await upstream(OK)
    pool = pool_to(server.port)
    await filled(pool, 2)
    for writer in server.writers:
        writer.close()
    await until(lambda: (pool.idle, len(pool)) == (0, 0))


async def test_a_trusted_connection_is_not_asked_but_the_loop_still_knows(upstream: Any) -> None:
    server = await upstream(OK)
    pool = Pool("127.0.0.1", server.port, Limits(), trust_s=10.0)
    await filled(pool, 1)
    server.writers[0].close()
    await until(lambda: pool.idle == 0)
    pool.close()


async def test_closing_takes_calls_along(upstream: Any, pool_to: Any) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    pool = pool_to((await upstream(silent)).port)
    call = asyncio.ensure_future(use(pool, await pool.connect()))
    await asyncio.sleep(0.01)
    pool.close()
    with pytest.raises(Exception, match="broke before the answer"):
        await call
    await until(lambda: len(pool) == 0)


async def test_a_retired_pool_lets_calls_end(upstream: Any, pool_to: Any) -> None:
    pool = pool_to((await upstream(OK)).port)
    await filled(pool, 2)
    running = await pool.acquire(5.0)
    pool.retire()
    assert pool.idle == 0
    await use(pool, running)
    await until(lambda: len(pool) == 0)


async def test_a_refused_connection_says_where_and_why(pool_to: Any) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(ConnectFailed, match=rf"127\.0\.0\.1:{port} failed: connection refused"):
        await pool_to(port).connect()


async def test_a_connection_that_is_never_accepted_times_out(pool_to: Any) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(ConnectFailed, match="timed out"):
            await pool_to(port, connect_timeout_s=0.15).connect()
        with pytest.raises(ConnectFailed, match="timed out"):
            await pool_to(port).connect(timeout_s=0.1)
        assert loop.time() - started < 2.0
        for one in waiting:
            one.close()


@pytest.mark.parametrize("host", ["a..b", "x" * 300, "no.such.host.invalid"])
async def test_a_host_that_cannot_be_found(pool_to: Any, host: str) -> None:
    with pytest.raises(ConnectFailed):
        await pool_to(80, host=host).connect()
