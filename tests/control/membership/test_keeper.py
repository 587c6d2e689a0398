import asyncio
import io
from collections.abc import Iterable
from pathlib import Path

from reach_control.journal.snapshot import Snapshot, SnapshotError
from reach_control.membership import keeper as keeper_module
from reach_control.membership.keeper import Keeper
from reach_control.telemetry.log import ControlLog
from reach_core.peer import Entry, Rank
from reach_core.table import PeerTable

NOW_MS = 1_700_000_000_000


def entry(agent_id: str, ver: int = 1) -> Entry:
    return Entry(agent_id=agent_id, gen=NOW_MS, ver=ver, rank=Rank.UP)


class Disk(Snapshot):
    """A snapshot that can be told to fail, and that says what was saved."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self.saved: list[list[str]] = []
        self.broken = False

    async def save(self, entries: Iterable[Entry], now_ms: int) -> None:
        await asyncio.sleep(0)
        if self.broken:
            raise SnapshotError("The disk is full.")
        self.saved.append([one.agent_id for one in entries])


class Bench:
    def __init__(self) -> None:
        self.table = PeerTable()
        self.disk = Disk()
        self.published: list[int] = []
        self.out = io.StringIO()
        self.keeper = Keeper(
            self.table, self.table.seq, self.disk, self.published.append, lambda: NOW_MS, ControlLog(out=self.out)
        )

    def change(self, *entries: Entry) -> None:
        self.table.merge(entries, NOW_MS)
        self.keeper.note()


async def test_changes_are_saved_in_batches_and_then_shown() -> None:
    bench = Bench()
    running = asyncio.create_task(bench.keeper.run())
    for n in range(100):
        bench.change(entry(f"agent-{n}"))
    while bench.published[-1:] != [100]:
        await asyncio.sleep(0.001)
    assert len(bench.disk.saved) == bench.keeper.batches <= 2
    bench.change(entry("last"))
    bench.keeper.stop()
    await asyncio.wait_for(running, 2)
    assert bench.disk.saved[-1][-1] == "last"
    assert bench.published[-1] == bench.table.seq


async def test_a_disk_that_fails_stops_nothing_and_is_tried_again() -> None:
    bench = Bench()
    keeper_module_retry, keeper_module.RETRY_S = keeper_module.RETRY_S, 0.01
    try:
        bench.disk.broken = True
        running = asyncio.create_task(bench.keeper.run())
        bench.change(entry("a"))
        bench.change(entry("b"))
        while not bench.published or bench.keeper.problem is None:
            await asyncio.sleep(0.001)
        assert bench.published[-1] == 2
        assert bench.out.getvalue().count("The disk is full.") == 1
        bench.disk.broken = False
        while bench.keeper.problem is not None:
            await asyncio.sleep(0.001)
        assert bench.disk.saved == [["a", "b"]]
        bench.keeper.stop()
        await asyncio.wait_for(running, 2)
    finally:
        keeper_module.RETRY_S = keeper_module_retry
    assert "to disk again" in bench.out.getvalue()
