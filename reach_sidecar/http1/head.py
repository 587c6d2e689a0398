"""One message head, from bytes to a value, and what it says about where its message ends.

Pure: the connection finds the end of the head and hands it over whole, so heads can be fuzzed without sockets.
llhttp is fed the lines of heads (`lines`) and never a body, so it can carry no state from one message into the next.

Refused beyond llhttp: bare LF, folded lines, control characters, no or two `Host`, any repeated or combined
`Content-Length`/`Transfer-Encoding`, a coding other than `chunked`, `Transfer-Encoding` in HTTP/1.0, HTTP/2.0
(RFC 9112 §3.2, §5, §6.1, §6.3; design §7).
"""

import functools

from reach_core.headers import named_by_connection
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.lines import LineError, is_host, read_fields, read_request_line, read_status_line
from reach_sidecar.http1.message import Field

MAX_CONTENT_LENGTH = (1 << 63) - 1

_FIRST_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~")
_connection_tokens = functools.lru_cache(maxsize=256)(named_by_connection)
_NONE_NAMED: frozenset[bytes] = frozenset()


class HeadError(Exception):
    """The head is refused: `code` names the problem, `detail` says what is wrong with it."""

    def __init__(self, code: str, detail: str, status: int | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.status = status


class Head:
    """A parsed head. For a request `method` and `target`, for a response `status` and `reason` are set.

    `index` holds the first value of each field by its folded name. `length` is the Content-Length or None,
    `upgrade` the folded protocol of an `Upgrade` that `Connection` names.
    """

    __slots__ = ("chunked", "expects_continue", "headers", "index", "keep_alive", "length", "method", "reason",
                 "status", "target", "upgrade", "version")

    def __init__(self, headers: list[Field], version: int) -> None:
        self.headers = headers
        self.index = {header[0]: header[2] for header in reversed(headers)}
        self.version = version
        self.method = b""
        self.target = b""
        self.status = 0
        self.reason = b""
        self.length: int | None = None
        self.chunked = False
        self.keep_alive = version == 11
        self.upgrade: bytes | None = None
        self.expects_continue = False


def check_bounds(data: bytes, end: int, limits: Limits) -> None:
    """Refuse what is too large or cannot become a request's head any more, before waiting for the rest of it.

    `end` is where the empty line begins in `data`, -1 while it has not come. Raises HeadError.
    """
    if data and data[0] not in _FIRST_BYTES and data != b"\r":
        raise HeadError("bad_request", "This is not how HTTP/1.1 begins; a TLS client needs a TLS port.")
    line_end = data.find(b"\r\n", 0, limits.url_bytes + 128)
    if line_end < 0 and len(data) > limits.url_bytes + 128:
        raise HeadError("uri_too_long", f"The request line is over {limits.url_bytes} bytes.")
    if (end if end >= 0 else len(data) - 3) > limits.head_bytes:
        raise HeadError("header_too_large", f"The header block is over {limits.head_bytes} bytes.")
    if end < 0 and b"\n" in data and data.count(b"\n") != data.count(b"\r\n"):
        raise HeadError("bad_request", "Lines must end with CR LF, and neither may stand alone.")


def parse_request(raw: bytes) -> Head:
    """The head of a request; `raw` ends with the empty line. Raises HeadError."""
    lines = raw[:-4].split(b"\r\n")
    try:
        method, target, version = read_request_line(lines[0])
        del lines[0]
        head = Head(read_fields(lines), version)
    except LineError as error:
        raise HeadError(error.code, error.detail) from None
    head.method = method
    head.target = target
    host = head.index.get(b"host")
    if len(head.index) != len(head.headers):
        _refuse_repeated(head, "bad_request")
    if host is None:
        if version == 11:
            raise HeadError("bad_request", "A request carries exactly one Host header.")
    elif not is_host(host):
        raise HeadError("bad_request", "The Host header is not a host and port.")
    _read_framing(head, "bad_request")
    if method == b"CONNECT" and (head.length or head.chunked):
        raise HeadError("bad_request", "CONNECT has no body: what follows its head belongs to the tunnel.")
    return head


def parse_response(raw: bytes) -> Head:
    """The head of an answer; `raw` ends with the empty line. Raises HeadError (`bad_agent_response`)."""
    lines = raw[:-4].split(b"\r\n")
    try:
        status, reason, version = read_status_line(lines[0])
        del lines[0]
        head = Head(read_fields(lines), version)
    except LineError as error:
        raise HeadError("bad_agent_response", error.detail) from None
    head.status = status
    head.reason = reason
    if len(head.index) != len(head.headers):
        _refuse_repeated(head, "bad_agent_response")
    _read_framing(head, "bad_agent_response")
    return head


def _refuse_repeated(head: Head, code: str) -> None:
    """Some field came twice. For those that frame the message, that is an attack or a defect."""
    names = [lower for lower, _, _ in head.headers]
    if code == "bad_request" and names.count(b"host") > 1:
        raise HeadError(code, "A request carries exactly one Host header.")
    if names.count(b"content-length") > 1:
        raise HeadError(code, "Content-Length must be one whole number.")
    if names.count(b"transfer-encoding") > 1:
        raise HeadError(code, "Transfer-Encoding must not be repeated.")


def _read_framing(head: Head, code: str) -> None:
    """Fill in what decides where the message ends and what becomes of its connection."""
    index = head.index
    length = index.get(b"content-length")
    coding = index.get(b"transfer-encoding")
    if coding is not None:
        _check_coding(head, coding, length, code)
        head.chunked = True
    elif length is not None:
        if not length.isdigit() or len(length) > 19:
            raise HeadError(code, "Content-Length must be one whole number.")
        head.length = int(length)
        if head.length > MAX_CONTENT_LENGTH:
            raise HeadError(code, "Content-Length is beyond any body.")
    if b"connection" in index:
        _read_connection(head)
    expect = index.get(b"expect")
    if expect is not None and expect.lower() == b"100-continue":
        head.expects_continue = head.version == 11


def _read_connection(head: Head) -> None:
    tokens = _NONE_NAMED
    for lower, _, value in head.headers:
        if lower == b"connection":
            tokens |= _connection_tokens(value)
    if head.version == 10:
        head.keep_alive = b"keep-alive" in tokens and b"close" not in tokens
        return
    head.keep_alive = b"close" not in tokens
    upgrade = head.index.get(b"upgrade")
    if upgrade and b"upgrade" in tokens:
        head.upgrade = upgrade.strip().lower()


def _check_coding(head: Head, coding: bytes, length: bytes | None, code: str) -> None:
    if length is not None:
        raise HeadError(code, "Content-Length and Transfer-Encoding must not come together.")
    if head.version == 10:
        raise HeadError(code, "HTTP/1.0 has no Transfer-Encoding.")
    if coding.lower() != b"chunked":
        if code == "bad_request":
            code = "not_implemented"
        raise HeadError(code, "The only transfer coding known here is chunked.")
