import asyncio
import contextlib
import socket

import pytest

from reach_os import datagrams
from reach_os.datagrams import DatagramSocket
from reach_os.ports import listen_pair


@contextlib.asynccontextmanager
async def pair(host="127.0.0.1"):
    """Two sockets, their addresses, and what the second one got."""
    got: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue()
    made = []
    for _ in range(2):
        stream, bound = listen_pair(host, 0)
        stream.close()
        one = DatagramSocket(bound, lambda data, source: got.put_nowait((data, source)), 1200)
        await one.start()
        made.append((one, f"{'[::1]' if ':' in host else host}:{bound.getsockname()[1]}"))
    try:
        yield made[0][0], made[0][1], made[1][0], made[1][1], got
    finally:
        for one, _ in made:
            one.close()


async def test_what_is_sent_arrives_with_its_sender() -> None:
    async with pair() as (one, mine, other, yours, got):
        one.send(b"hello", yours)
        assert await asyncio.wait_for(got.get(), 5) == (b"hello", mine)
        assert (one.counts["sent"], other.counts["received"]) == (1, 1)


async def test_over_ipv6() -> None:
    try:
        listening = listen_pair("::1", 0)
    except Exception as error:
        pytest.skip(f"no IPv6 loopback here: {error}")
    for one in listening:
        one.close()
    async with pair("::1") as (one, mine, _, yours, got):
        one.send(b"hello", yours)
        assert await asyncio.wait_for(got.get(), 5) == (b"hello", mine)


async def test_a_name_is_resolved_beside_and_used_from_then_on() -> None:
    async with pair() as (one, mine, _, yours, got):
        address = f"localhost:{yours.rpartition(':')[2]}"
        one.send(b"lost", address)
        assert one.counts["not_sent"] == 1
        while one._resolving:
            await asyncio.sleep(0.01)
        one.send(b"hello", address)
        assert await asyncio.wait_for(got.get(), 5) == (b"hello", mine)


async def test_what_cannot_be_sent_is_lost_and_nothing_else() -> None:
    async with pair() as (one, mine, _, yours, got):
        for address in ("", "nonsense", "127.0.0.1:0", "no-such-host.invalid:7", "127.0.0.1:99999"):
            one.send(b"x", address)
        one.send(b"x" * 100_000, yours)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
            gone.bind(("127.0.0.1", 0))
            port = gone.getsockname()[1]
        one.send(b"x", f"127.0.0.1:{port}")  # nobody listens: the kernel says so later
        await asyncio.sleep(0.05)
        one.send(b"hello", yours)
        assert await asyncio.wait_for(got.get(), 5) == (b"hello", mine)


async def test_what_is_too_long_is_dropped_unread() -> None:
    async with pair() as (one, _, other, yours, got):
        one.send(b"x" * 1201, yours)
        one.send(b"x" * 1200, yours)
        assert len((await asyncio.wait_for(got.get(), 5))[0]) == 1200
        assert other.counts["flooded"] == 1


async def test_a_flood_is_dropped_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagrams, "MOST_PER_S", 10)
    async with pair() as (one, _, other, yours, got):
        for _ in range(200):
            one.send(b"x", yours)
        async with asyncio.timeout(5):
            while other.counts["received"] + other.counts["flooded"] < 150:
                await asyncio.sleep(0.01)
        assert got.qsize() <= 20  # two seconds may have begun meanwhile


async def test_names_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagrams, "MOST_KNOWN", 50)
    async with pair() as (one, *_):
        for n in range(500):
            one.send(b"x", f"127.0.{n // 250}.{n % 250}:9")
        assert len(one._places) <= 50
