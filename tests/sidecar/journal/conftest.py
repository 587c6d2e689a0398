"""A journal on a real file, closed afterwards."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reach_sidecar.journal.database import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "delivery.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[Journal]:
    opened = await Journal.open(path)
    yield opened
    await opened.close()
