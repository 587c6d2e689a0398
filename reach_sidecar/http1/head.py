"""One message head, from bytes to a value: httptools cuts it up, and what llhttp lets through is refused here.

Pure: the connection finds the end of the head and hands it over whole, so heads can be fuzzed without sockets.
llhttp is fed the head alone and never the body; a fresh parser per head costs 0.4 µs and can carry no state
from one message into the next.

Refused beyond llhttp: bare LF, folded lines, control characters, no or two `Host`, any repeated or combined
`Content-Length`/`Transfer-Encoding`, a coding other than `chunked`, `Transfer-Encoding` in HTTP/1.0, HTTP/2.0
(RFC 9112 §3.2, §5, §6.1, §6.3; design §7).
"""

import functools
import re

import httptools

from reach_core.headers import named_by_connection
from reach_sidecar.http1.message import Field

MAX_CONTENT_LENGTH = (1 << 63) - 1

METHODS = frozenset({
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH", b"QUERY",
    b"PROPFIND", b"PROPPATCH", b"MKCOL", b"COPY", b"MOVE", b"LOCK", b"UNLOCK", b"SEARCH", b"REPORT",
    b"MKCALENDAR", b"MKACTIVITY", b"CHECKOUT", b"MERGE", b"NOTIFY", b"SUBSCRIBE", b"UNSUBSCRIBE", b"PURGE",
    b"LINK", b"UNLINK", b"BIND", b"REBIND", b"UNBIND", b"ACL",
})

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(rb"[\x21\x22\x24-\x7e]+")  # visible ASCII but `#`
_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+(?:%25[A-Za-z0-9._~-]+)?\])(?::[0-9]{0,5})?")
_ABSOLUTE = re.compile(rb"http://([^/?]*)", re.IGNORECASE)
# Everything a line may hold: visible characters, bytes over 0x7f, space and tab.
_TEXT = bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100)) + b"\t"
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")
# The fields that decide where a message ends and what becomes of its connection.
_FRAMING = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect"})


