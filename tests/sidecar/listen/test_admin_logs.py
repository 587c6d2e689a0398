"""`GET /v1/logs`: what may be asked, and following without a gap, over real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from reach_core.problem import Problem
from reach_sidecar.listen import admin_logs
from reach_sidecar.listen.admin_logs import Asked, LogsEndpoint, read_query
from reach_sidecar.telemetry.log import LogWriter
from reach_sidecar.telemetry.stderr import StderrSink
from reach_sidecar.telemetry.store import LogStore

TRACE = "ab" * 16


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ({}, Asked(None, 0, "debug", 10_000, False)),
        ({"trace_id": TRACE.upper(), "level": "warn", "limit": "5"}, Asked(TRACE, 0, "warn", 5, False)),
        ({"trace_id": f"00-{TRACE}-{'cd' * 8}-01", "follow": "1"}, Asked(TRACE, 0, "debug", 10_000, True)),
        ({"since": "10m"}, Asked(None, 400_000, "debug", 10_000, False)),
        ({"since": "1970-01-01T00:00:01.500Z"}, Asked(None, 1500, "debug", 10_000, False)),
        ({"since": "1970-01-01T01:00:01 01:00"}, Asked(None, 1000, "debug", 10_000, False)),
    ],
)
def test_what_may_be_asked(query: dict[str, str], asked: Asked) -> None:
    assert read_query(query, 1000.0) == asked


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ({"trace_id": "xyz"}, "trace_id 'xyz' is not one: 32 hexadecimal digits are."),
        ({"since": "ten"}, "'ten' is not a duration"),
        ({"since": "2026-99-01T00:00:00Z"}, "is not a time: write one such as 2026-01-31T12:00:00Z, or 10m."),
        ({"level": "loud"}, "'loud' is not a level"),
        ({"limit": "0"}, "is not a number from 1 to 10000."),
        ({"limit": "-1"}, "is not a number from 1 to 10000."),
        ({"traceid": TRACE}, "There is no parameter 'traceid'"),
    ],
)
def test_what_may_not(query: dict[str, str], detail: str) -> None:
    with pytest.raises(Problem) as raised:
        read_query(query, 1000.0)
    assert raised.value.code == "bad_request"
    assert detail in raised.value.detail


class Quiet(StderrSink):
    def write(self, batch: object) -> None:
        """Nowhere."""


class World:
    def __init__(self, log: LogWriter, endpoint: LogsEndpoint, server: TestServer) -> None:
        self.log, self.endpoint, self.server = log, endpoint, server

    def call(self, number: int, trace_id: str | None = TRACE, level: str = "info") -> None:
        self.log.line({"level": level, "event": "call", "trace_id": trace_id, "n": number})

    async def follow(self, client: aiohttp.ClientSession, count: int, **headers: str) -> list[tuple[int, int]]:
        """(event id, n) of the first `count` lines."""
        seen: list[tuple[int, int]] = []
        url = self.server.make_url(f"/v1/logs?follow=1&trace_id={TRACE}")
        async with client.get(url, headers=headers) as answer:
            assert answer.content_type == "text/event-stream"
            async for name, number, data in events(answer):
                assert name == "message"
                seen.append((number, data["n"]))
                if len(seen) >= count:
                    break
        return seen


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, int, dict[str, int]]]:
    name, number = "message", 0
    async for line in answer.content:
        field, _, value = line.decode().strip().partition(": ")
        if field == "id":
            number = int(value)
        elif field == "event":
            name = value
        elif field == "data":
            yield name, number, orjson.loads(value)
            name = "message"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    log = LogWriter("a", LogStore(tmp_path / "logs.db"), sink=Quiet())
    endpoint = LogsEndpoint(log)
    app = web.Application()
    app.add_routes([web.get("/v1/logs", endpoint.handle)])
    server = TestServer(app)
    await server.start_server()
    yield World(log, endpoint, server)
    endpoint.stop()
    await server.close()
    log.close()


async def test_what_was_logged_a_moment_ago_is_there(world: World) -> None:
    for number in range(5):
        world.call(number, TRACE if number % 2 else "cd" * 16)
    async with aiohttp.ClientSession() as client, client.get(
        world.server.make_url(f"/v1/logs?trace_id={TRACE}")
    ) as answer:
        assert answer.content_type == "application/x-ndjson"
        assert [orjson.loads(line)["n"] for line in (await answer.read()).splitlines()] == [1, 3]


async def test_each_line_comes_exactly_once_while_it_rains(world: World) -> None:
    async def rain() -> None:
        for number in range(3000):
            world.call(number)
            world.call(-1, "cd" * 16)
            if number % 20 == 0:
                await asyncio.sleep(0.002)

    raining = asyncio.ensure_future(rain())
    async with aiohttp.ClientSession() as client:
        await asyncio.sleep(0.1)
        followers = []
        for _ in range(4):
            followers.append(asyncio.ensure_future(world.follow(client, 3000)))
            await asyncio.sleep(0.03)
        for seen in await asyncio.wait_for(asyncio.gather(*followers), 30):
            assert [number for _, number in seen] == [*range(3000)]
    await raining


async def test_a_follower_goes_on_where_it_was(world: World) -> None:
    for number in range(10):
        world.call(number)
    async with aiohttp.ClientSession() as client:
        seen = await world.follow(client, 4)
        rest = await world.follow(client, 6, **{"Last-Event-ID": str(seen[-1][0])})
        assert [number for _, number in seen + rest] == [*range(10)]
        again = await world.follow(client, 10, **{"Last-Event-ID": "999999"})
        assert [number for _, number in again] == [*range(10)], "numbers of another store mean nothing here"


async def test_the_end_is_said(world: World) -> None:
    async with aiohttp.ClientSession() as client, client.get(world.server.make_url("/v1/logs?follow=1")) as answer:
        await answer.content.readuntil(b"\n\n")
        world.endpoint.stop()
        assert [name async for name, _, _ in events(answer)] == ["end"]


async def test_keep_alive_comments(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_logs, "KEEP_ALIVE_S", 0.02)
    async with aiohttp.ClientSession() as client, client.get(world.server.make_url("/v1/logs?follow=1")) as answer:
        await answer.content.readuntil(b": keep-alive\n\n")
        await answer.content.readuntil(b": keep-alive\n\n")


async def test_who_goes_away_is_forgotten(world: World) -> None:
    async with aiohttp.ClientSession() as client:
        answer = await client.get(world.server.make_url("/v1/logs?follow=1"))
        assert len(world.log.followers) == 1
        answer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                while len(world.log.followers):
                    await asyncio.sleep(0.01)
    assert len(world.log.followers) == 0
