"""The mesh that tests share when they do not break it, and meshes inside the test's process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from harness.sidecars import Mesh
from harness.world import World, start_world


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """As the daemons run: cancelling and closing differ between loops."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = start_world(tmp_path_factory.mktemp("world"))
    yield world
    world.mesh.stop()


@pytest.fixture
async def inner(tmp_path: Path) -> AsyncIterator[Mesh]:
    """An empty mesh in this process; nothing of it is left afterwards."""
    mesh = Mesh(tmp_path)
    yield mesh
    await mesh.stop()
