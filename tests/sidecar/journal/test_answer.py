"""Answers come out as they went in."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.journal.answer import Answer, Headers, decode_answer, encode_head

LINES = st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=9)), max_size=5).map(tuple)


@given(st.integers(100, 599), st.binary(max_size=20), LINES, st.binary(max_size=50))
def test_round_trip(status: int, reason: bytes, headers: Headers, body: bytes) -> None:
    answer = Answer(status, reason, headers, body)
    assert decode_answer(encode_head(status, reason, headers), body) == answer


@pytest.mark.parametrize("head", [b"", b"\xc1", b"\x93\x01\x02\x03", encode_head(200, b"OK", ())[:-1]])
def test_what_is_no_head(head: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_answer(head, b"")
