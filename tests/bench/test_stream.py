import asyncio
from collections.abc import AsyncIterator

import pytest

from bench import agent, stream
from bench.daemon import BenchError
from bench.pair import Pair


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    server = await asyncio.get_running_loop().create_server(agent.Connection, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield Pair("direct", f"{host}:{port}", "")
    server.close()


async def test_the_first_chunk_is_timed_without_waiting_for_the_second(pair: Pair) -> None:
    ms = await asyncio.to_thread(stream.first_chunk_ms, pair, 3)
    assert 0 < ms < agent.STREAM_PAUSE_S * 1000


async def test_transfers_are_complete_and_give_a_speed(pair: Pair) -> None:
    assert await asyncio.to_thread(stream.download, pair, 3_000_000) > 0
    assert await asyncio.to_thread(stream.upload, pair, 3_000_000) > 0


async def test_an_answer_that_is_cut_off_is_no_measurement() -> None:
    async def cut_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + bytes(10))
        writer.close()

    server = await asyncio.start_server(cut_off, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    with pytest.raises(BenchError, match="cut off after 10 of 1000 bytes"):
        await asyncio.to_thread(stream.download, Pair("reach", f"{host}:{port}", ""), 1000)
    server.close()