class HeadError(Exception):
    """The head is refused: `code` names the problem, `detail` says what is wrong with it."""

    def __init__(self, code: str, detail: str, status: int | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.status = status


class Head:
    """A parsed head. For a request `method` and `target`, for a response `status` and `reason` are set.

    `length` is the Content-Length or None, `upgrade` the folded protocol of an `Upgrade` that `Connection` names.
    """

    __slots__ = ("chunked", "connection", "expects_continue", "headers", "keep_alive", "length", "method", "reason",
                 "status", "target", "upgrade", "version")

    def __init__(self) -> None:
        self.headers: list[Field] = []
        self.method = b""
        self.target = b""
        self.status = 0
        self.reason = b""
        self.version = 11
        self.length: int | None = None
        self.chunked = False
        self.keep_alive = True
        self.connection: frozenset[bytes] = frozenset()
        self.upgrade: bytes | None = None
        self.expects_continue = False

    # -- httptools' callbacks: they only record

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_status(self, reason: bytes) -> None:
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((_LOWER[name], name, value))


class _Folded(dict[bytes, bytes]):
    """Memo of folded header names: the same two dozen come all day. Bounded against floods of made-up names."""

    def __missing__(self, name: bytes) -> bytes:
        lower = name.lower()
        if len(name) <= 64:
            if len(self) > 4096:
                self.clear()
            self[name] = lower
        return lower


_LOWER = _Folded()


def parse_request(raw: bytes) -> Head:
    """The head of a request; `raw` ends with the empty line. Raises HeadError."""
    _refuse_bad_bytes(raw)
    line_end = raw.index(b"\r\n")
    words = raw[:line_end].split(b" ")
    if len(words) != 3:
        raise HeadError("bad_request", "The request line must be `METHOD target HTTP/1.1`.")
    method, target, version = words
    if method not in METHODS or version not in _VERSIONS:
        _refuse_line(method, version)
    if not _TARGET.fullmatch(target):
        raise HeadError("bad_request", "The request target holds characters that a URL must encode.")
    _check_form(method, target)
    head = Head()
    head.version = 10 if version == b"HTTP/1.0" else 11
    parser = httptools.HttpRequestParser(head)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # the connection decides what an upgrade means
    except httptools.HttpParserError as error:
        raise HeadError("bad_request", f"The request cannot be parsed: {error}.") from None
    head.method = method
    head.target = target
    hosts = _read_framing(head, "bad_request", b" \r" in raw or b"\t\r" in raw)
    if len(hosts) != 1 and (hosts or head.version == 11):
        raise HeadError("bad_request", "A request carries exactly one Host header.")
    if hosts and not _is_host(hosts[0]):
        raise HeadError("bad_request", "The Host header is not a host and port.")
    if method == b"CONNECT" and (head.length or head.chunked):
        raise HeadError("bad_request", "CONNECT has no body: what follows its head belongs to the tunnel.")
    return head


def parse_response(raw: bytes) -> Head:
    """The head of an answer; `raw` ends with the empty line. Raises HeadError (`bad_agent_response`)."""
    _refuse_bad_bytes(raw, "bad_agent_response")
    if not raw.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")):
        raise HeadError("bad_agent_response", "The answer does not start with HTTP/1.1 or HTTP/1.0.")
    head = Head()
    head.version = 10 if raw.startswith(b"HTTP/1.0") else 11
    parser = httptools.HttpResponseParser(head)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise HeadError("bad_agent_response", f"The answer cannot be parsed: {error}.") from None
    head.status = parser.get_status_code()
    if not 100 <= head.status <= 599:
        raise HeadError("bad_agent_response", f"The answer has the status {head.status}.")
    _read_framing(head, "bad_agent_response", b" \r" in raw or b"\t\r" in raw)
    return head


def _refuse_line(method: bytes, version: bytes) -> None:
    if not _TOKEN.fullmatch(method):
        raise HeadError("bad_request", "The request line must be `METHOD target HTTP/1.1`.")
    if version not in _VERSIONS:
        raise HeadError("bad_request", "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    raise HeadError("not_implemented", f"The method {method.decode()!r} is not known here.")


@functools.lru_cache(maxsize=1024)
def _is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None


def _refuse_bad_bytes(raw: bytes, code: str = "bad_request") -> None:
    """One pass over the head: without its text only line ends may be left."""
    rest = raw.translate(None, _TEXT)
    if rest != b"\r\n" * (len(rest) >> 1):
        if rest.strip(b"\r\n"):
            raise HeadError(code, "The head holds control characters.")
        raise HeadError(code, "Lines must end with CR LF, and neither may stand alone.")
    if b"\r\n " in raw or b"\r\n\t" in raw:
        raise HeadError(code, "Folded header lines are not accepted.")


def _check_form(method: bytes, target: bytes) -> None:
    if method == b"CONNECT":
        host, _, port = target.rpartition(b":")
        if not host or not port.isdigit() or not _HOST.fullmatch(target) or not 0 < int(port) < 65536:
            raise HeadError("bad_request", "CONNECT names a host and a port, such as summarize.reach:80.")
    elif target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
        pass
    else:
        match = _ABSOLUTE.match(target)
        if match is None:
            raise HeadError("bad_request", "The target must be a path or an http:// URL.")
        if match[1][:1] in (b"", b":") or not _HOST.fullmatch(match[1]):
            raise HeadError("bad_request", "Before its path the URL must name a host, a port if any, and nothing else.")


def _read_framing(head: Head, code: str, spaced: bool) -> list[bytes]:
    """Fill in what decides where the message ends; returns the values of `Host`."""
    if spaced:  # llhttp leaves what trails; it is no part of the value (RFC 9110 §5.5)
        head.headers = [(lower, name, value.rstrip(b" \t")) for lower, name, value in head.headers]
    lengths: list[bytes] = []
    codings: list[bytes] = []
    hosts: list[bytes] = []
    upgrade = b""
    for lower, _, value in head.headers:
        if lower not in _FRAMING:
            continue
        if lower == b"host":
            hosts.append(value)
        elif lower == b"content-length":
            lengths.append(value)
        elif lower == b"transfer-encoding":
            codings.append(value)
        elif lower == b"connection":
            head.connection |= named_by_connection(value)
        elif lower == b"upgrade":
            upgrade = value.strip().lower()
        elif lower == b"expect" and value.lower() == b"100-continue":
            head.expects_continue = head.version == 11
    if codings:
        _check_coding(head, codings, lengths, code)
        head.chunked = True
    elif lengths:
        if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 19:
            raise HeadError(code, "Content-Length must be one whole number.")
        head.length = int(lengths[0])
        if head.length > MAX_CONTENT_LENGTH:
            raise HeadError(code, "Content-Length is beyond any body.")
    if head.version == 10:
        head.keep_alive = b"keep-alive" in head.connection and b"close" not in head.connection
    elif head.connection:
        head.keep_alive = b"close" not in head.connection
        if upgrade and b"upgrade" in head.connection:
            head.upgrade = upgrade
    return hosts


def _check_coding(head: Head, codings: list[bytes], lengths: list[bytes], code: str) -> None:
    if lengths:
        raise HeadError(code, "Content-Length and Transfer-Encoding must not come together.")
    if head.version == 10:
        raise HeadError(code, "HTTP/1.0 has no Transfer-Encoding.")
    if len(codings) > 1:
        raise HeadError(code, "Transfer-Encoding must not be repeated.")
    if codings[0].lower() != b"chunked":
        if code == "bad_request":
            code = "not_implemented"
        raise HeadError(code, "The only transfer coding known here is chunked.")
