import itertools
from math import ceil
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reach_core.gossip import compare
from reach_core.gossip.compare import (
    CompareError,
    Differences,
    Opening,
    Transfer,
    Transferred,
    decode,
    decode_question,
    differences,
    encode,
    is_all,
    opening,
    push,
    transfer,
    transferred,
)
from reach_core.messages import unpack_entries
from reach_core.peer import SIGNATURE_BYTES, TOMBSTONE_LIFE_MS, Entry, Rank, with_signature
from reach_core.table import PeerTable, bucket_of

NOW_MS = 1_700_000_000_000


def entry(number: int, ver: int = 1, *, gone: bool = False, size: int = 0, signed: bool = True) -> Entry:
    live = Entry(agent_id=f"agent-{number}", gen=NOW_MS, ver=ver, rank=Rank.UP, address="h:1", version="x" * size)
    made = live.tombstone(NOW_MS) if gone else live
    return with_signature(made, bytes(range(SIGNATURE_BYTES))) if signed else made


def in_one_bucket(count: int) -> list[Entry]:
    """Agents who all chose names that fall together."""
    numbers = (number for number in itertools.count() if bucket_of(f"agent-{number}") == 7)
    return [entry(number) for number in itertools.islice(numbers, count)]


def table_of(*entries: Entry) -> PeerTable:
    table = PeerTable()
    table.merge(entries, NOW_MS)
    return table


def exchange(one: PeerTable, other: PeerTable, random: Random) -> bool:
    """One comparison as it goes over the wire, within its bounds; True if it mended everything."""
    asked = decode_question(encode(opening(one, "one")))
    assert isinstance(asked, Opening)
    found = decode(Differences, encode(differences(other, asked, random)))
    if found.same:
        return True
    given_ = decode_question(data := encode(transfer(one, found, "one", random)))
    assert isinstance(given_, Transfer)
    assert len(data) <= compare.MAX_BYTES
    other.merge(unpack_entries(given_.entries)[0], NOW_MS)
    got = decode(Transferred, data := encode(transferred(other, given_)))
    assert len(data) <= compare.MAX_BYTES
    one.merge(unpack_entries(got.entries)[0], NOW_MS)
    return is_all(found, given_, got)


def test_equal_tables_cost_one_question() -> None:
    one, other = table_of(*map(entry, range(100))), table_of(*map(entry, range(100)))
    assert differences(other, opening(one, "one"), Random(1)) == Differences(same=True)


def test_both_sides_end_up_with_both() -> None:
    one = table_of(entry(1, 2), entry(2), entry(3), entry(4, gone=True))
    other = table_of(entry(1), entry(2, 5), entry(4), entry(5))
    assert exchange(one, other, Random(1))
    assert one.hash == other.hash
    assert {e.agent_id: e.ver for e in one} == {"agent-1": 2, "agent-2": 5, "agent-3": 1, "agent-5": 1}
    assert one.get("agent-4").is_tombstone  # type: ignore[union-attr]


def test_only_what_differs_is_sent() -> None:
    one = table_of(*map(entry, range(5_000)))
    other = table_of(*map(entry, range(5_000)), entry(77, 2))
    found = differences(other, opening(one, "one"), Random(1))
    assert (found.differing, len(found.buckets)) == (1, 1)
    asked = transfer(one, found, "one", Random(1))
    assert (asked.entries, asked.want) == ((), ("agent-77",))


def test_a_note_of_the_owners_own_is_never_offered() -> None:
    one, other = table_of(entry(1, signed=False), entry(2)), table_of()
    exchange(one, other, Random(1))
    assert [e.agent_id for e in other] == ["agent-2"]


def test_a_note_of_the_answering_sides_own_is_not_wanted_again_and_again() -> None:
    one, other = table_of(entry(1)), table_of(entry(1, gone=True, signed=False), entry(2))
    assert exchange(one, other, Random(1)), "all that can be mended is"
    assert sorted(e.agent_id for e in one) == ["agent-1", "agent-2"]


@pytest.mark.parametrize(("mine", "theirs"), [(261, 0), (0, 261), (261, 261), (501, 499), (1, 501)])
def test_a_bucket_that_is_too_full_is_mended_part_by_part(mine: int, theirs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "MAX_HINTS", 200)
    entries = in_one_bucket(mine + theirs)
    one, other = table_of(*entries[:mine]), table_of(*entries[mine:])
    random = Random(5)
    for _ in range(60):
        if one.hash == other.hash:
            break
        exchange(one, other, random)
    assert one.hash == other.hash
    assert len(one) == len(entries)


