import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.peer import (
    MAX_ENTRY_BYTES,
    MAX_TOMBSTONE_BYTES,
    SIGNATURE_BYTES,
    TOMBSTONE_LIFE_MS,
    Capability,
    Entry,
    Limits,
    Rank,
    decode_entry,
    owner_of,
    pack_entry,
    unpack_entry,
    with_signature,
)

NOW_MS = 1_700_000_000_000


def entry(**fields: object) -> Entry:
    return Entry(**({"agent_id": "summarizer-01", "gen": NOW_MS, "ver": 1, "rank": Rank.UP} | fields))


def full_entry() -> Entry:
    capability = Capability(
        name="summarize", aliases=("text.summarize",), attributes={"language": ["zh", "en"]}, timeout_s=60.0
    )
    return entry(
        cluster="local",
        address="10.0.3.7:7071",
        version="1.4.2",
        capabilities=(capability,),
        limits=Limits(max_concurrency=4, weight=2.0),
        flags=("draining", "unfit"),
    )


def test_an_entry_survives_the_wire_with_its_digest() -> None:
    read = decode_entry(full_entry().encoded)
    assert read == full_entry()
    assert read.digest == full_entry().digest
    assert read.draining
    assert read.unfit


def test_the_order_of_attributes_does_not_change_the_digest() -> None:
    a = entry(capabilities=(Capability(name="x", attributes={"a": ["1"], "b": ["2"]}),))
    b = entry(capabilities=(Capability(name="x", attributes={"b": ["2"], "a": ["1"]}),))
    assert a.digest == b.digest


def test_a_reader_keeps_the_bytes_of_a_newer_writer() -> None:
    fields = msgspec.json.decode(full_entry().encoded)
    fields[8][0]["not_known_yet"] = True
    newer = msgspec.json.encode([*fields, {"also": "new"}])
    read = decode_entry(newer)
    assert read == full_entry()
    assert read.encoded == newer
    assert read.digest != full_entry().digest


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        (entry(gen=1, ver=9, rank=Rank.DOWN), entry(gen=2, ver=0, rank=Rank.JOINING)),
        (entry(ver=1, rank=Rank.DOWN), entry(ver=2, rank=Rank.UP)),
        (entry(rank=Rank.JOINING), entry(rank=Rank.UP)),
        (entry(rank=Rank.UP), entry(rank=Rank.SUSPECT)),
        (entry(rank=Rank.SUSPECT), entry(rank=Rank.DOWN)),
        (entry(rank=Rank.DOWN), entry().tombstone(NOW_MS)),
        (entry().tombstone(NOW_MS), entry().tombstone(NOW_MS, Rank.REVOKED)),
        (entry().tombstone(NOW_MS), entry(gen=NOW_MS + 1)),
    ],
)
def test_order(smaller: Entry, larger: Entry) -> None:
    assert smaller.order < larger.order


def test_a_tombstone_is_small_and_carries_its_deadline() -> None:
    longest = entry(agent_id="a" * 63, ver=2**53 - 1).tombstone(NOW_MS)
    assert len(longest.encoded) <= MAX_TOMBSTONE_BYTES
    assert longest.expires_ms == NOW_MS + TOMBSTONE_LIFE_MS
    assert decode_entry(longest.encoded) == longest


@pytest.mark.parametrize("agent_id", ["", "a" * 64, "-a", "a/b", "a b", "ä", "a\n", "@a"])
def test_bad_agent_ids(agent_id: str) -> None:
    with pytest.raises(ValueError, match="not an agent id"):
        entry(agent_id=agent_id)


def test_parts_that_do_not_fit_together() -> None:
    with pytest.raises(ValueError, match="tombstone"):
        entry(rank=Rank.LEFT)
    with pytest.raises(ValueError, match="tombstone"):
        entry(expires_ms=NOW_MS)
    with pytest.raises(ValueError, match="sorted"):
        entry(flags=("unfit", "draining"))


def test_labels() -> None:
    assert [rank.label for rank in Rank] == ["joining", "up", "suspect", "down", "left", "revoked"]


@given(st.binary(max_size=300))
def test_decoding_anything_raises_only_value_errors(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"entry|tombstone"):
        decode_entry(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=12))
def test_decoding_any_json_array_gives_an_entry_or_a_value_error(values: list[object]) -> None:
    data = msgspec.json.encode(values) if all(_fits(v) for v in values) else b"[]"
    try:
        read = decode_entry(data)
    except ValueError:
        return
    assert read.encoded == data


def _fits(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except (ValueError, OverflowError):
        return False
    return True


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[" * MAX_ENTRY_BYTES,
        b" " * (MAX_ENTRY_BYTES + 1),
        b'["\\ud800",1,1,1]',
        b'["a",1e400,1,1]',
        b'["a",-1,1,1]',
        b'["a",1,1,9]',
        b'["a",9007199254740992,1,1]',
        b'["a",1,1,4]',
        b'["a",1,1,4,5,"' + b"x" * 200 + b'"]',
        b'["a",1,1,1,null,"","","",[],{"weight":0}]',
    ],
)
def test_bad_entries(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"entry|tombstone"):
        decode_entry(data)


def test_a_signature_travels_beside_the_bytes() -> None:
    plain = full_entry()
    signed = with_signature(decode_entry(plain.encoded), bytes(range(SIGNATURE_BYTES)))
    assert (signed.digest, signed.order) == (plain.digest, plain.order)
    for one in (plain, signed):
        back = unpack_entry(pack_entry(one))
        assert (back, back.signature, back.encoded) == (one, one.signature, one.encoded)
    assert msgspec.structs.replace(signed, ver=9).signature == b"", "what changes has to be signed again"


@given(st.binary(max_size=300))
def test_unpacking_anything_raises_only_value_errors(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        unpack_entry(data)


def test_an_owner_is_named_without_giving_away_its_instance() -> None:
    assert owner_of("a" * 32) != owner_of("b" * 32)
    assert len(owner_of("a" * 32)) == 16
    assert entry(owner=owner_of("x")).digest != entry().digest


def test_who_leaves_has_a_new_version_and_who_is_lost_has_not() -> None:
    live = entry(ver=4)
    lost, left = live.tombstone(0), live.tombstone(0, ver=5)
    assert live.order < lost.order < left.order
