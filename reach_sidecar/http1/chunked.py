"""The chunked coding, both ways: a strict decoder that is fed pieces, and the frames to send.

Strict where llhttp is lenient: sizes are plain hex of at most 15 digits, lines end with CR LF, extensions are
dropped and bounded (RFC 9112 §7.1). Trailers are kept apart from the head's fields and passed on.
"""

import re

from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Field

MAX_SIZE_LINE = 4096
MAX_TRAILERS = 64 * 1024

LAST_CHUNK = b"0\r\n\r\n"

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
# Framing and routing may not arrive after the body (RFC 9110 §6.5.1).
_NOT_IN_TRAILERS = frozenset({b"transfer-encoding", b"content-length", b"host", b"trailer", b"connection", b"expect",
                              b"te", b"upgrade"})


class ChunkError(Exception):
    """The coding is broken; nothing after this point can be trusted."""


def frame(data: bytes) -> bytes:
    """`data` as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def last_frame(trailers: list[Field]) -> bytes:
    """The end of the body, with its trailers."""
    if not trailers:
        return LAST_CHUNK
    return b"0\r\n" + b"".join([b"%b: %b\r\n" % (name, value) for _, name, value in trailers]) + b"\r\n"


class ChunkDecoder:
    __slots__ = ("_missing", "_pending", "_trailer_bytes", "_trailers")

    def __init__(self) -> None:
        self._pending = b""
        self._missing = 0  # bytes still to come of the current chunk, its CR LF included; 0: a size line is next
        self._trailers: list[Field] | None = None
        self._trailer_bytes = 0

    def feed(self, data: bytes, body: Body) -> bytes | None:
        """Give `body` what `data` holds. Returns what follows the end of the body, None before that.

        Raises ChunkError.
        """
        if self._pending:
            data = self._pending + data
            self._pending = b""
        position = 0
        while True:
            if self._missing:
                position = self._take_data(data, position, body)
                if self._missing:
                    return None
            end = data.find(b"\r\n", position)
            if end < 0:
                self._keep(data, position)
                return None
            line = data[position:end]
            position = end + 2
            if self._trailers is None:
                self._read_size(line)
            elif line:
                self._read_trailer(line)
            else:
                body.trailers = self._trailers
                return data[position:]

    def _take_data(self, data: bytes, position: int, body: Body) -> int:
        """Move chunk bytes from `position` on into `body`; the last two missing ones are the CR LF."""
        available = len(data) - position
        wanted = self._missing - 2
        if wanted > 0:
            piece = data[position:position + wanted]
            if piece:
                body.feed(piece)
                self._missing -= len(piece)
                position += len(piece)
                available -= len(piece)
        if self._missing <= 2 and available:
            ending = data[position:position + self._missing]
            if ending != b"\r\n"[2 - self._missing:][:len(ending)]:
                raise ChunkError("A chunk is longer than its size says.")
            self._missing -= len(ending)
            position += len(ending)
        return position

    def _keep(self, data: bytes, position: int) -> None:
        rest = data[position:]
        longest = MAX_SIZE_LINE if self._trailers is None else MAX_TRAILERS
        if b"\n" in rest or len(rest) > longest + 1:  # the CR of its end may be there
            raise ChunkError("A chunk's size line or a trailer is malformed or too long.")
        self._pending = rest

    def _read_size(self, line: bytes) -> None:
        match = _SIZE_LINE.fullmatch(line)
        if match is None or len(line) > MAX_SIZE_LINE:
            raise ChunkError("A chunk's size is not a plain hexadecimal number.")
        size = int(match[1], 16)
        if size:
            self._missing = size + 2
        else:
            self._trailers = []

    def _read_trailer(self, line: bytes) -> None:
        match = _TRAILER.fullmatch(line)
        if match is None:
            raise ChunkError("A trailer field is malformed.")
        self._trailer_bytes += len(line)
        if self._trailer_bytes > MAX_TRAILERS:
            raise ChunkError("The trailers are too large.")
        lower = match[1].lower()
        if lower not in _NOT_IN_TRAILERS and self._trailers is not None:
            self._trailers.append((lower, match[1], match[2].rstrip(b" \t")))
