import tracemalloc

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reach_core.gossip.datagram import (
    ACK,
    MAX_DATAGRAM,
    MAX_NEWS,
    MAX_PLAIN,
    NEWS,
    Datagram,
    DatagramError,
    Hint,
    acknowledgement,
    decode,
    encode,
    hint_of,
    pack,
    room_for,
)
from reach_core.gossip.seal import OVERHEAD, MeshKeys
from reach_core.peer import Capability, Entry, Rank, pack_entry, unpack_entry, with_signature

NOW_MS = 1_700_000_000_000
LARGEST = 2**53 - 1
SIGNATURE = bytes(range(72))


def entry(agent_id: str = "a", size: int = 0, **changes: object) -> Entry:
    """One whose `version` has `size` characters."""
    made = Entry(agent_id=agent_id, gen=NOW_MS, ver=1, rank=Rank.UP, address="10.0.0.1:7072", version="v" * size)
    return with_signature(msgspec.structs.replace(made, **changes), SIGNATURE)


senders = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._~:-]{0,62}", fullmatch=True)
counts = st.integers(0, LARGEST)
hints = st.builds(Hint, senders, counts, counts, st.integers(0, 255), st.binary(min_size=16, max_size=16))
datagrams = st.builds(
    Datagram,
    st.sampled_from([NEWS, ACK]),
    senders,
    counts,
    counts,
    st.lists(st.binary(max_size=150), max_size=5).map(tuple),
    st.lists(hints, max_size=3).map(tuple),
)


@given(datagrams)
def test_what_was_written_is_read(one: Datagram) -> None:
    assert decode(encode(one)) == one


@given(st.binary(max_size=1500))
@example(encode(acknowledgement(1, "a", 2)))
def test_any_bytes_are_a_datagram_or_refused(data: bytes) -> None:
    try:
        one = decode(data)
    except DatagramError:
        return
    assert decode(encode(one)) == one


@given(datagrams, st.integers(0, MAX_PLAIN), st.binary(min_size=1, max_size=4))
def test_a_datagram_with_some_bytes_changed_is_a_datagram_or_refused(one: Datagram, at: int, put: bytes) -> None:
    data = encode(one)
    try:
        decode(data[: at % len(data)] + put + data[at % len(data) + len(put) :])
    except DatagramError:
        pass


def raw(*fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


HINT = ("a", 1, 1, 1, b"d" * 16)


@pytest.mark.parametrize(
    ("fields", "is_good"),
    [
        ((NEWS, "a"), True),
        ((ACK, "a", 1), True),
        ((NEWS, "a", 0, 0, (), (), "a field of later"), True),
        ((NEWS, "a" * 63, LARGEST, LARGEST, (b"",), (HINT,)), True),
        ((), False),
        ((NEWS,), False),
        ((-1, "a"), False),
        ((2, "a"), False),
        ((True, "a"), False),
        ((0.0, "a"), False),
        ((NEWS, ""), False),
        ((NEWS, "a" * 64), False),
        ((NEWS, b"a"), False),
        ((NEWS, None), False),
        ((NEWS, "a", -1), False),
        ((NEWS, "a", LARGEST + 1), False),
        ((NEWS, "a", 0, -1), False),
        ((NEWS, "a", 0, 2**64 - 1), False),
        ((NEWS, "a", 0, 0, ("text",)), False),
        ((NEWS, "a", 0, 0, (b"",) * MAX_NEWS), True),
        ((NEWS, "a", 0, 0, (b"",) * (MAX_NEWS + 1)), False),
        ((NEWS, "a", 0, 0, (), (("a", 1, 1, 1, b"d" * 15),)), False),
        ((NEWS, "a", 0, 0, (), (("a", 1, 1, 1, b"d" * 17),)), False),
        ((NEWS, "a", 0, 0, (), (("a", 1, 1, 256, b"d" * 16),)), False),
        ((NEWS, "a", 0, 0, (), (("a", -1, 1, 1, b"d" * 16),)), False),
        ((NEWS, "a", 0, 0, (), (("", 1, 1, 1, b"d" * 16),)), False),
        ((NEWS, "a", 0, 0, (), (("a", 1, 1, 1),)), False),
        ((NEWS, "a", 0, 0, (), ((*HINT, "later"),)), True),
    ],
)
def test_each_field_has_bounds(fields: tuple[object, ...], is_good: bool) -> None:
    if is_good:
        decode(raw(*fields))
    else:
        with pytest.raises(DatagramError):
            decode(raw(*fields))


@pytest.mark.parametrize("data", [b"", b"\x00", b"junk", b"\xc0", b"\x80", raw(NEWS, "a") + b"\0", raw(NEWS, "a")[:-1]])
def test_what_is_no_datagram(data: bytes) -> None:
    with pytest.raises(DatagramError):
        decode(data)


NEWS_HEAD = raw(NEWS, "a", 0, 0)[1:]


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x96\x00\xdb\xff\xff\xff\xff",
        b"\x96" + NEWS_HEAD + b"\xdd\xff\xff\xff\xff",
        b"\x96" + NEWS_HEAD + b"\x91\xc6\xff\xff\xff\xff",
        b"\x96" + NEWS_HEAD + b"\x90\xdd\xff\xff\xff\xff",
        b"\x96" + NEWS_HEAD + b"\x90\x91\xdd\xff\xff\xff\xff",
        b"\x97" + NEWS_HEAD + b"\x90\x90\xdd\xff\xff\xff\xff",
        b"\x97" + NEWS_HEAD + b"\x90\x90\xc9\xff\xff\xff\xff\x01",
        b"\x97" + NEWS_HEAD + b"\x90\x90" + b"\x91" * 1100,
        b"\x91" * MAX_PLAIN,
        bytes(MAX_PLAIN + 1),
        bytes(1024 * 1024),
    ],
)
def test_no_bytes_take_much_memory(data: bytes) -> None:
    """Also those that promise four billion elements, or are nested a thousand deep."""
    with pytest.raises(DatagramError):
        decode(data)  # the first error of a kind imports and caches
    tracemalloc.start()
    try:
        with pytest.raises(DatagramError):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()


