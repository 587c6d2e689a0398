"""The file is made whole, opened with care, and never replaced by a new one."""

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from reach_sidecar.journal.file import FORMAT, JournalError, open_file, reconnect


def made(path: Path) -> bytes:
    opened = open_file(path)
    opened.db.close()
    return opened.id


def test_id_is_made_once(path: Path) -> None:
    first = made(path)
    assert len(first) == 16
    assert int(first, 16) >= 0
    assert made(path) == first
    assert made(path.with_name("other.db")) != first


def test_settings(path: Path) -> None:
    db = open_file(path).db
    found = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "auto_vacuum")}
    assert found == {"journal_mode": "wal", "synchronous": 2, "auto_vacuum": 2}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    db.close()
    assert [file.name for file in path.parent.iterdir()] == ["delivery.db"]


def test_one_that_was_half_made_is_made_anew(path: Path) -> None:
    path.parent.mkdir()
    new = path.with_name("delivery.db.new")
    new.write_bytes(b"half")
    Path(f"{new}-journal").write_bytes(b"half")
    made(path)
    assert [file.name for file in path.parent.iterdir()] == ["delivery.db"]


def broken(path: Path, how: str) -> None:
    made(path)
    if how == "empty":
        path.write_bytes(b"")
    elif how == "text":
        path.write_bytes(b"no database, but long enough to be one\n" * 500)
    elif how == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "overwritten":
        with path.open("r+b") as file:
            file.seek(4096 * 2)
            file.write(b"\xa5" * 4096 * 4)
    elif how == "foreign":
        path.unlink()
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE something (a)")
        db.close()
    elif how == "newer":
        db = sqlite3.connect(path)
        db.execute(f"PRAGMA user_version={FORMAT + 1}")
        db.close()
    elif how == "no id":
        db = sqlite3.connect(path)
        db.execute("DELETE FROM journal")
        db.commit()
        db.close()
    elif how == "log alone":
        path.unlink()
        Path(f"{path}-wal").write_bytes(b"x" * 100)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("empty", "damaged: the file is empty.*move it away"),
        ("text", "damaged.*move it away"),
        ("cut", "damaged.*move it away"),
        ("overwritten", "damaged.*move it away"),
        ("foreign", "not a delivery journal"),
        ("newer", "newer version.*Upgrade"),
        ("no id", "its id is missing"),
        ("log alone", "delivery.db-wal is there, but not its database.*Put that back"),
    ],
)
def test_what_cannot_be_opened_says_what_to_do_and_stays(path: Path, how: str, says: str) -> None:
    broken(path, how)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(JournalError, match=says):
        open_file(path)
    for name, content in before.items():
        if not name.endswith("-shm"):
            assert (path.parent / name).read_bytes() == content


AS_NOBODY = """
import os, sys
from pathlib import Path
from reach_sidecar.journal.file import JournalError, open_file
if os.geteuid() == 0:
    os.setuid(65534)
try:
    open_file(Path(sys.argv[1]))
except JournalError as error:
    print(error)
"""


@pytest.mark.parametrize("there", [False, True])
def test_read_only_directory(there: bool) -> None:
    """In a process without root's rights, and a folder that such a one can reach."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "delivery.db"
        if there:
            made(path)
            path.chmod(0o444)
        path.parent.chmod(0o555)
        done = subprocess.run([sys.executable, "-c", AS_NOBODY, str(path)], capture_output=True, text=True, timeout=30)
        path.parent.chmod(0o700)
    assert "Cannot use" in done.stdout, done
    assert "this user may write to it and its directory" in done.stdout


def test_reconnect_takes_no_other_file(path: Path) -> None:
    first = made(path)
    reconnect(path, first).close()
    with pytest.raises(OSError, match="another file"):
        reconnect(path, b"0" * 16)
    path.unlink()
    with pytest.raises(sqlite3.OperationalError):
        reconnect(path, first)
    assert not path.exists()
