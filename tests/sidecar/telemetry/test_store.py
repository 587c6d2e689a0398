"""The store: bounded, mended, and never in the way; on real SQLite files."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest
from harness.mesh import until

from reach_sidecar.telemetry import store as store_module
from reach_sidecar.telemetry.line import Line, rfc3339
from reach_sidecar.telemetry.store import LogStore


def line(number: int, trace_id: str | None = None, level: str = "info", ms: int | None = None, pad: int = 0) -> Line:
    ms = int(time.time() * 1000) if ms is None else ms
    record = {"ts": rfc3339(ms), "level": level, "event": "call", "trace_id": trace_id, "n": number, "pad": "x" * pad}
    return (ms, {"info": 20, "warn": 30}[level], trace_id, orjson.dumps(record))


def numbers(store: LogStore, **wanted: object) -> list[int]:
    return [orjson.loads(found.data)["n"] for found in store.query(**wanted)]  # type: ignore[arg-type]


def test_single_lines_are_merged_into_segments_without_loss(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "logs.db")
    for number in range(1300):
        assert store.append_batch([line(number, f"{number % 7:032x}")]) == (number + 1, None)
    assert numbers(store) == [*range(1300)]
    assert numbers(store, trace_id=f"{3:032x}") == [n for n in range(1300) if n % 7 == 3]
    store.close()
    rows = sqlite3.connect(store.path).execute("SELECT count(*), sum(lines) FROM segment_index").fetchone()
    assert rows[0] < 300
    assert rows[1] == 1300


def test_numbers_and_merging_go_on_after_a_restart(tmp_path: Path) -> None:
    number = 0
    for _ in range(12):
        store = LogStore(tmp_path / "logs.db")
        for _ in range(100):
            assert store.append_batch([line(number)])[0] == number + 1
            number += 1
        store.close()
    assert numbers(store) == [*range(1200)]
    assert sqlite3.connect(store.path).execute("SELECT count(*) FROM segment_index").fetchone()[0] < 200


def test_old_lines_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "TRIM_EVERY_S", 0.0)
    store = LogStore(tmp_path / "logs.db", keep_s=3600)
    hours_ago = int((time.time() - 7200) * 1000)
    for number in range(5):
        store.append_batch([line(number, ms=hours_ago)] * 100)
    store.append_batch([line(99)])
    assert set(numbers(store)) == {99}
    store.close()


def test_size_is_bounded_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "TRIM_EVERY_S", 0.0)
    bound = 2 << 20
    store = LogStore(tmp_path / "logs.db", max_bytes=bound)
    for number in range(100):
        store.append_batch([line(number, pad=800)] * 100)  # 9 MB in all
    kept = sorted(set(numbers(store)))
    assert kept == [*range(kept[0], 100)], "the newest are kept, without holes"
    assert 10 < len(kept) < 30
    store.close()
    assert os.path.getsize(store.path) < bound * 1.5


def test_a_lowered_bound_gives_space_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "TRIM_EVERY_S", 0.0)
    store = LogStore(tmp_path / "logs.db")
    for number in range(60):
        store.append_batch([line(number, pad=800)] * 100)
    store.close()
    before = os.path.getsize(store.path)
    store = LogStore(tmp_path / "logs.db", max_bytes=1 << 20)
    for number in range(60, 90):
        store.append_batch([line(number)])
    store.close()
    assert os.path.getsize(store.path) < before / 2


@pytest.mark.parametrize("damage", ["garbage", "header", "middle"])
def test_a_damaged_file_is_moved_aside(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "logs.db"
    store = LogStore(path)
    for number in range(20):
        store.append_batch([line(number, pad=300)] * 80)
    store.close()
    content = bytearray(path.read_bytes())
    if damage == "garbage":
        content = bytearray(os.urandom(5000))
    elif damage == "header":
        content[:100] = bytes(100)
    else:
        content[100:40_000] = os.urandom(39_900)
    path.write_bytes(content)
    store = LogStore(path)
    for number in range(20, 30):
        store.append_batch([line(number)])
    assert numbers(store)[-1] == 29
    assert store.moved_aside == tmp_path / "logs.db.damaged"
    assert store.moved_aside.exists()
    store.close()


def test_damage_that_a_query_finds_is_mended_by_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "logs.db"
    store = LogStore(path)
    store.append_batch([line(1)])
    store.close()
    path.write_bytes(os.urandom(9000))
    with pytest.raises(sqlite3.DatabaseError):
        store.query()
    store.append_batch([line(2)])
    assert numbers(store) == [2]
    store.close()


def test_a_full_disk_is_said_and_recovered_from(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "logs.db")
    store.append_batch([line(0)])
    assert store._db is not None
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count={pages + 1}")
    first, error = store.append_batch([line(1, pad=1000)] * 200)
    assert first == 2
    assert error is not None
    assert "full" in error
    store._db.execute("PRAGMA max_page_count=1000000")
    assert store.append_batch([line(2)]) == (202, None), "lost lines have numbers too"
    assert numbers(store) == [0, 2]
    store.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_really_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    store = LogStore(disk / "logs.db")
    try:
        store.append_batch([line(0)])
        (disk / "ballast").write_bytes(bytes(1 << 20))
        errors = [store.append_batch([line(n, pad=1000)] * 100)[1] for n in range(1, 20)]
        assert errors[-1] is not None
        (disk / "ballast").unlink()
        until("the store takes lines again", lambda: store.append_batch([line(99)])[1] is None)
        assert numbers(store)[0] == 0
        assert numbers(store)[-1] == 99
    finally:
        store.close()
        subprocess.run(["umount", str(disk)], check=True)


def test_a_place_that_cannot_be_written_is_said_and_tried_again(tmp_path: Path) -> None:
    place = tmp_path / "state"
    place.write_text("a file where the folder should be")
    store = LogStore(place / "logs.db")
    _, error = store.append_batch([line(1)])
    assert error is not None
    assert str(place) in error
    place.unlink()
    until("it is opened again", lambda: store.append_batch([line(2)])[1] is None)
    store.close()


WRITER = """
import sys, time, orjson
from pathlib import Path
from reach_sidecar.telemetry.log import LogWriter
from reach_sidecar.telemetry.store import LogStore
log = LogWriter("a", LogStore(Path(sys.argv[1])))
number = 0
while True:
    number += 1
    log.line({"level": "info", "event": "call", "n": number, "at": time.time()})
    if number % 10 == 0:
        sys.stdout.write(f"{number} {time.time()}\\n"); sys.stdout.flush()
    time.sleep(0.001)
"""


def test_sigkill_loses_little_and_needs_no_mending(tmp_path: Path) -> None:
    path = tmp_path / "logs.db"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    last = killed_at = 0.0
    for report in process.stdout:
        last, at = int(report.split()[0]), float(report.split()[1])
        if last >= 800:
            process.send_signal(signal.SIGKILL)
            killed_at = at
            break
    process.stdout.read()
    process.wait()
    process.stdout.close()
    store = LogStore(path)
    found = [orjson.loads(seen.data) for seen in store.query()]
    assert [record["n"] for record in found] == [*range(1, len(found) + 1)]
    # 200 ms is the promise; a busy test machine may stall the thread for longer.
    assert killed_at - found[-1]["at"] < 1.0
    assert store.append_batch([line(1)]) == (len(found) + 1, None)
    assert store.moved_aside is None
    store.close()
