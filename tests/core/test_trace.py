"""W3C Trace Context: what is taken over, what is not, and that what is made is valid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.trace import TraceContext, new_context, parse_traceparent, span_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_valid_one_is_taken_over() -> None:
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-01".encode()) == TraceContext(TRACE, SPAN, True)
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-00".encode()) == TraceContext(TRACE, SPAN, False)
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-03".encode()) == TraceContext(TRACE, SPAN, True), "other flags are ignored"


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert parse_traceparent(f"cc-{TRACE}-{SPAN}-01-what-comes".encode()) == TraceContext(TRACE, SPAN, True)
    assert parse_traceparent(f"cc-{TRACE}-{SPAN}-01".encode()) == TraceContext(TRACE, SPAN, True)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"00",
        f"ff-{TRACE}-{SPAN}-01".encode(),
        f"00-{TRACE}-{SPAN}-01-more".encode(),
        f"cc-{TRACE}-{SPAN}-01.more".encode(),
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE.upper()}-{SPAN}-01".encode(),
        f"00-{TRACE[:-1]}-{SPAN}-01".encode(),
        f"00-{TRACE}-{SPAN}-1".encode(),
        f" 00-{TRACE}-{SPAN}-01".encode(),
        f"00-{TRACE}-{SPAN}-01\n".encode(),
        f"00-{TRACE}-{SPAN}-01, 00-{TRACE}-{SPAN}-01".encode(),
    ],
)
def test_what_is_not_valid_is_not_taken_over(value: bytes | None) -> None:
    assert parse_traceparent(value) is None


@given(st.integers(0, (1 << 256) - 1))
def test_whatever_is_made_is_valid(random_bits: int) -> None:
    context = new_context(random_bits)
    assert parse_traceparent(context.header()) == context
    assert len(span_of(random_bits)) == 16
    assert int(span_of(random_bits), 16)


def test_no_randomness_at_all_is_still_valid() -> None:
    context = new_context(0)
    assert parse_traceparent(context.header()) == context
