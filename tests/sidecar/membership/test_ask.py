import asyncio
import contextlib

import pytest

from reach_sidecar.membership.ask import Unanswered, ask


@contextlib.asynccontextmanager
async def answering(answer: bytes, got: list[bytes] | None = None, *, hang: bool = False):
    """A server that reads a head (and what came with it), says `answer` and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            data = await reader.readuntil(b"\r\n\r\n")
            if got is not None:
                got.append(data + await reader.read(100_000 if b"POST" in data else 0))
            writer.write(answer)
            if hang:
                await asyncio.sleep(30)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_the_body_of_a_200() -> None:
    got: list[bytes] = []
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", got) as address:
        assert await ask(address, "POST", "/v1/look", b"{}", timeout_s=5, most_bytes=10) == b"hi"
    assert got[0].startswith(b"POST /v1/look HTTP/1.1\r\nHost: " + address.encode())
    assert b"Content-Type: application/json\r\nContent-Length: 2\r\n" in got[0]
    assert got[0].endswith(b"\r\n\r\n{}")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "status 503"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n12345678901", "more than 10 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + 40 * b"1\r\nx\r\n" + b"0\r\n\r\n", "more than 10 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "broke|ended"),
        (b"", "broke"),
        (b"SSH-2.0-OpenSSH\r\n", "HTTP"),
    ],
    ids=["status", "too long", "too long in pieces", "cut", "nothing", "not HTTP"],
)
async def test_no_usable_answer(answer: bytes, reason: str) -> None:
    async with answering(answer) as address:
        with pytest.raises(Unanswered, match=reason):
            await ask(address, "GET", "/v1/hello", timeout_s=5, most_bytes=10)


@pytest.mark.parametrize("hang", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"], ids=["silent", "stops in the middle"])
async def test_nobody_is_waited_for_longer_than_allowed(hang: bytes) -> None:
    async with answering(hang, hang=True) as address:
        with pytest.raises(Unanswered, match=r"within 0\.1 s|in time"):
            await ask(address, "GET", "/v1/hello", timeout_s=0.1, most_bytes=10)


@pytest.mark.parametrize("address", ["", "nonsense", "127.0.0.1:1", "no-such-host.invalid:7"])
async def test_an_address_nobody_answers_at(address: str) -> None:
    with pytest.raises(Unanswered):
        await ask(address, "GET", "/v1/hello", timeout_s=5, most_bytes=10)
