"""W3C Trace Context: what to take over, what to make, and the next hop's span.

A `traceparent` is `00-<32 hex trace id>-<16 hex span id>-<2 hex flags>`. A later version is read as far as
version 00 goes; all-zero ids are invalid. Source: W3C Trace Context, level 1 and 2.
"""

import re
from typing import NamedTuple

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_ZERO_TRACE = "0" * 32
_ZERO_SPAN = "0" * 16


class TraceContext(NamedTuple):
    """Ids in lower-case hex: 32 digits of trace, 16 of span."""

    trace_id: str
    span_id: str
    sampled: bool = True

    def header(self, span_id: str | None = None) -> bytes:
        """The `traceparent` value, from this span or from `span_id` of the same trace."""
        return f"00-{self.trace_id}-{span_id or self.span_id}-0{self.sampled:d}".encode()


def parse_traceparent(value: bytes | None) -> TraceContext | None:
    """The context in `value`, or None where it is absent or not valid."""
    if value is None:
        return None
    match = _TRACEPARENT.fullmatch(value)
    if match is None or match[1] == b"ff" or (match[1] == b"00" and match[5]):
        return None
    trace_id, span_id = match[2].decode(), match[3].decode()
    if trace_id == _ZERO_TRACE or span_id == _ZERO_SPAN:
        return None
    return TraceContext(trace_id, span_id, bool(int(match[4], 16) & 1))


def new_context(random_bits: int) -> TraceContext:
    """A new trace from 192 random bits: the caller brings the randomness."""
    text = f"{random_bits & ((1 << 192) - 1):048x}"
    return TraceContext(text[:32] if text[:32] != _ZERO_TRACE else "1".zfill(32), span_of(random_bits))


def span_of(random_bits: int) -> str:
    """A span id, 16 hex digits, from 64 random bits."""
    text = f"{random_bits & ((1 << 64) - 1):016x}"
    return text if text != _ZERO_SPAN else "1".zfill(16)
