import io
import random
from pathlib import Path

import pytest

from reach_control.identity import keys as keys_module
from reach_control.identity.keyfile import KeyFileError
from reach_control.identity.keys import ANNOUNCE_MS, KEY_LIFE_MS, NodeKeys
from reach_control.membership.info import Info
from reach_control.membership.tending import MOST_SIGNED_ANEW, Tending
from reach_control.registry.lease import Moment, Terms
from reach_control.registry.registry import Registry
from reach_control.telemetry.log import ControlLog
from reach_core.keyring import KEY_ID_BYTES, key_id
from reach_core.messages import RegisterRequest
from reach_core.table import Change, PeerTable

NOW_MS = 1_700_000_000_000


class Bench:
    """A node whose clock goes on with `pass_ms`."""

    def __init__(self, folder: Path, agents: int) -> None:
        self.path = folder / "identity.json"
        self.now = Moment(1000.0, NOW_MS)
        self.keys = NodeKeys(self.path, NOW_MS)
        self.announced: list[int] = []
        self.changes: list[Change] = []
        self.out = io.StringIO()
        self.registry = Registry("local", Terms(), PeerTable(), self.now, random.Random(1),
                                 sign=lambda entry: self.keys.signer(self.now.ms).sign(entry))
        info = Info(self.keys, {}, self.announced.append)
        self.tending = Tending(self.keys, info, self.registry, lambda: self.now, self.changes.extend,
                               ControlLog(out=self.out))
        self.tending.tend(self.now)
        for n in range(agents):
            request = RegisterRequest(agent_id=f"a-{n}", instance="i", address="h:1", healthy=True)
            self.registry.register(request, self.now)

    def pass_ms(self, ms: int) -> bool:
        self.now = Moment(self.now.s + ms / 1000, self.now.ms + ms)
        return self.tending.tend(self.now)

    def signed(self) -> set[bytes]:
        return {entry.signature[:KEY_ID_BYTES] for entry in self.registry.table.entries(tombstones=True)}


def test_usually_there_is_nothing_to_do(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 3)
    assert bench.announced == [NOW_MS]
    before = bench.path.read_bytes()
    for _ in range(10):
        assert bench.pass_ms(60_000)
    assert bench.changes == []
    assert bench.path.read_bytes() == before


def test_a_key_is_announced_then_used_and_the_table_signed_anew_a_part_at_a_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 2 * MOST_SIGNED_ANEW + 3)
    (old,) = bench.keys.own_publics()
    assert bench.pass_ms(KEY_LIFE_MS)
    (_, new) = bench.keys.own_publics()
    assert len(bench.announced) == 2
    assert NodeKeys(bench.path, NOW_MS).own_publics() == [old, new], "it is on disk before others hear of it"
    assert bench.changes == []
    assert not bench.pass_ms(ANNOUNCE_MS)
    assert len(bench.changes) == MOST_SIGNED_ANEW
    assert not bench.pass_ms(1000)
    assert not bench.pass_ms(1000)
    assert old in bench.keys.own_publics()
    assert bench.pass_ms(1000)
    assert len(bench.changes) == 2 * MOST_SIGNED_ANEW + 3
    assert bench.signed() == {key_id(new)}
    assert bench.keys.own_publics() == [new]
    assert NodeKeys(bench.path, NOW_MS).own_publics() == [new]
    assert len(bench.announced) == 3


def test_keys_that_cannot_be_saved_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, 1)

    def broken(*_: object) -> None:
        raise KeyFileError("The disk is full.")

    monkeypatch.setattr(keys_module, "save", broken)
    bench.tending.changed()
    assert "The disk is full." in bench.out.getvalue()
