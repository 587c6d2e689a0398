"""The engine's tests run on uvloop, as the daemons do: several pitfalls are its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop
from sidecar.http1.raw import Door, Script, Upstream, echo

from reach_sidecar.http1 import listener
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.pool import Pool
from reach_sidecar.http1.server import Handler


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def door(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Awaitable[Door]]]:
    """`await door(handler, head_timeout_s=0.1)`: a listener with that handler and those limits."""
    monkeypatch.setattr(listener, "SWEEP_EVERY_S", 0.02)
    doors: list[Door] = []

    async def start(handler: Handler = echo, *, abandon_after_s: float = 0.0, **limits: Any) -> Door:
        limits.setdefault("linger_s", 0.2)
        opened = Door(handler, Limits(**limits), abandon_after_s)
        doors.append(opened)
        await opened.start()
        return opened

    yield start
    for opened in doors:
        await opened.stop()


@pytest.fixture
async def upstream() -> AsyncIterator[Callable[..., Awaitable[Upstream]]]:
    """`await upstream(script)`: a server that runs `script(reader, writer)` for every connection."""
    started: list[Upstream] = []

    async def start(script: Script | bytes) -> Upstream:
        server = Upstream(script)
        started.append(server)
        await server.start()
        return server

    yield start
    for server in started:
        await server.stop()


@pytest.fixture
async def pool_to() -> AsyncIterator[Callable[..., Pool]]:
    """`pool_to(port)`: a pool of client connections; nothing of it stays open."""
    pools: list[Pool] = []

    def make(port: int, host: str = "127.0.0.1", **limits: Any) -> Pool:
        pools.append(Pool(host, port, Limits(**limits)))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()
    await asyncio.sleep(0)
