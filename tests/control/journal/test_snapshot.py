import os
import sqlite3
from pathlib import Path

import pytest

from reach_control.journal.snapshot import FORMAT, Snapshot, SnapshotError
from reach_core.peer import TOMBSTONE_LIFE_MS, Entry, Rank

NOW_MS = 1_700_000_000_000


def entry(agent_id: str = "a", ver: int = 1) -> Entry:
    return Entry(agent_id=agent_id, gen=NOW_MS, ver=ver, rank=Rank.UP, address="h:1")


def owner(agent_id: str) -> str:
    return f"owner of {agent_id}"


async def test_what_was_saved_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "table.sqlite"
    first = Snapshot(path)
    assert await first.open(NOW_MS) == ([], {}, 0)
    stone = entry("c").tombstone(NOW_MS)
    await first.save([entry("a"), entry("b"), stone], owner, NOW_MS)
    await first.save([entry("a", ver=2)], owner, NOW_MS)
    # not closed: as after SIGKILL

    second = Snapshot(path)
    noted = await second.open(NOW_MS)
    assert sorted(noted.entries, key=lambda e: e.agent_id) == [entry("a", ver=2), entry("b"), stone]
    assert noted.instances["b"] == "owner of b"
    await second.close()
    await first.close()


async def test_old_tombstones_go(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path / "table.sqlite")
    await snapshot.open(NOW_MS)
    await snapshot.save([entry("a").tombstone(NOW_MS)], owner, NOW_MS)
    later = NOW_MS + TOMBSTONE_LIFE_MS
    await snapshot.save([entry("b")], owner, later)
    await snapshot.close()
    with sqlite3.connect(tmp_path / "table.sqlite") as db:
        assert db.execute("SELECT agent_id FROM entry").fetchall() == [("b",)]


async def test_an_unreadable_row_does_not_cost_the_others(tmp_path: Path) -> None:
    path = tmp_path / "table.sqlite"
    snapshot = Snapshot(path)
    await snapshot.open(NOW_MS)
    await snapshot.save([entry("a")], owner, NOW_MS)
    await snapshot.close()
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO entry VALUES ('b', x'00ff', 'i', NULL), ('c', 7, 'i', NULL)")
    again = Snapshot(path)
    noted = await again.open(NOW_MS)
    await again.close()
    assert [e.agent_id for e in noted.entries] == ["a"]
    assert noted.unreadable == 2


@pytest.mark.parametrize("damage", [b"not a database at all, but long enough to look at" * 20, None])
async def test_a_damaged_database_says_what_to_do(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "table.sqlite"
    if damage is None:
        snapshot = Snapshot(path)
        await snapshot.open(NOW_MS)
        await snapshot.save([entry(f"agent-{n}") for n in range(500)], owner, NOW_MS)
        await snapshot.close()
        content = bytearray(path.read_bytes())
        content[4096:] = os.urandom(len(content) - 4096)
        path.write_bytes(content)
    else:
        path.write_bytes(damage)
    with pytest.raises(SnapshotError, match=r"is damaged: .* Move it away"):
        await Snapshot(path).open(NOW_MS)


async def test_a_database_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="or set `state_dir` to another directory"):
        await Snapshot(tmp_path / "missing" / "table.sqlite").open(NOW_MS)
    (tmp_path / "folder").mkdir()
    with pytest.raises(SnapshotError, match="See that this user may write"):
        await Snapshot(tmp_path / "folder").open(NOW_MS)


async def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(SnapshotError, match="newer version"):
        await Snapshot(path).open(NOW_MS)


async def test_saving_after_closing_is_an_error_not_a_hang(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path / "table.sqlite")
    await snapshot.open(NOW_MS)
    await snapshot.close()
    with pytest.raises(SnapshotError, match="is closed"):
        await snapshot.save([entry()], owner, NOW_MS)
