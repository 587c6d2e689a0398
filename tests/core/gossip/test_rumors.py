import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.gossip.datagram import NEWS, Datagram
from reach_core.gossip.rumors import Rumors, rounds
from reach_core.messages import unpack_entries
from reach_core.peer import Entry, Rank


def entry(agent_id: str, ver: int = 1, size: int = 0) -> Entry:
    return Entry(agent_id=agent_id, gen=1, ver=ver, rank=Rank.UP, address="h:1", version="x" * size)


def told(datagrams: list[Datagram]) -> list[str]:
    """Whom these are about, in their order."""
    return [one.agent_id for datagram in datagrams for one in unpack_entries(datagram.entries)[0]]


@pytest.mark.parametrize(
    ("agents", "expected"),
    [(0, 0), (1, 4), (9, 4), (10, 8), (99, 8), (100, 12), (999, 12), (1_000, 16), (9_999, 16), (10_000, 20), (20_000, 20)],
)
def test_rounds(agents: int, expected: int) -> None:
    assert rounds(agents) == expected


def test_each_piece_of_news_is_told_in_so_many_rounds_and_no_more() -> None:
    rumors = Rumors()
    rumors.add(entry("a"), 3)
    rumors.add(entry("b"), 1)
    assert [sorted(told(rumors.next("me"))) for _ in range(4)] == [["a", "b"], ["a"], ["a"], []]
    assert not rumors


def test_newer_news_of_an_agent_takes_the_place_of_older() -> None:
    rumors = Rumors()
    rumors.add(entry("a", 1), 5)
    rumors.next("me")
    rumors.add(entry("a", 2), 2)
    assert len(rumors) == 1
    assert [unpack_entries(one.entries)[0][0].ver for _ in range(3) for one in rumors.next("me")] == [2, 2]


def test_what_was_told_least_goes_first_when_not_all_fit() -> None:
    rumors = Rumors()
    for number in range(40):
        rumors.add(entry(f"a{number}", size=400), 5)
    first = told(rumors.next("me", datagrams=2))
    second = told(rumors.next("me", datagrams=2))
    assert len(first) == len(second) == 4
    assert not set(first) & set(second)


def test_fresh_only_is_what_was_never_told() -> None:
    rumors = Rumors()
    rumors.add(entry("old"), 5)
    rumors.next("me")
    rumors.add(entry("new"), 5)
    assert told(rumors.next("me", fresh_only=True)) == ["new"]
    assert rumors.next("me", fresh_only=True) == []


@pytest.mark.parametrize(("entries", "notices", "expected"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (1, 3, 3), (3, 1, 3)])
def test_there_is_something_to_tell_until_the_last_round(entries: int, notices: int, expected: int) -> None:
    rumors = Rumors()
    rumors.add(entry("a"), entries)
    rumors.note(7, notices)
    counted = 0
    while rumors:
        assert rumors.next("me")
        counted += 1
    assert counted == expected


def test_it_says_whether_anything_was_never_told() -> None:
    rumors = Rumors()
    found = [rumors.has_fresh]
    rumors.add(entry("a"), 5)
    found.append(rumors.has_fresh)
    rumors.next("me", fresh_only=True)
    found.append(rumors.has_fresh)
    rumors.note(7, 5)
    found.append(rumors.has_fresh)
    rumors.next("me", fresh_only=True)
    found.append(rumors.has_fresh)
    assert found == [False, True, False, True, False]


def test_what_is_not_true_any_more_can_be_dropped() -> None:
    rumors = Rumors()
    for name in ("a", "b", "c"):
        rumors.add(entry(name), 5)
        rumors.next("me")
    rumors.keep(lambda one: one.agent_id != "b")
    assert sorted(told(rumors.next("me"))) == ["a", "c"]


def test_what_is_dropped_is_told_no_more() -> None:
    rumors = Rumors()
    rumors.add(entry("a"), 5)
    rumors.drop("a")
    rumors.drop("never there")
    rumors.add(entry("b"), 0)
    assert not rumors
    assert rumors.next("me") == []


def test_beyond_its_bound_what_was_told_the_most_goes() -> None:
    rumors = Rumors(most=3)
    for name in ("a", "b"):
        rumors.add(entry(name), 9)
    rumors.next("me")
    for name in ("c", "d"):
        rumors.add(entry(name), 9)
    assert len(rumors) == 3
    assert {"c", "d"} < set(told(rumors.next("me")))


def test_a_notice_goes_with_any_news_and_alone_if_there_is_none() -> None:
    rumors = Rumors()
    assert rumors.note(7, 2)
    assert not rumors.note(7, 2)
    assert not rumors.note(6, 2)
    rumors.add(entry("a"), 1)
    first, second, third = (rumors.next("me") for _ in range(3))
    assert [(one.kind, one.notice, len(one.entries)) for one in first] == [(NEWS, 7, 1)]
    assert [(one.kind, one.notice, len(one.entries)) for one in second] == [(NEWS, 7, 0)]
    assert third == []
    assert not rumors


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4), st.integers(0, 900)), max_size=60))
def test_whatever_is_added_is_told_as_often_as_it_was_to_be(added: list[tuple[int, int, int]]) -> None:
    rumors = Rumors()
    expected: dict[str, int] = {}
    for number, times, size in added:
        rumors.add(entry(f"a{number}", size=size), times)
        expected[f"a{number}"] = times
    counted: dict[str, int] = {}
    for _ in range(400):
        for name in told(datagrams := rumors.next("me")):
            counted[name] = counted.get(name, 0) + 1
        if not datagrams:
            break
    assert counted == expected
