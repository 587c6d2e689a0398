import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from bench import agent

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def streams() -> AsyncIterator[Streams]:
    server = await asyncio.get_running_loop().create_server(agent.Connection, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    yield reader, writer
    writer.close()
    server.close()


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)


async def test_answers_one_kibibyte_once_the_body_is_in(streams: Streams) -> None:
    reader, writer = streams
    for pieces in ([b"POST /process HTTP/1.1\r\ncontent-le", b"ngth: 4\r\n\r\nab", b"cd"],
                   [b"POST /process HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd"]):  # fmt: skip
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.01)
        assert b"content-length: 1024\r\n" in await head_of(reader)
        assert len(await reader.readexactly(1024)) == 1024


async def test_sends_as_many_bytes_as_asked(streams: Streams) -> None:
    reader, writer = streams
    writer.write(b"GET /bytes/3000000 HTTP/1.1\r\n\r\n")
    assert b"content-length: 3000000\r\n" in await head_of(reader)
    assert not any(await asyncio.wait_for(reader.readexactly(3_000_000), 5))


async def test_works_as_long_as_asked(streams: Streams) -> None:
    reader, writer = streams
    started = time.monotonic()
    writer.write(b"POST /work?ms=50 HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    assert b"content-length: 1024" in await head_of(reader)
    assert 0.045 < time.monotonic() - started < agent.WORK_S


async def test_streams_two_chunks(streams: Streams) -> None:
    reader, writer = streams
    writer.write(b"GET /stream HTTP/1.1\r\n\r\n")
    assert b"transfer-encoding: chunked" in await head_of(reader)
    assert await reader.readexactly(len(agent.STREAM_CHUNK)) == b"e\r\ndata: chunk 1\n\r\n"
    assert await asyncio.wait_for(reader.readexactly(len(agent.STREAM_END)), 5) == agent.STREAM_END
