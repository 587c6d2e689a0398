import io
import os
import random
import time
from pathlib import Path

import pytest

from reach_control.identity.keys import NodeKeys
from reach_control.journal.snapshot import Snapshot
from reach_control.membership.restore import restore
from reach_control.registry.lease import Moment, Terms
from reach_control.registry.registry import Registry
from reach_control.telemetry.log import ControlLog
from reach_core.peer import Entry, Rank
from reach_core.table import PeerTable

NOW = Moment(1000.0, 1_700_000_000_000)


class Bench:
    """A state directory, and what a former process left there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = NodeKeys(folder / "identity.json", NOW.ms)
        self.out = io.StringIO()
        self.asked = 0
        self.is_reachable = False

    def sign(self, entry: Entry) -> Entry:
        return self.keys.signer(NOW.ms).sign(entry)

    async def save(self, *entries: Entry, hours_ago: float = 0.0) -> None:
        snapshot = Snapshot(self.folder / "table.sqlite")
        await snapshot.open(NOW.ms)
        await snapshot.save(entries, NOW.ms)
        await snapshot.close()
        at = time.time() - hours_ago * 3600
        for file in self.folder.glob("table.sqlite*"):
            os.utime(file, (at, at))

    async def reach_others(self) -> bool:
        self.asked += 1
        return self.is_reachable

    async def restore(self) -> tuple[PeerTable, int]:
        registry = Registry("local", Terms(), PeerTable(), NOW, random.Random(1), sign=self.sign)
        snapshot = Snapshot(self.folder / "table.sqlite")
        on_disk = await restore(snapshot, registry, self.keys, NOW, self.reach_others, ControlLog(out=self.out))
        await snapshot.close()
        return registry.table, on_disk


def entry(agent_id: str) -> Entry:
    return Entry(agent_id=agent_id, gen=NOW.ms, ver=3, rank=Rank.UP, address="h:1")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_what_was_signed_here_comes_back_as_it_was(bench: Bench) -> None:
    known = [bench.sign(entry("a")), bench.sign(entry("b").tombstone(NOW.ms))]
    await bench.save(*known)
    table, on_disk = await bench.restore()
    assert {one.agent_id: (one, one.signature) for one in table.entries(tombstones=True)} == {
        one.agent_id: (one, one.signature) for one in known}
    assert on_disk == table.seq
    assert bench.asked == 0


async def test_what_nobody_s_key_vouches_for_is_signed_anew_and_not_on_disk_yet(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = NodeKeys(tmp_path / "other" / "identity.json", NOW.ms).signer(NOW.ms)
    stone = other.sign(entry("stone").tombstone(NOW.ms))
    await bench.save(entry("unsigned"), other.sign(entry("strange")), stone, bench.sign(entry("a")))
    table, on_disk = await bench.restore()
    found = {one.agent_id: one for one in table.entries(tombstones=True)}
    assert {name: one.ver for name, one in found.items()} == {"unsigned": 4, "strange": 4, "stone": 3, "a": 3}
    assert all(bench.keys.keyring.verify(one) for one in found.values())
    assert (on_disk, table.seq) == (1, 4)


@pytest.mark.parametrize(
    ("hours_ago", "is_reachable", "kept", "asked"),
    [
        (0.0, True, True, 0),
        (11.9, True, True, 0),
        (12.1, False, True, 1),
        (12.1, True, False, 1),
        (1000.0, True, False, 1),
        (-5.0, True, True, 0),
    ],
)
async def test_an_old_table_gives_way_to_that_of_a_node_that_can_be_reached(
    bench: Bench, hours_ago: float, is_reachable: bool, kept: bool, asked: int
) -> None:
    await bench.save(bench.sign(entry("a")), hours_ago=hours_ago)
    bench.is_reachable = is_reachable
    table, _ = await bench.restore()
    assert (len(table), bench.asked) == (int(kept), asked)
    again, _ = await bench.restore()
    assert len(again) == int(kept), "and what was dropped does not come back"


async def test_the_first_start_asks_nobody(bench: Bench) -> None:
    table, on_disk = await bench.restore()
    assert (len(table), on_disk, bench.asked) == (0, 0, 0)
