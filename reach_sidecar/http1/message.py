"""What travels: a request, a response, their header fields.

A header field is a triple `(lower, name, value)`: the name folded for look-ups beside the name as it was
sent, because what passes through keeps its case, its order and its repetitions.
"""

from collections.abc import Callable, Iterable
from http import HTTPStatus

import orjson

from reach_sidecar.http1.body import Body

Field = tuple[bytes, bytes, bytes]

REASONS: dict[int, bytes] = {status.value: status.phrase.encode() for status in HTTPStatus}


def field(name: str, value: str | bytes) -> Field:
    """One header field from text: `field("Retry-After", "1")`."""
    raw = name.encode("latin-1")
    return raw.lower(), raw, value if isinstance(value, bytes) else value.encode("utf-8")


def find(headers: Iterable[Field], lower: bytes) -> bytes | None:
    """The first value of the field named `lower` (already lower case), or None."""
    for folded, _, value in headers:
        if folded == lower:
            return value
    return None


class Request:
    """A request as it came in. `target` is the raw request-target, `version` is 10 or 11 (HTTP/1.x).

    `connect_host` is set on requests that arrived inside a `CONNECT` which named one of our capabilities.
    `interim` sends a 1xx answer ahead of the final one; `None` where the client cannot take it (HTTP/1.0).
    `wanted` says whether the answer is still of use although the client has gone; `None`: it is not.
    """

    __slots__ = ("_index", "body", "connect_host", "expects_continue", "headers", "interim", "method", "peer",
                 "target", "upgrade", "version", "wanted")

    def __init__(self, method: bytes, target: bytes, version: int, headers: list[Field], body: Body) -> None:
        self.method = method
        self.target = target
        self.version = version
        self.headers = headers
        self.body = body
        self._index: dict[bytes, bytes] | None = None
        self.upgrade: bytes | None = None
        self.expects_continue = False
        self.connect_host: bytes | None = None
        self.peer = ""
        self.interim: Callable[[int, list[Field]], None] | None = None
        self.wanted: Callable[[], bool] | None = None

    @property
    def index(self) -> dict[bytes, bytes]:
        """The first value of each field by its folded name, for look-ups. `headers` is not changed after the first."""
        if self._index is None:
            self._index = {header[0]: header[2] for header in reversed(self.headers)}
        return self._index

    @index.setter
    def index(self, index: dict[bytes, bytes]) -> None:
        self._index = index

    def header(self, lower: bytes) -> bytes | None:
        return self.index.get(lower)


Sent = Callable[[int, BaseException | None], None]


class Response:
    """An answer: `body` is bytes when it is at hand, a `Body` while it streams.

    `length` is the Content-Length announced by whoever made the answer (also the one of an answer to HEAD),
    None when it was chunked or ends with the connection. Callbacks of `when_sent` get `(bytes_out, error)` exactly
    once, the last added first, when the last byte was handed to the client's socket or the sending failed.
    With `tunnel` set, the two connections are joined after the head; `inner_host` answers a CONNECT whose bytes
    are read as HTTP for it.
    """

    __slots__ = ("_index", "_on_sent", "body", "headers", "inner_host", "length", "reason", "sized", "status",
                 "tunnel")

    def __init__(self, status: int, headers: list[Field], body: "bytes | Body" = b"", *,
                 reason: bytes | None = None, length: int | None = None) -> None:
        self.status = status
        self.reason = REASONS.get(status, b"") if reason is None else reason
        self.headers = headers
        self.body = body
        self.length = len(body) if isinstance(body, bytes) else length
        self.sized = False  # `headers` hold a Content-Length already, and it is `length`
        self._on_sent: list[Sent] = []
        self._index: dict[bytes, bytes] | None = None
        self.tunnel: object | None = None
        self.inner_host: bytes | None = None

    @property
    def index(self) -> dict[bytes, bytes]:
        """As it was received: the first value of each field by its folded name."""
        if self._index is None:
            self._index = {header[0]: header[2] for header in reversed(self.headers)}
        return self._index

    @index.setter
    def index(self, index: dict[bytes, bytes]) -> None:
        self._index = index

    def header(self, lower: bytes) -> bytes | None:
        return find(self.headers, lower)

    def when_sent(self, callback: Sent) -> None:
        self._on_sent.append(callback)

    def sent(self, bytes_out: int, error: BaseException | None) -> None:
        """For the connection: the answer is out, or will never be."""
        callbacks, self._on_sent = self._on_sent, []
        for callback in reversed(callbacks):
            callback(bytes_out, error)

    @classmethod
    def json(cls, status: int, value: object, *headers: Field,
             content_type: str = "application/json") -> "Response":
        """A complete answer with `value` as JSON."""
        return cls(status, [field("Content-Type", content_type), *headers], orjson.dumps(value))
