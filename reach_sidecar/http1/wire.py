"""Heads as bytes on the wire."""

from reach_sidecar.http1.message import REASONS, Field

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_END = b"\r\n"  # joined to the last line it makes the empty one
_STATUS_LINES = {status: b"HTTP/1.1 %d %b" % (status, reason) for status, reason in REASONS.items()}


def request_head(method: bytes, target: bytes, headers: list[Field]) -> bytes:
    """A request's head, the empty line included."""
    lines = [b"%b %b HTTP/1.1" % (method, target)]
    lines += [name + b": " + value for _, name, value in headers]
    lines.append(_END)
    return b"\r\n".join(lines)


def response_head(status: int, reason: bytes, headers: list[Field]) -> bytes:
    """An answer's head, the empty line included."""
    known = REASONS.get(status) == reason
    lines = [_STATUS_LINES[status] if known else b"HTTP/1.1 %d %b" % (status, reason)]
    lines += [name + b": " + value for _, name, value in headers]
    lines.append(_END)
    return b"\r\n".join(lines)
