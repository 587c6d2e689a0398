"""The request's body, for as many attempts as the call gets.

A body that is at hand travels as bytes. One that is still coming streams, and what has passed is kept up to
`KEEP_AT_MOST`, so that another attempt can send it again; a longer one can be tried again only while none of it
was sent (design §3).
"""

from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Field

KEEP_AT_MOST = 256 * 1024


class ReplayedBody:
    def __init__(self, body: Body) -> None:
        self._source = body
        self._kept: list[bytes] = []
        self._size = 0
        self._whole: bytes | None = None
        self.replayable = True

    def for_attempt(self) -> "bytes | Replay":
        """The body from its beginning. Only while `replayable`."""
        if self._whole is None and not self._kept and self._source.complete and not self._source.trailers:
            self._whole = self._source.take()
        return Replay(self) if self._whole is None else self._whole

    async def piece(self, index: int) -> bytes:
        """Piece number `index`: a kept one, else the next of the source."""
        if index < len(self._kept):
            return self._kept[index]
        data = await self._source.read()
        if self.replayable:
            self._size += len(data)
            if self._size > KEEP_AT_MOST:
                self.replayable = False
                self._kept = []
            elif data:
                self._kept.append(data)
        return data

    @property
    def trailers(self) -> list[Field]:
        return self._source.trailers


class Replay:
    """One attempt's reading of the body."""

    def __init__(self, body: ReplayedBody) -> None:
        self._body = body
        self._next = 0

    @property
    def trailers(self) -> list[Field]:
        return self._body.trailers

    async def read(self) -> bytes:
        if not self._body.replayable:
            return await self._body.piece(0)
        data = await self._body.piece(self._next)
        self._next += 1
        return data
