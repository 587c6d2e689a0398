"""A listening socket: where it listens, and how it stops without breaking what it promised."""

import asyncio
import socket
from typing import Any

import pytest
from sidecar.http1.raw import until

from reach_os.ports import PortError
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.listener import Listener
from reach_sidecar.http1.message import Request, Response
from reach_sidecar.http1.server import Service

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def slowly(request: Request) -> Response:
    await asyncio.sleep(0.15)
    return Response(200, [], b"done")


async def test_any_free_port_and_two_addresses() -> None:
    listener = Listener(Service(slowly, Limits()))
    host, port = await listener.bind("127.0.0.1", 0)
    assert (host, port > 0) == ("127.0.0.1", True)
    second = await listener.bind("127.0.0.2", port)
    assert second == ("127.0.0.2", port)
    for address in (host, second[0]):
        with socket.create_connection((address, port), timeout=2):
            pass
    await listener.stop(0.0)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, port), timeout=2)


async def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortError, match=f"port {port} is in use"):
            await Listener(Service(slowly, Limits())).bind("127.0.0.1", port)


async def test_stopping_waits_for_answers_and_refuses_the_rest(door: Any) -> None:
    opened = await door(slowly)
    idle, running = await opened.connect(), await opened.ask(GET + GET)
    await until(lambda: any(connection.busy for connection in opened.service.connections))
    stopping = asyncio.ensure_future(opened.listener.stop(5.0))
    assert await idle.ended()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await opened.connect()
    answer = await running.final()
    assert (answer.body, answer.header("connection")) == (b"done", "close")
    assert await running.ended(), "the request behind it was never begun, and `close` said so"
    await asyncio.wait_for(stopping, 2.0)
    assert not opened.service.connections


async def test_stopping_cuts_what_takes_too_long(door: Any) -> None:
    opened = await door(slowly)
    peer = await opened.ask(GET)
    await until(lambda: any(connection.busy for connection in opened.service.connections))
    await asyncio.wait_for(opened.listener.stop(0.02), 2.0)
    assert await peer.ended()


async def test_stopping_waits_until_an_answer_is_out(door: Any) -> None:
    async def large(request: Request) -> Response:
        return Response(200, [], bytes(6 << 20))

    opened = await door(large)
    peer = await (await opened.connect(receive_buffer=1 << 16)).send(GET)
    await until(lambda: any(connection.busy for connection in opened.service.connections))
    stopping = asyncio.ensure_future(opened.listener.stop(5.0))
    assert len((await peer.final()).body) == 6 << 20
    await stopping


async def test_stopping_twice_is_harmless(door: Any) -> None:
    opened = await door(slowly)
    await opened.listener.stop(0.0)
    await opened.listener.stop(0.0)


async def test_a_second_address_shares_the_sweep(door: Any) -> None:
    opened = await door(slowly, idle_timeout_s=0.05)
    await opened.listener.bind("127.0.0.2", 0)
    assert await (await opened.connect()).ended()
