import os
import stat
from pathlib import Path

import pytest

from reach_control.identity import keyfile
from reach_control.identity.keyfile import KeyFile, KeyFileError, OtherKey, OwnKey, load, save

KEYS = KeyFile(
    node="control-01020304",
    own=(OwnKey(seed=bytes(range(32)), made_ms=7),),
    secret=b"s" * 32,
    made_ms=5,
    others=(OtherKey(public=b"p" * 32, heard_ms=6),),
    info_version=9,
    info_digest=b"d",
)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    assert load(path) is None
    save(path, KEYS)
    assert load(path) == KEYS


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        save(tmp_path / "identity.json", KEYS)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "identity.json").stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["identity.json"]


def test_a_write_that_fails_leaves_the_old_file_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "identity.json"
    save(path, KEYS)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keyfile.os, "fsync", full)
    with pytest.raises(KeyFileError, match=r"No space left on device\. See that the disk has space"):
        save(path, KeyFile(node="other", own=KEYS.own, secret=KEYS.secret, made_ms=0))
    assert load(path) == KEYS
    assert [one.name for one in tmp_path.iterdir()] == ["identity.json"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is damaged"),
        (b"{}", "is damaged"),
        (b"\xff\x00", "is damaged"),
        (b'{"node":"a","own":[],"secret":"' + b"QUFB" * 10 + b'QUE=","made_ms":1}', "no usable"),
        (b'{"node":"a","own":[{"seed":"QUFB","made_ms":1}],"secret":"QUFB","made_ms":1}', "no usable"),
    ],
)
def test_a_damaged_file_is_never_replaced_silently(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "identity.json"
    path.write_bytes(content)
    with pytest.raises(KeyFileError, match=says):
        load(path)
    assert path.read_bytes() == content


def test_a_file_that_cannot_be_read_is_no_missing_file(tmp_path: Path) -> None:
    (tmp_path / "identity.json").mkdir()
    with pytest.raises(KeyFileError, match="Cannot read"):
        load(tmp_path / "identity.json")