@given(datagrams, st.binary(min_size=1200, max_size=1201))
def test_one_that_is_too_long_is_refused_before_it_is_read(one: Datagram, more: bytes) -> None:
    with pytest.raises(DatagramError, match="more than fit"):
        decode(encode(one) + more)


@given(
    st.lists(st.tuples(senders, st.integers(0, 1300)), max_size=80),
    senders,
    counts,
    counts,
)
def test_whatever_is_packed_fits_and_is_from_the_front(
    wanted: list[tuple[str, int]], sender: str, notice: int, number: int
) -> None:
    entries = [entry(agent_id, size) for agent_id, size in wanted]
    one, taken = pack(entries, sender, notice, number)
    data = encode(one)
    assert len(data) <= MAX_PLAIN
    assert decode(data) == one
    assert (one.kind, one.sender, one.notice, one.number) == (NEWS, sender, notice, number)
    assert taken == len(one.entries) + len(one.hints)
    assert (taken > 0) == bool(entries)
    told = entries[:taken]
    too_big = [e for e in told if len(pack_entry(e)) + 3 > room_for(sender)]
    assert one.hints == tuple(hint_of(e) for e in too_big)
    assert [unpack_entry(packed) for packed in one.entries] == [e for e in told if e not in too_big]
    if taken < min(len(entries), MAX_NEWS):  # and no room was left that would have been enough
        assert len(data) + len(pack_entry(entries[taken])) + 3 + 60 > MAX_PLAIN or entries[taken] in too_big


@pytest.mark.parametrize("sender", ["a", "s" * 63])
def test_exactly_what_there_is_room_for_goes_whole(sender: str) -> None:
    bare = len(pack_entry(entry(size=100))) - 100
    largest = entry(size=room_for(sender) - 3 - bare)
    one, taken = pack([largest], sender, LARGEST, LARGEST)
    assert (taken, len(one.entries), len(one.hints)) == (1, 1, 0)
    assert MAX_PLAIN - 8 <= len(encode(one)) <= MAX_PLAIN
    one, taken = pack([entry(size=room_for(sender) - 2 - bare)], sender, LARGEST, LARGEST)
    assert (taken, len(one.entries), len(one.hints)) == (1, 0, 1)


def test_a_sealed_datagram_of_any_news_stays_within_the_bytes_of_a_packet() -> None:
    one, _ = pack([entry(f"agent-{n}", 1150) for n in range(64)], "s" * 63, LARGEST, LARGEST)
    keys = MeshKeys({1: b"k" * 32}, 1)
    assert len(keys.seal(encode(one), b"n" * 12)) <= MAX_DATAGRAM
    assert MAX_PLAIN + OVERHEAD == MAX_DATAGRAM


def test_at_least_five_ordinary_entries_or_fifteen_hints_go_into_one() -> None:
    ordinary = [
        entry(f"agent-{n}", 5, cluster="default", capabilities=(Capability(name="summarize"),), owner="0f" * 8)
        for n in range(20)
    ]
    assert pack(ordinary, "control-0a1b2c3d", NOW_MS, 12)[1] >= 5
    assert pack([entry(f"agent-{n}", 2000) for n in range(20)], "control-0a1b2c3d", NOW_MS, 12)[1] >= 15


def test_a_hint_is_compared_like_the_entry_it_is_of() -> None:
    old, new = entry(), entry(ver=2)
    assert hint_of(new).order == new.order
    assert hint_of(new).order > old.order
    assert decode(encode(Datagram(NEWS, "a", 0, 0, (), (hint_of(new),)))).hints[0].order == new.order


def test_an_acknowledgement_names_the_number() -> None:
    assert decode(encode(acknowledgement(7, "a", 9))) == Datagram(ACK, "a", 7, 9)
