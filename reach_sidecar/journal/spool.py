"""An answer that goes to disk while it streams: 64 MiB at most, of which memory holds what waits for the disk.

What was added gathers until it is worth a row, and such rows are written as bulk, behind the small writes of others.
The row of the call points to the pieces only once all of them are on the disk, together with the head and the rest
that made no piece; an answer that stays small never makes one. Pieces without a row that points to them are dropped
at the next start.

A spool that would hold too much gives up: the caller still gets the answer, but a repeat will not.
"""

import asyncio
import secrets

from reach_sidecar.journal.answer import Headers, encode_head
from reach_sidecar.journal.database import Journal, StoreUnavailable
from reach_sidecar.journal.statements import statements

MOST_BYTES = 64 << 20
MOST_WAITING_BYTES = 16 << 20  # of one answer
MOST_WAITING_IN_ALL_BYTES = 64 << 20
PIECE_BYTES = 64 << 10
_SQL = statements("runs")


class Waiting:
    """Bytes of all spools of one store that wait for the disk."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class Spool:
    """For the answer to the call that began as `key`. `add` while it streams, then `done` or `drop`, once."""

    __slots__ = ("_gathered", "_gathered_size", "_given_up", "_id", "_in_all", "_journal", "_key", "_landed", "_pieces",
                 "_size", "_under_way", "_waiting")  # fmt: skip

    def __init__(self, journal: Journal, key: bytes, in_all: Waiting) -> None:
        self._journal = journal
        self._key = key
        self._in_all = in_all
        self._id = secrets.randbits(62)
        self._size = 0
        self._gathered: list[bytes] = []
        self._gathered_size = 0
        self._under_way: dict[asyncio.Future[int], int] = {}
        self._waiting = 0
        self._pieces = 0
        self._given_up = False
        self._landed: asyncio.Future[None] | None = None

    def add(self, data: bytes) -> bool:
        """Take the next bytes of the body; False once it gave up."""
        if self._given_up:
            return False
        size = len(data)
        if (
            self._size + size > MOST_BYTES
            or self._waiting + size > MOST_WAITING_BYTES
            or self._in_all.size + size > MOST_WAITING_IN_ALL_BYTES
        ):
            self._give_up()
            return False
        self._size += size
        self._count(size)
        self._gathered.append(data)
        self._gathered_size += size
        if self._gathered_size >= PIECE_BYTES:
            self._send_piece()
        return not self._given_up

    async def done(self, status: int, reason: bytes, headers: Headers) -> bool:
        """Keep the answer; True once it is on the disk. False if it could not be kept: the row says so then.

        Raises StoreUnavailable if neither could be noted: the row is still `running`.
        """
        if self._under_way:
            self._landed = asyncio.get_running_loop().create_future()
            await self._landed
        if not self._given_up:
            rest = b"".join(self._gathered)
            head = encode_head(status, reason, headers)
            spool, pieces = (self._id, self._pieces) if self._pieces else (None, None)
            try:
                if await self._journal.write(
                    _SQL["done"], (self._journal.time_ms(), head, rest, spool, pieces, self._key)
                ):
                    self._let_go()
                    return True
            except StoreUnavailable:
                pass  # a full disk may still have room for a line less
            self._give_up()
        await self._journal.write(_SQL["end"], ("not_kept", self._journal.time_ms(), self._key))
        return False

    def drop(self) -> None:
        """The answer will not be kept. The row stays as it is."""
        self._give_up()

    def _give_up(self) -> None:
        if self._given_up:
            return
        self._given_up = True
        self._let_go()
        if self._pieces:
            try:
                # As bulk, so that it comes after the pieces that still wait.
                removed = self._journal.submit(_SQL["drop_pieces"], (self._id,), bulk=1)
            except StoreUnavailable:
                return  # the next start removes them
            removed.add_done_callback(_look_at)

    def _let_go(self) -> None:
        """Of what has gathered: it is written or not wanted."""
        self._count(-self._gathered_size)
        self._gathered = []
        self._gathered_size = 0

    def _send_piece(self) -> None:
        data = b"".join(self._gathered)
        try:
            settled = self._journal.submit(_SQL["add_piece"], (self._id, self._pieces, data), bulk=len(data))
        except StoreUnavailable:
            self._give_up()
            return
        self._under_way[settled] = len(data)
        settled.add_done_callback(self._wrote)
        self._gathered = []
        self._gathered_size = 0
        self._pieces += 1

    def _wrote(self, settled: asyncio.Future[int]) -> None:
        self._count(-self._under_way.pop(settled))
        if _look_at(settled) is not None:
            self._give_up()
        if not self._under_way and self._landed is not None and not self._landed.done():
            self._landed.set_result(None)

    def _count(self, size: int) -> None:
        self._waiting += size
        self._in_all.size += size


def _look_at(settled: asyncio.Future[int]) -> BaseException | None:
    """The future's error, which asyncio would complain about if nobody looked."""
    return None if settled.cancelled() else settled.exception()
