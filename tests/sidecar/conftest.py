"""Sidecars inside the test's process, for the tests of the path of a call and of the doors."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harness.sidecars import Mesh


@pytest.fixture
async def inner(tmp_path: Path) -> AsyncIterator[Mesh]:
    """An empty mesh in this process; nothing of it is left afterwards."""
    mesh = Mesh(tmp_path)
    yield mesh
    await mesh.stop()
