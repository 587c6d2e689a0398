"""The lines of a head, each parsed once: llhttp (httptools) reads a line the first time it is seen, and what it
made of it is remembered.

Between two sidecars nearly every line of a head comes again with every call: of a dozen header lines three or four
are new. Remembering single lines halves the cost of a head; remembering whole heads gains nothing, because no two
are alike. Lines that never come twice (`traceparent` …), long ones and secrets are not remembered, and the memory
is bounded against floods of made-up lines.
"""

import functools
import re

import httptools

from reach_sidecar.http1.message import Field

METHODS = frozenset({
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH", b"QUERY",
    b"PROPFIND", b"PROPPATCH", b"MKCOL", b"COPY", b"MOVE", b"LOCK", b"UNLOCK", b"SEARCH", b"REPORT",
    b"MKCALENDAR", b"MKACTIVITY", b"CHECKOUT", b"MERGE", b"NOTIFY", b"SUBSCRIBE", b"UNSUBSCRIBE", b"PURGE",
    b"LINK", b"UNLINK", b"BIND", b"REBIND", b"UNBIND", b"ACL",
})
MAX_REMEMBERED = 4096
MAX_REMEMBERED_BYTES = 256

# Never the same twice.
_NOT_REMEMBERED = frozenset({
    b"traceparent", b"tracestate", b"idempotency-key", b"reach-timeout", b"reach-load", b"reach-trace-id",
    b"server-timing", b"date", b"x-request-id", b"etag",
})
_SECRET = re.compile(rb"auth|cookie|key|password|secret|session|signature|token")
# Lines that sidecars write to each other, new with every call; of a shape so narrow that it is checked here at once.
_BETWEEN_SIDECARS = re.compile(
    rb"(traceparent|Idempotency-Key|Reach-Timeout|Reach-Load): ([\x21-\x7e](?:[\x20-\x7e]{0,254}[\x21-\x7e])?)")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(rb"[\x21\x22\x24-\x7e]+")  # visible ASCII but `#`
_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+(?:%25[A-Za-z0-9._~-]+)?\])(?::[0-9]{0,5})?")
_ABSOLUTE = re.compile(rb"http://([^/?]*)", re.IGNORECASE)
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
# Everything a line may hold: visible characters, bytes over 0x7f, space and tab.
_TEXT = bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100)) + b"\t"
_VERSIONS = {b"HTTP/1.1": 11, b"HTTP/1.0": 10}


