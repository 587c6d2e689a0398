"""A message body on its way in: what the parser has delivered and nobody has taken yet.

The connection feeds it from parser callbacks, one task takes from it. Callbacks only record; whoever waits is
woken once. Above `HIGH_WATER` unread bytes the connection stops reading, and it resumes when they are taken,
so a slow reader on one side slows the sender on the other and memory stays flat.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

HIGH_WATER = 64 * 1024


class BodyError(Exception):
    """The body broke off before its end: it must never be passed on as complete."""


class BodyTooLarge(Exception):
    """More bytes came than the caller of `collect` is ready to hold."""


class Source(Protocol):
    """Whoever fills the body and can be asked to stop for a while."""

    def pause_body(self) -> None: ...

    def resume_body(self) -> None: ...

    def abandon_body(self) -> None: ...


class Body:
    __slots__ = ("_chunks", "_dropping", "_paused", "_source", "_waiter", "complete", "error", "on_end",
                 "on_first_read", "size", "taken", "tap", "trailers")

    def __init__(self, source: Source | None = None) -> None:
        self._chunks: list[bytes] = []
        self._source = source
        self._paused = False
        self._dropping = False
        self._waiter: asyncio.Future[None] | None = None
        self.size = 0
        self.taken = 0  # bytes handed over so far
        self.complete = False
        self.error: BaseException | None = None
        self.trailers: list[tuple[bytes, bytes, bytes]] = []
        self.on_first_read: Callable[[], None] | None = None
        self.tap: Callable[[bytes], None] | None = None  # sees what is taken, too
        # Called once, when the last byte has been taken: only then may the connection be used again.
        self.on_end: Callable[[], None] | None = None

    @classmethod
    def whole(cls, data: bytes) -> "Body":
        """A body that is already all there."""
        body = cls()
        body.complete = True
        if data:
            body._chunks.append(data)
            body.size = len(data)
        return body

    # -- the side that fills it

    def feed(self, data: bytes) -> None:
        if self._dropping or not data:  # nothing would read like the end
            return
        self._chunks.append(data)
        self.size += len(data)
        if self.size > HIGH_WATER and not self._paused and self._source is not None:
            self._paused = True
            self._source.pause_body()
        self._wake()

    def finish(self) -> None:
        self.complete = True
        if self._dropping:
            self.take()  # nobody else will say that it is over
        self._wake()

    def fail(self, error: BaseException) -> None:
        """The rest will not come. What was buffered can still be taken; then `error` is raised."""
        if not self.complete and self.error is None:
            self.error = error
            self._wake()

    def discard(self) -> None:
        """Nobody will read the rest: drop what is there and what still comes."""
        self._dropping = True
        self.take()

    def abandon(self) -> None:
        """Nobody can use the rest any more: whoever sends it may stop at once."""
        if self.complete:
            self.take()  # all of it came: the connection can be used again
        elif self.error is None and self._source is not None:
            self._source.abandon_body()

    # -- the side that takes

    @property
    def awaited(self) -> bool:
        """Does a reader wait for bytes that have not come?"""
        return self._waiter is not None

    @property
    def at_end(self) -> bool:
        return self.complete and not self._chunks

    def peek(self) -> bytes:
        """All that is there now, without taking it."""
        chunks = self._chunks
        if len(chunks) > 1:
            chunks[:] = [b"".join(chunks)]
        return chunks[0] if chunks else b""

    def take(self) -> bytes:
        """All that is there now, without waiting; b"" when that is nothing."""
        chunks = self._chunks
        if not chunks:
            data = b""
        elif len(chunks) == 1:
            data = chunks[0]
        else:
            data = b"".join(chunks)
        if chunks:
            self._chunks = []
            self.taken += self.size
            self.size = 0
            if self.tap is not None:
                self.tap(data)
            if self._paused and self._source is not None:
                self._paused = False
                self._source.resume_body()
        if self.complete and self.on_end is not None:
            ended, self.on_end = self.on_end, None
            ended()
        return data

    async def read(self) -> bytes:
        """The next bytes, b"" at the end. Raises what `fail` was given."""
        if self.on_first_read is not None:
            asked, self.on_first_read = self.on_first_read, None
            asked()
        if not self._chunks and not self.complete:
            await self.begun()
        return self.take()

    async def begun(self) -> None:
        """Wait until there is something to take, or the end. Raises what `fail` was given."""
        while not self._chunks and not self.complete:
            if self.error is not None:
                raise self.error
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def collect(self, limit: int) -> bytes:
        """The whole body. Raises BodyTooLarge once it is over `limit` bytes."""
        if self.complete and self.size <= limit:
            return self.take()
        parts: list[bytes] = []
        total = 0
        while data := await self.read():
            total += len(data)
            if total > limit:
                raise BodyTooLarge(f"over {limit} bytes")
            parts.append(data)
        return b"".join(parts)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
