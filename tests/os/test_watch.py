"""A configuration is read again at SIGHUP and when its file changed, once for each change."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from reach_os.watch import Watch

POLL_S = 0.02


class Reads:
    def __init__(self, path: Path | None) -> None:
        self.count = 0
        self.texts: list[str] = []
        self._path = path
        self._watch = Watch(path, poll_s=POLL_S)

    async def reread(self) -> None:
        self.count += 1
        if self._path is not None:
            self.texts.append(self._path.read_text())

    def start(self) -> None:
        self._watch.start(self.reread)

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self.count < count:
                await asyncio.sleep(POLL_S / 4)

    async def stop(self) -> None:
        await self._watch.stop()


@pytest.fixture
async def watch() -> AsyncIterator[Callable[[Path | None], Reads]]:
    made: list[Reads] = []

    def make(path: Path | None) -> Reads:
        made.append(Reads(path))
        return made[-1]

    yield make
    for one in made:
        await one.stop()
    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


async def test_sighup_with_and_without_a_file(watch: Callable[[Path | None], Reads], tmp_path: Path) -> None:
    for path in (None, tmp_path / "absent.yaml"):
        reads = watch(path)
        if path is not None:
            path.write_text("x")
        os.kill(os.getpid(), signal.SIGHUP)  # before the start: kept, not fatal
        await asyncio.sleep(0)
        assert reads.count == 0
        reads.start()
        await reads.reach(1)
        os.kill(os.getpid(), signal.SIGHUP)
        await reads.reach(2)
        await reads.stop()


async def test_a_written_and_a_replaced_file(watch: Callable[[Path | None], Reads], tmp_path: Path) -> None:
    path = tmp_path / "sidecar.yaml"
    path.write_text("one")
    reads = watch(path)
    reads.start()
    path.write_text("three")
    await reads.reach(1)
    (tmp_path / "new").write_text("other")
    (tmp_path / "new").replace(path)
    await reads.reach(2)
    path.unlink()
    await asyncio.sleep(3 * POLL_S)
    path.write_text("back")
    await reads.reach(3)
    assert reads.texts == ["three", "other", "back"]


async def test_links_are_followed(watch: Callable[[Path | None], Reads], tmp_path: Path) -> None:
    """A mounted ConfigMap: the file is a link into a folder that is a link, and only the latter is exchanged."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sidecar.yaml").write_text(name)
    (tmp_path / "data").symlink_to("first")
    path = tmp_path / "sidecar.yaml"
    path.symlink_to("data/sidecar.yaml")
    reads = watch(path)
    reads.start()
    (tmp_path / "next").symlink_to("second")
    (tmp_path / "next").replace(tmp_path / "data")
    await reads.reach(1)
    assert reads.texts == ["second"]
