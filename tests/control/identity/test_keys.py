from pathlib import Path

import pytest

from reach_control.identity.keys import ANNOUNCE_MS, DAY_MS, KEY_LIFE_MS, RETIRE_MS, NodeKeys
from reach_core.gossip.seal import KEY_LIFE_MS as DATAGRAM_KEY_LIFE_MS
from reach_core.gossip.seal import number_at
from reach_core.keyring import KEY_ID_BYTES, key_id
from reach_core.peer import Entry, Rank

NOW_MS = 1_700_000_000_000


def entry(agent_id: str = "a") -> Entry:
    return Entry(agent_id=agent_id, gen=NOW_MS, ver=1, rank=Rank.UP)


def is_good(keys: NodeKeys, signed: Entry, now_ms: int) -> bool:
    return signed.signature[:KEY_ID_BYTES] in keys.good_ids(now_ms)


def signed_with(keys: NodeKeys, now_ms: int) -> bytes:
    return keys.signer(now_ms).sign(entry()).signature[:KEY_ID_BYTES]


@pytest.fixture
def keys(tmp_path: Path) -> NodeKeys:
    made = NodeKeys(tmp_path / "identity.json", NOW_MS)
    made.rotate(NOW_MS)
    made.save()
    return made


def test_a_node_keeps_its_id_its_key_and_the_secret(keys: NodeKeys, tmp_path: Path) -> None:
    again = NodeKeys(tmp_path / "identity.json", NOW_MS + DAY_MS)
    assert again.node == keys.node
    assert again.secret == keys.secret
    assert again.signer(NOW_MS).public == keys.signer(NOW_MS).public
    assert NodeKeys(tmp_path / "other.json", NOW_MS).node != keys.node


def test_what_it_signs_is_good_here(keys: NodeKeys) -> None:
    assert keys.keyring.verify(keys.signer(NOW_MS).sign(entry()))
    assert not keys.keyring.verify(entry())


def test_a_new_key_is_announced_before_it_signs_and_the_old_one_stays_while_it_is_in_use(
    keys: NodeKeys, tmp_path: Path
) -> None:
    first = keys.own_publics()
    assert not keys.rotate(NOW_MS + KEY_LIFE_MS - 2 * ANNOUNCE_MS)
    late_ms = NOW_MS + KEY_LIFE_MS + 1
    assert keys.rotate(late_ms)
    keys.save()
    old, new = keys.own_publics()
    assert [old] == first
    assert {old, new} <= keys.keyring.publics
    assert signed_with(keys, late_ms) == key_id(old), "others have to know the new one first"
    assert not keys.retire({key_id(old)}, late_ms), "announced, so it stays"

    signing_ms = late_ms + ANNOUNCE_MS
    kept = keys.signer(late_ms).sign(entry())
    assert signed_with(keys, signing_ms) == key_id(new)
    assert not is_good(keys, kept, signing_ms)
    assert is_good(keys, keys.signer(signing_ms).sign(entry()), signing_ms)
    assert not keys.retire({key_id(old), key_id(new)}, signing_ms + 1)
    assert keys.keyring.verify(kept)

    again = NodeKeys(tmp_path / "identity.json", signing_ms)
    assert again.own_publics() == [old, new]
    assert keys.retire({key_id(new)}, signing_ms + 1)
    assert keys.own_publics() == [new]
    assert not keys.keyring.knows(kept)


def test_a_clock_that_goes_back_takes_no_key_away(keys: NodeKeys) -> None:
    keys.rotate(NOW_MS + KEY_LIFE_MS + 1)
    both = keys.own_publics()
    assert not keys.rotate(NOW_MS - DAY_MS)
    assert signed_with(keys, NOW_MS - DAY_MS) == key_id(both[0])
    assert keys.own_publics() == both


def test_keys_of_other_nodes_count_while_they_are_named_and_a_week_longer(keys: NodeKeys, tmp_path: Path) -> None:
    other = NodeKeys(tmp_path / "other.json", NOW_MS)
    theirs = other.signer(NOW_MS).sign(entry())
    assert not keys.keyring.knows(theirs)
    assert not is_good(keys, theirs, NOW_MS)
    assert keys.learn(other.own_publics(), NOW_MS)
    assert not keys.learn(other.own_publics(), NOW_MS + 1000), "known, and noted"
    assert keys.keyring.verify(theirs)
    assert is_good(keys, theirs, NOW_MS)
    keys.save()
    again = NodeKeys(tmp_path / "identity.json", NOW_MS)
    assert again.keyring.verify(theirs)

    assert again.learn(other.own_publics(), NOW_MS + 6 * DAY_MS)
    week_ms = NOW_MS + 6 * DAY_MS + RETIRE_MS
    used = {key_id(one) for one in other.own_publics()}
    assert not is_good(again, theirs, week_ms)
    assert not again.retire(used, week_ms)
    assert again.keyring.verify(theirs), "still in use"
    assert again.retire((), week_ms)
    assert not again.keyring.knows(theirs)


def test_what_is_no_key_and_what_is_its_own_is_not_learned(keys: NodeKeys) -> None:
    before = keys.keyring.publics
    assert not keys.learn([b"", b"short", b"x" * 33, *keys.own_publics()], NOW_MS)
    assert keys.keyring.publics == before


def test_of_two_secrets_the_older_holds(keys: NodeKeys, tmp_path: Path) -> None:
    mine, since_ms = keys.secret
    assert not keys.adopt(b"n" * 32, since_ms + 1)
    assert not keys.adopt(mine, since_ms)
    assert not keys.adopt(b"short", since_ms - 1)
    sealed = keys.seal(NOW_MS).seal(b"news", b"n" * 12)
    assert keys.adopt(b"o" * 32, since_ms - 1)
    assert keys.secret == (b"o" * 32, since_ms - 1)
    assert keys.seal(NOW_MS).open(sealed) is None
    keys.save()
    assert NodeKeys(tmp_path / "identity.json", NOW_MS).secret == (b"o" * 32, since_ms - 1)


def test_two_nodes_that_made_theirs_at_once_agree(tmp_path: Path) -> None:
    one, two = (NodeKeys(tmp_path / name, NOW_MS) for name in ("one", "two"))
    first, second = one.secret, two.secret
    assert one.adopt(*second) != two.adopt(*first)
    assert one.secret == two.secret


def test_keys_of_datagrams_change_and_overlap(keys: NodeKeys) -> None:
    later_ms = NOW_MS + DATAGRAM_KEY_LIFE_MS
    now, later = keys.seal(NOW_MS), keys.seal(later_ms)
    assert keys.seal(NOW_MS + 1).current == now.current == number_at(NOW_MS)
    assert later.open(now.seal(b"x", b"n" * 12)) == b"x"
    assert now.open(later.seal(b"x", b"n" * 12)) == b"x"
    assert keys.seal(NOW_MS + 3 * DATAGRAM_KEY_LIFE_MS).open(now.seal(b"x", b"n" * 12)) is None


def test_only_so_many_keys_of_others_are_remembered(keys: NodeKeys) -> None:
    keys.learn([bytes([n // 256, n % 256]) * 16 for n in range(2000)], NOW_MS)
    assert len(keys.keyring.publics) <= 100
    assert set(keys.own_publics()) <= keys.keyring.publics