def test_a_part_of_a_bucket_says_of_which_agents_it_speaks() -> None:
    entries = in_one_bucket(compare.MAX_HINTS + 10)
    other = table_of(*entries)
    asked = opening(table_of(), "one")
    names = sorted(e.agent_id for e in entries)
    counted = dict.fromkeys(names, 0)
    for seed in range(40):
        found = differences(other, asked, Random(seed))
        assert (found.differing, len(found.buckets), len(found.orders)) == (1, 1, compare.MAX_HINTS)
        assert found.is_part
        assert {hint.agent_id for hint in found.orders} == {name for name in names if found.covers(name)}
        for hint in found.orders:
            counted[hint.agent_id] += 1
    assert min(counted.values()) >= 5, "the first and the last are looked at as well"


def test_a_tombstone_that_the_other_has_forgotten_does_not_come_back() -> None:
    """One clock is behind: it still offers what is over for the other, who takes nothing, until it forgets it, too."""
    over_ms = NOW_MS + TOMBSTONE_LIFE_MS
    behind, ahead = table_of(entry(1, gone=True), entry(2)), table_of(entry(1, gone=True), entry(2))
    ahead.expire(over_ms)
    for one, other in ((behind, ahead), (ahead, behind)):
        found = differences(other, opening(one, "one"), Random(1))
        asked = transfer(one, found, "one", Random(1))
        offered, _ = unpack_entries([*asked.entries, *transferred(other, asked).entries])
        assert [e.agent_id for e in offered] == ["agent-1"]
        assert ahead.merge(offered, over_ms) == []
    behind.expire(over_ms)
    assert differences(ahead, opening(behind, "one"), Random(1)).same


def test_entries_that_did_not_fit_are_not_forgotten() -> None:
    one = table_of(*(entry(n, size=3_900) for n in range(150)))
    everything = Differences(differing=256, buckets=tuple(range(256)))
    told = transfer(one, everything, "one", Random(1))
    assert 100 < len(told.entries) < 150
    assert not is_all(everything, told, Transferred())


@pytest.mark.parametrize("kind", ["many", "large"])
def test_large_differences_are_mended_in_several_bounded_exchanges(kind: str) -> None:
    entries = [entry(n) for n in range(3_000)] if kind == "many" else [entry(n, size=3_500) for n in range(400)]
    one, other = table_of(*entries[::2]), table_of(*entries[1::2])
    random = Random(3)
    times = 0
    while one.hash != other.hash:
        times += 1
        assert times < 40, "it does not come to an end"
        exchange(one, other, random)
    assert len(one) == len(entries)


def test_news_can_be_told_in_the_same_way() -> None:
    asked = decode_question(encode(push([entry(n) for n in range(500)], "control")))
    assert isinstance(asked, Transfer)
    assert (len(asked.entries), asked.want) == (compare.MAX_ENTRIES, ())


def test_what_is_wanted_and_not_there_is_left_out() -> None:
    assert transferred(table_of(entry(1)), Transfer(sender="a", want=("agent-1", "unknown"))).entries == tuple(
        transferred(table_of(entry(1)), Transfer(sender="a", want=("agent-1",))).entries
    )


@pytest.mark.parametrize("kind", [Differences, Transferred])
@given(data=st.binary(max_size=300))
def test_decoding_anything_raises_only_compare_errors(kind: type[compare.Step], data: bytes) -> None:
    for read in (lambda: decode(kind, data), lambda: decode_question(data)):
        try:
            read()
        except CompareError:
            continue


def test_one_kind_is_not_taken_for_another() -> None:
    with pytest.raises(CompareError):
        decode(Differences, encode(Transferred()))
    with pytest.raises(CompareError):
        decode_question(encode(Transferred()))


def test_another_protocol_and_too_much_are_refused() -> None:
    with pytest.raises(CompareError, match="protocol 2"):
        decode_question(encode(Transfer(protocol=2, sender="a")))
    with pytest.raises(CompareError, match="allowed"):
        decode(Transferred, b"x" * (compare.MAX_BYTES + 1))


def _content(draw: st.DrawFn) -> list[Entry]:
    return [entry(number, ver, gone=gone) for number, ver, gone in draw(
        st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.booleans()), max_size=300))]


@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_any_two_tables_become_equal_in_as_few_exchanges_as_their_bounds_allow(data: st.DataObject, seed: int) -> None:
    one, other = (table_of(*data.draw(st.composite(_content)())) for _ in range(2))
    random = Random(seed)
    differing = {bucket_of(e.agent_id) for e in (*one.entries(True), *other.entries(True))
                 if one.get(e.agent_id) != other.get(e.agent_id)}
    lacking = [sum(1 for e in giver.entries(True) if (known := taker.get(e.agent_id)) is None or e.order > known.order)
               for giver, taker in ((one, other), (other, one))]
    most = ceil(len(differing) / compare.MAX_BUCKETS) + sum(number // compare.MAX_ENTRIES for number in lacking)
    for _ in range(most):
        exchange(one, other, random)
    assert one.hash == other.hash
