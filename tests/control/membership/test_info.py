from pathlib import Path

import pytest

from reach_control.identity.keys import NodeKeys
from reach_control.membership.info import Info
from reach_core.gossip.seal import KEY_LIFE_MS, MeshKeys
from reach_core.messages import MeshInfo, decode

NOW_MS = 1_700_000_000_000


class Bench:
    def __init__(self, path: Path, aliases: dict[str, list[str]] | None = None) -> None:
        self.keys = NodeKeys(path, NOW_MS)
        self.told: list[int] = []
        self.info = Info(self.keys, aliases or {}, self.told.append)

    def document(self) -> MeshInfo:
        return decode(MeshInfo, self.info.encoded)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "identity.json", {"email.send": ["notify.email"]})
    assert made.info.refresh(NOW_MS)
    return made


def test_it_says_what_holds_mesh_wide(bench: Bench) -> None:
    document = bench.document()
    assert document.version == bench.info.version == NOW_MS
    assert document.aliases == {"email.send": ["notify.email"]}
    assert document.keys == bench.keys.own_publics()
    sealed = bench.keys.seal(NOW_MS).seal(b"x", b"n" * 12)
    assert MeshKeys(document.mesh_keys, document.mesh_key).open(sealed) == b"x"
    assert bench.keys.secret[0] not in bench.info.encoded
    assert bench.told == [NOW_MS]


def test_the_version_grows_with_each_change_and_only_then(bench: Bench) -> None:
    assert not bench.info.refresh(NOW_MS + 1000)
    bench.info.rename({"a.b": ["c.d"]})
    assert bench.info.refresh(NOW_MS + 2000)
    bench.keys.learn([b"k" * 32], NOW_MS)
    assert bench.info.refresh(NOW_MS + 2000), "in the same millisecond, too"
    bench.keys.adopt(b"s" * 32, 1)
    assert bench.info.refresh(NOW_MS - 10_000), "and when the clock has gone back"
    assert bench.told == [NOW_MS, NOW_MS + 2000, NOW_MS + 2001, NOW_MS + 2002]
    assert bench.document().version == NOW_MS + 2002


def test_new_keys_of_datagrams_are_a_change(bench: Bench) -> None:
    before = bench.document()
    assert bench.info.refresh(NOW_MS + KEY_LIFE_MS)
    after = bench.document()
    assert after.mesh_key == before.mesh_key + 1
    assert len(set(before.mesh_keys) & set(after.mesh_keys)) == 2


def test_a_restart_is_no_change(bench: Bench, tmp_path: Path) -> None:
    bench.keys.save()
    again = Bench(tmp_path / "identity.json", {"email.send": ["notify.email"]})
    assert not again.info.refresh(NOW_MS + 60_000)
    assert again.document() == bench.document()
    assert again.told == []
    other = Bench(tmp_path / "identity.json")
    assert other.info.refresh(NOW_MS - 60_000), "other aliases are one"
    assert other.info.version == NOW_MS + 1


def test_what_it_says_can_always_be_read(bench: Bench) -> None:
    bench.keys.learn([bytes([n // 256, n % 256]) * 16 for n in range(2000)], NOW_MS)
    bench.info.refresh(NOW_MS + 1)
    assert set(bench.keys.own_publics()) <= set(bench.document().keys)
