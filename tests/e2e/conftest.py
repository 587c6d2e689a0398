"""The mesh that tests share when they do not break it."""

from collections.abc import Iterator

import pytest
from harness.world import World, start_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = start_world(tmp_path_factory.mktemp("world"))
    yield world
    world.mesh.stop()