class LineError(Exception):
    """A line is refused: `code` names the problem, `detail` says what is wrong."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def read_request_line(line: bytes) -> tuple[bytes, bytes, int]:
    """Method, target and version (10 or 11). Raises LineError."""
    if len(line) > MAX_REMEMBERED_BYTES or b"?" in line:  # queries may hold secrets, and are seldom the same twice
        return _request_line(line)
    return _known_request_line(line)


def read_status_line(line: bytes) -> tuple[int, bytes, int]:
    """Status, reason and version (10 or 11). Raises LineError."""
    return _known_status_line(line) if len(line) <= MAX_REMEMBERED_BYTES else _status_line(line)


def read_fields(lines: list[bytes]) -> list[Field]:
    """The header fields of `lines`, in their order. Raises LineError (`bad_request`)."""
    known = _REMEMBERED.get
    fields = [known(line) for line in lines]
    if None in fields:
        _read_missing(lines, fields)
    return fields  # type: ignore[return-value]


@functools.lru_cache(maxsize=1024)
def is_host(value: bytes) -> bool:
    """Is `value` a host with or without a port, as `Host` carries it?"""
    return _HOST.fullmatch(value) is not None


def _request_line(line: bytes) -> tuple[bytes, bytes, int]:
    words = line.split(b" ")
    if len(words) != 3 or not _TOKEN.fullmatch(words[0]):
        raise LineError("bad_request", "The request line must be `METHOD target HTTP/1.1`.")
    method, target, version = words
    if version not in _VERSIONS:
        raise LineError("bad_request", "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    if method not in METHODS:
        raise LineError("not_implemented", f"The method {method.decode()!r} is not known here.")
    if not _TARGET.fullmatch(target):
        raise LineError("bad_request", "The request target holds characters that a URL must encode.")
    _check_form(method, target)
    return method, target, _VERSIONS[version]


def _check_form(method: bytes, target: bytes) -> None:
    if method == b"CONNECT":
        host, _, port = target.rpartition(b":")
        if not host or not port.isdigit() or not _HOST.fullmatch(target) or not 0 < int(port) < 65536:
            raise LineError("bad_request", "CONNECT names a host and a port, such as summarize.reach:80.")
    elif target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
        pass
    else:
        match = _ABSOLUTE.match(target)
        if match is None:
            raise LineError("bad_request", "The target must be a path or an http:// URL.")
        if match[1][:1] in (b"", b":") or not _HOST.fullmatch(match[1]):
            raise LineError("bad_request", "Before its path the URL must name a host, a port if any, and nothing else.")


def _status_line(line: bytes) -> tuple[int, bytes, int]:
    match = _STATUS_LINE.fullmatch(line)
    if match is None:
        raise LineError("bad_request", "The answer does not start with HTTP/1.1 or HTTP/1.0 and a status.")
    return int(match[2]), match[3] or b"", 10 + int(match[1])


_known_request_line = functools.lru_cache(maxsize=1024)(_request_line)
_known_status_line = functools.lru_cache(maxsize=256)(_status_line)


class _Folded(dict[bytes, bytes]):
    """Memo of folded header names: the same two dozen come all day. Bounded like everything that clients fill."""

    def __missing__(self, name: bytes) -> bytes:
        lower = name.lower()
        if len(name) <= 64:
            if len(self) > MAX_REMEMBERED:
                self.clear()
            self[name] = lower
        return lower


class _Collector:
    """Takes what llhttp finds."""

    __slots__ = ("fields",)

    def __init__(self) -> None:
        self.fields: list[Field] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        # llhttp leaves the spaces behind a value; they are no part of it (RFC 9110 §5.5)
        self.fields.append((_LOWER[name], name, value.rstrip(b" \t")))


_LOWER = _Folded()
_REMEMBERED: dict[bytes, Field] = {}


def _read_missing(lines: list[bytes], fields: list[Field | None]) -> None:
    """Fill the gaps in `fields`."""
    missing = []
    for index, field in enumerate(fields):
        if field is None:
            match = _BETWEEN_SIDECARS.fullmatch(lines[index])
            if match is None:
                missing.append(index)
            else:
                name = match[1]
                fields[index] = (_LOWER[name], name, match[2])
    if missing:
        _read_new(lines, fields, missing)


def _read_new(lines: list[bytes], fields: list[Field | None], missing: list[int]) -> None:
    """The lines never seen before go through llhttp together, as a head of their own."""
    block = b"\r\n".join([lines[index] for index in missing])
    rest = block.translate(None, _TEXT)
    if rest != b"\r\n" * (len(missing) - 1):
        if rest.strip(b"\r\n"):
            raise LineError("bad_request", "The head holds control characters.")
        raise LineError("bad_request", "Lines must end with CR LF, and neither may stand alone.")
    collector = _Collector()
    try:
        httptools.HttpRequestParser(collector).feed_data(b"GET / HTTP/1.1\r\n%b\r\n\r\n" % block)
    except httptools.HttpParserUpgrade:
        pass  # what an upgrade means is decided elsewhere
    except httptools.HttpParserError as error:
        raise LineError("bad_request", f"A header line cannot be parsed: {error}.") from None
    found = collector.fields
    if len(found) != len(missing):
        raise LineError("bad_request", "A header line is not `Name: value`.")
    for index, field in zip(missing, found, strict=True):
        fields[index] = field
        line = lines[index]
        if len(line) <= MAX_REMEMBERED_BYTES and field[0] not in _NOT_REMEMBERED and not _SECRET.search(field[0]):
            if len(_REMEMBERED) >= MAX_REMEMBERED:
                _REMEMBERED.clear()
            _REMEMBERED[line] = field
