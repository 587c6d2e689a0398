import msgspec

from reach_core.keyring import Signer
from reach_core.messages import MeshInfo
from reach_sidecar.membership.facts import MeshFacts

A, B, C = (Signer(bytes([n]) * 32).public for n in (1, 2, 3))


def info(version: int, *keys: bytes, **fields) -> MeshInfo:
    return MeshInfo(version=version, keys=list(keys), mesh_keys={7: b"k" * 32}, mesh_key=7, **fields)


def test_keys_of_all_nodes_count_together() -> None:
    facts = MeshFacts(lambda aliases: None)
    assert not facts.is_known
    assert facts.keys is None
    facts.take("one", info(5, A, B), 0.0)
    facts.take("two", info(3, C), 0.0)
    assert facts.is_known
    assert facts.keyring.publics == {A, B, C}
    assert (facts.version_of("one"), facts.version_of("two"), facts.version_of("three")) == (5, 3, 0)
    assert facts.keys is not None


def test_a_key_that_nobody_names_any_more_counts_for_a_while() -> None:
    facts = MeshFacts(lambda aliases: None)
    facts.take("one", info(1, A), 0.0)
    assert not facts.let_go(100.0, 60.0)
    facts.take("one", info(2, B), 100.0)
    assert facts.keyring.publics == {A, B}
    assert not facts.let_go(159.0, 60.0)
    facts.take("one", info(3, B), 159.0)  # says the same again: that is no reason to wait longer
    assert facts.let_go(160.0, 60.0)
    assert facts.keyring.publics == {B}
    assert not facts.let_go(500.0, 60.0)


def test_a_key_that_is_named_again_stays() -> None:
    facts = MeshFacts(lambda aliases: None)
    facts.take("one", info(1, A), 0.0)
    facts.take("one", info(2, B), 1.0)
    facts.take("two", info(1, A), 2.0)
    facts.let_go(1000.0, 60.0)
    assert facts.keyring.publics == {A, B}


def test_one_that_is_too_old_to_say_anything_says_nothing() -> None:
    facts = MeshFacts(lambda aliases: None)
    facts.take("old", MeshInfo(version=0), 0.0)
    assert not facts.is_known
    facts.take("one", info(1, A), 0.0)
    assert (facts.signs("one"), facts.signs("not.asked"), facts.signs("old")) == (True, True, False)
    facts.take("old", info(1, B), 0.0)  # it was upgraded
    assert facts.signs("old")


def test_aliases_are_told_when_they_change() -> None:
    told = []
    facts = MeshFacts(told.append)
    facts.take_aliases({})
    facts.take("one", info(1, A, aliases={"x": ["y"]}), 0.0)
    facts.take("one", info(2, A, aliases={"x": ["y"]}), 0.0)
    facts.take_aliases({"x": ["z"]})
    assert told == [{"x": ["y"]}, {"x": ["z"]}]


def test_what_was_saved_comes_back_for_the_nodes_that_still_count() -> None:
    facts = MeshFacts(lambda aliases: None)
    facts.take("one", info(5, A, aliases={"x": ["y"]}), 0.0)
    facts.take("two", info(6, B), 0.0)
    saved = facts.saved()
    saved["three"] = msgspec.Raw(b'{"not": "an info"}')
    again = MeshFacts(lambda aliases: None)
    again.restore(saved, ["one", "three", "four"], 0.0)
    assert again.keyring.publics == {A}
    assert (again.version_of("one"), again.version_of("two"), again.version_of("three")) == (5, 0, 0)
    assert again.keys is not None


def test_keys_without_the_one_to_send_with_are_no_use() -> None:
    facts = MeshFacts(lambda aliases: None)
    facts.take("one", MeshInfo(version=1, mesh_keys={7: b"k" * 32}, mesh_key=8), 0.0)
    assert facts.keys is None
    facts.take("one", MeshInfo(version=2, mesh_keys={7: b"k" * 32, 8: b"short"}, mesh_key=7), 0.0)
    assert facts.keys is not None
