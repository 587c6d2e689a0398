"""The chunked coding: strict on the way in, the same whatever pieces it comes in."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.http1.body import Body
from reach_sidecar.http1.chunked import MAX_SIZE_LINE, MAX_TRAILERS, ChunkDecoder, ChunkError, frame, last_frame
from reach_sidecar.http1.message import Field, field


def decode(*pieces: bytes) -> tuple[bytes, list[Field], bytes | None]:
    """(data, trailers, what follows the end or None before it)."""
    decoder, body = ChunkDecoder(), Body()
    for number, piece in enumerate(pieces):
        rest = decoder.feed(piece, body)
        if rest is not None:
            return body.take(), body.trailers, rest + b"".join(pieces[number + 1:])
    return body.take(), body.trailers, None


def bytewise(raw: bytes) -> list[bytes]:
    return [raw[at:at + 1] for at in range(len(raw))]


@pytest.mark.parametrize(("raw", "data", "rest"), [
    (b"0\r\n\r\n", b"", b""),
    (b"5\r\nhello\r\n0\r\n\r\n", b"hello", b""),
    (b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nGET", b"hello world", b"GET"),
    (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789", b""),
    (b"a\r\n0123456789\r\n0\r\n\r\n", b"0123456789", b""),
    (b"0000000000005\r\nhello\r\n000\r\n\r\n", b"hello", b""),
    (b"5;name=value\r\nhello\r\n0;last\r\n\r\n", b"hello", b""),
    (b"5 \t;x=\"a;b\"\r\nhello\r\n0\r\n\r\n", b"hello", b""),
    (b"4\r\n\r\n\r\n\r\n0\r\n\r\n", b"\r\n\r\n", b""),
    (b"5;" + b"x" * (MAX_SIZE_LINE - 2) + b"\r\nhello\r\n0\r\n\r\n", b"hello", b""),
    (b"5\r\nhel", b"hel", None),
    (b"5\r\nhello\r", b"hello", None),
    (b"5\r\nhello\r\n0\r\n", b"hello", None),
    (b"5\r\nhello\r\n0\r\nA: b\r\n", b"hello", None),
])  # fmt: skip
def test_what_is_taken(raw: bytes, data: bytes, rest: bytes | None) -> None:
    assert decode(raw) == (data, [], rest)
    assert decode(*bytewise(raw)) == (data, [], rest)


@pytest.mark.parametrize("raw", [
    b"\r\n", b"\r\nhello", b" 5\r\nhello\r\n", b"5 \r\nhello\r\n", b"+5\r\nhello\r\n", b"-5\r\nhello\r\n",
    b"0x5\r\nhello\r\n", b"5h\r\nhello\r\n", b"g\r\n", b"1_0\r\n", b"5,5\r\nhello\r\n", b"\"5\"\r\n", b"5\t\r\nhello\r\n",
    b"ffffffffffffffff\r\n", b"10000000000000005\r\nhello", b"0000000000000005\r\nhello\r\n", b";x\r\n", b"5\n;x\r\n",
    b"5\nhello\r\n0\r\n\r\n", b"5\rhello\r\n", b"5;a\nb\r\nhello\r\n", b"5;\0\r\nhello\r\n", b"5\r\nhello0\r\n\r\n",
    b"5\r\nhelloX\r\n0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello\rX0\r\n\r\n", b"5\r\nhello\r\r\n0\r\n\r\n",
    b"5\r\nhello\r\n\r\n0\r\n\r\n", b"4\r\nhello\r\n0\r\n\r\n", b"0\r\nno colon\r\n\r\n", b"0\r\n: x\r\n\r\n",
    b"0\r\nA : x\r\n\r\n", b"0\r\n A: x\r\n\r\n", b"0\r\nA: x\r\n y\r\n\r\n", b"0\r\nA: \0\r\n\r\n", b"0\r\nA: b\nC: d\r\n\r\n",
    b"0\r\nA: b\rC\r\n\r\n", b"0\n\r\n", b"0\r\n\n", b"\xff\r\n", b"5;" + b"x" * MAX_SIZE_LINE + b"\r\nhello\r\n",
    b"5;" + b"x" * (2 * MAX_SIZE_LINE), b"0\r\nA: " + b"x" * MAX_TRAILERS + b"\r\n\r\n",
    b"0\r\n" + (b"A: " + b"x" * 1000 + b"\r\n") * 66 + b"\r\n",
])  # fmt: skip
def test_what_is_refused(raw: bytes) -> None:
    with pytest.raises(ChunkError):
        decode(raw)
    with pytest.raises(ChunkError):
        decode(*(bytewise(raw) if len(raw) < 10_000 else [raw[at:at + 99] for at in range(0, len(raw), 99)]))


def test_trailers_are_kept_apart_and_only_those_that_may_come_late() -> None:
    raw = b"0\r\nX-Sum: 12 \t\r\nEmpty:\r\nContent-Length: 5\r\ntransfer-encoding: x\r\nHost: b\r\nTrailer: c\r\nx-sum:2\r\n\r\n"
    kept = [(b"x-sum", b"X-Sum", b"12"), (b"empty", b"Empty", b""), (b"x-sum", b"x-sum", b"2")]
    assert decode(raw) == (b"", kept, b"")
    assert decode(*bytewise(raw)) == (b"", kept, b"")


def test_a_long_trailer_may_come_in_pieces() -> None:
    raw = b"0\r\nX: " + b"v" * 20_000 + b"\r\n\r\n"
    assert decode(raw)[2] == b""
    assert decode(*[raw[at:at + 1000] for at in range(0, len(raw), 1000)])[2] == b""


def test_data_is_handed_on_before_its_chunk_is_complete() -> None:
    decoder, body = ChunkDecoder(), Body()
    assert decoder.feed(b"fffffffffffffff\r\nabc", body) is None
    assert body.take() == b"abc"
    assert decoder.feed(b"def", body) is None
    assert body.take() == b"def"


def test_frames() -> None:
    assert frame(b"x" * 17) == b"11\r\n" + b"x" * 17 + b"\r\n"
    assert last_frame([]) == b"0\r\n\r\n"
    assert last_frame([field("A", "1"), field("b", "")]) == b"0\r\nA: 1\r\nb: \r\n\r\n"


CHUNKS = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
TRAILERS = st.lists(st.sampled_from([field("A", "1"), field("X-Sum", "a b"), field("e", "")]), max_size=3)
CUTS = st.lists(st.integers(0, 400), max_size=12)


def cut(raw: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(min(place, len(raw)) for place in cuts), len(raw)]
    return [raw[start:end] for start, end in pairwise(at) if start < end]


@given(CHUNKS, TRAILERS, st.binary(max_size=20), CUTS)
def test_any_split_gives_the_same(chunks: list[bytes], trailers: list[Field], rest: bytes, cuts: list[int]) -> None:
    raw = b"".join(map(frame, chunks)) + last_frame(trailers) + rest
    assert decode(*cut(raw, cuts)) == (b"".join(chunks), trailers, rest)


MESS = st.lists(st.sampled_from([b"5", b"0", b"\r\n", b"\r", b"\n", b";", b"a: b", b"hello", b" ", b"\0", b"f" * 15]), max_size=12)


@given(st.one_of(st.binary(max_size=60), MESS.map(b"".join)), CUTS)
def test_arbitrary_bytes_decode_or_are_refused(raw: bytes, cuts: list[int]) -> None:
    def outcome(pieces: list[bytes]) -> object:
        try:
            data, trailers, rest = decode(*pieces)
        except ChunkError:
            return ChunkError
        return (data, trailers, rest) if rest is not None else "incomplete"

    whole, split = outcome([raw]), outcome(cut(raw, cuts))
    # a line that cannot become valid may be refused before its end has come
    assert whole == split or {"incomplete", ChunkError} >= {whole, split}
