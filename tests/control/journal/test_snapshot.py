import os
import sqlite3
from pathlib import Path

import pytest

from reach_control.journal import snapshot as snapshot_module
from reach_control.journal.snapshot import FORMAT, Snapshot, SnapshotError
from reach_core.peer import SIGNATURE_BYTES, TOMBSTONE_LIFE_MS, Entry, Rank, with_signature

NOW_MS = 1_700_000_000_000


def entry(agent_id: str = "a", ver: int = 1) -> Entry:
    return Entry(agent_id=agent_id, gen=NOW_MS, ver=ver, rank=Rank.UP, address="h:1")


async def test_what_was_saved_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "table.sqlite"
    first = Snapshot(path)
    assert await first.open(NOW_MS) == ([], 0)
    stone = entry("c").tombstone(NOW_MS)
    signed = with_signature(entry("b"), bytes(range(SIGNATURE_BYTES)))
    await first.save([entry("a"), signed, stone], NOW_MS)
    await first.save([entry("a", ver=2)], NOW_MS)
    # not closed: as after SIGKILL

    second = Snapshot(path)
    noted = await second.open(NOW_MS)
    assert sorted(noted.entries, key=lambda e: e.agent_id) == [entry("a", ver=2), entry("b"), stone]
    assert {e.agent_id: e.signature for e in noted.entries} == {"a": b"", "b": signed.signature, "c": b""}
    await second.close()
    await first.close()


async def test_old_tombstones_go(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path / "table.sqlite")
    await snapshot.open(NOW_MS)
    await snapshot.save([entry("a").tombstone(NOW_MS)], NOW_MS)
    later = NOW_MS + TOMBSTONE_LIFE_MS
    await snapshot.save([entry("b")], later)
    await snapshot.close()
    with sqlite3.connect(tmp_path / "table.sqlite") as db:
        assert db.execute("SELECT agent_id FROM entry").fetchall() == [("b",)]


async def test_an_unreadable_row_does_not_cost_the_others(tmp_path: Path) -> None:
    path = tmp_path / "table.sqlite"
    snapshot = Snapshot(path)
    await snapshot.open(NOW_MS)
    await snapshot.save([entry("a")], NOW_MS)
    await snapshot.close()
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO entry VALUES ('b', x'00ff', x'', NULL), ('c', 7, x'', NULL)")
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
        await snapshot.save([entry(f"agent-{n}") for n in range(500)], NOW_MS)
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
        await snapshot.save([entry()], NOW_MS)


async def test_a_database_of_the_first_format_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "table.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE entry (agent_id TEXT PRIMARY KEY, encoded BLOB NOT NULL, instance TEXT NOT NULL, "
                   "expires_ms INTEGER) WITHOUT ROWID")
        db.execute("CREATE INDEX entry_expires ON entry (expires_ms) WHERE expires_ms IS NOT NULL")
        db.execute("INSERT INTO entry VALUES ('a', ?, 'i', NULL)", (entry("a").encoded,))
        db.execute("PRAGMA user_version = 1")
    snapshot = Snapshot(path)
    assert await snapshot.open(NOW_MS) == ([entry("a")], 0)
    await snapshot.save([entry("b")], NOW_MS)
    await snapshot.close()
    again = Snapshot(path)
    assert len((await again.open(NOW_MS)).entries) == 2
    await again.close()


async def test_a_move_to_the_new_format_that_was_cut_short_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "table.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE entry (agent_id TEXT PRIMARY KEY, encoded BLOB NOT NULL, instance TEXT NOT NULL, "
                   "expires_ms INTEGER) WITHOUT ROWID")
        db.execute("INSERT INTO entry VALUES ('a', ?, 'i', NULL)", (entry("a").encoded,))
        db.execute("PRAGMA user_version = 1")
    steps = (Path(snapshot_module.__file__).parent / "from_1.sql").read_text().split(";\n")
    for count in range(1, len(steps)):
        cut = sqlite3.connect(path, isolation_level=None)
        for step in steps[:count]:
            if "COMMIT" not in step:
                cut.execute(step)
        cut.close()  # as when the process is killed
    snapshot = Snapshot(path)
    assert await snapshot.open(NOW_MS) == ([entry("a")], 0)
    await snapshot.close()


async def test_nothing_of_a_cleared_table_comes_back(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path / "table.sqlite")
    await snapshot.open(NOW_MS)
    await snapshot.save([entry("a"), entry("b")], NOW_MS)
    await snapshot.clear()
    await snapshot.save([entry("c")], NOW_MS)
    await snapshot.close()
    again = Snapshot(tmp_path / "table.sqlite")
    assert await again.open(NOW_MS) == ([entry("c")], 0)
    await again.close()
