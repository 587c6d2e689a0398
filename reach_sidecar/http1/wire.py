"""Heads as bytes on the wire."""

from reach_sidecar.http1.message import REASONS, Field

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES = {status: b"HTTP/1.1 %d %b\r\n" % (status, reason) for status, reason in REASONS.items()}


def request_head(method: bytes, target: bytes, headers: list[Field]) -> bytes:
    """A request's head, the empty line included."""
    lines = [b"%b: %b\r\n" % (name, value) for _, name, value in headers]
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, b"".join(lines))


def response_head(status: int, reason: bytes, headers: list[Field]) -> bytes:
    """An answer's head, the empty line included."""
    lines = [b"%b: %b\r\n" % (name, value) for _, name, value in headers]
    if reason == REASONS.get(status):
        return b"%b%b\r\n" % (_STATUS_LINES[status], b"".join(lines))
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, reason, b"".join(lines))
