"""What ran here, in memory: answers by key, each for its time, all together within bounds.

Sidecars make a key for every call that brings none. Such a key is repeated by the sidecar that made it only, within
seconds, so its row lives 30 s. Keys that agents gave may be repeated by people: 10 min. Where room gets short the
answers of made keys go first, the oldest before the others. That such a key ran is known until its time is over, by 64
bits of its hash and nothing else: 400,000 of them fit, more than a sidecar can carry in 30 s. Rows of agents' keys
never go early: once they fill their share, calls with new ones are refused.

Rows are plain tuples of bytes and numbers, and the head of an answer is packed into one of these bytes: the garbage
collector takes such tuples off its list, and a few large objects take half the memory of many small ones.
"""

import secrets
from collections import deque

from reach_sidecar.journal.answer import Answer, decode_answer, encode_head
from reach_sidecar.policy.dedup import State

MADE_KEEP_S = 30.0
MOST_ANSWER_BYTES = 1 << 20
GIVEN_SHARE = 0.875  # of the bytes, so that calls without a key of their own still have room to be noted
# What things take, by measurement of the process: 200,000 rows with and without answers of 0, 1 and 100 KiB.
ROW_BYTES = 430  # key, row and their places in the tables
ANSWER_BYTES = 120  # besides its packed head and its body
RAN_BYTES = 160  # of a made key whose answer was given up early, with the scattered memory that this leaves behind
LOOK_EVERY_S = 0.01
EXPIRED_AT_ONCE = 64  # rows that one call removes at most

# expires at, fingerprint, state, made, bytes, the answer's head (empty unless `done`) and body
_Row = tuple[float, bytes, State, bool, int, bytes, bytes]


class Memory:
    """`now` is loop seconds, never falling. A key has a row here only after its run has ended."""

    def __init__(self, *, max_bytes: int, keep_s: float) -> None:
        self.id = secrets.token_hex(8).encode()
        self.max_bytes = max_bytes
        self.keep_s = keep_s
        self.bytes = 0
        self._given_bytes = 0
        self._overflowed = False
        self._look_at = 0.0  # when what has expired is removed again
        self._rows: dict[bytes, _Row] = {}
        self._answers: deque[tuple[float, bytes]] = deque()  # made keys with an answer, the first to expire first
        self._marks: deque[tuple[float, bytes]] = deque()  # made keys that ended without one
        self._ran: dict[int, float] = {}  # by their hash, made keys whose answer was given up: when that is forgotten
        self._ran_order: deque[int] = deque()  # the first to expire first
        self._ran_until = 0.0  # the last of these times, so that many share one number
        self._given: deque[tuple[float, bytes]] = deque()
        self._stale = 0  # places in these of rows that are gone or were put again

    def __len__(self) -> int:
        return len(self._rows) + len(self._ran)

    def state(self, key: bytes, now: float) -> tuple[State, bytes | None] | None:
        """State and fingerprint of the key's row, None for one that is not known any more; None where it has no row."""
        row = self._rows.get(key)
        if row is None or row[0] <= now:
            return ("not_kept", None) if self._ran and self._ran.get(hash(key), 0.0) > now else None
        return row[2], row[1]

    def answer(self, key: bytes) -> Answer:
        """Of a row that is `done`."""
        row = self._rows[key]
        return decode_answer(row[5], row[6])

    def has_room(self, made: bool, now: float) -> bool:
        """May a call with a new key begin?"""
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S if self.expire(now, at_most=EXPIRED_AT_ONCE) else now
        if made and self.bytes + ROW_BYTES <= self.max_bytes:
            return True
        if not made and (self._overflowed or self._given_bytes + ROW_BYTES > self.max_bytes * GIVEN_SHARE):
            self.expire(now)
            if self._overflowed or self._given_bytes + ROW_BYTES > self.max_bytes * GIVEN_SHARE:
                return False
        return self._fits(ROW_BYTES, now)

    def keep(self, key: bytes, fingerprint: bytes, made: bool, now: float, status: int, reason: bytes,
             headers: list[tuple[bytes, bytes, bytes]], body: bytes) -> None:
        """The run has ended with this answer."""
        head = encode_head(status, reason, headers)
        size = ROW_BYTES + ANSWER_BYTES + len(head) + len(body)
        if len(body) > MOST_ANSWER_BYTES or size > self.max_bytes // 4:  # nor may one fill a small store
            return self.mark(key, fingerprint, "not_kept", made, now)
        if not made and self._given_bytes + size > self.max_bytes * GIVEN_SHARE:
            self._overflowed = True
            return self.mark(key, fingerprint, "not_kept", made, now)
        if not self._fits(size, now):
            return self.mark(key, fingerprint, "not_kept", made, now)
        self._put(key, (now + (MADE_KEEP_S if made else self.keep_s), fingerprint, "done", made, size, head, body))
        return None

    def mark(self, key: bytes, fingerprint: bytes, state: State, made: bool, now: float) -> None:
        """The run has ended in `state`, without an answer that can be given again."""
        self._put(key, (now + (MADE_KEEP_S if made else self.keep_s), fingerprint, state, made, ROW_BYTES, b"", b""))

    def forget(self, key: bytes) -> None:
        """It did not run."""
        row = self._rows.pop(key, None)
        if self._ran:
            self._forget_ran(hash(key))
        if row is not None:
            self._uncount(row)
            self._stale += 1
            if self._stale > 1024 + len(self._rows):
                self._drop_stale()

    def expire(self, now: float, *, at_most: int = 1 << 62) -> bool:
        """Remove rows whose time is over; False where there are more than `at_most`, and some are left."""
        while self._ran_order and self._ran.get(self._ran_order[0], 0.0) <= now:
            if at_most == 0:
                return False
            at_most -= 1
            self._forget_ran(self._ran_order.popleft())
        for order in (self._marks, self._answers, self._given):
            while order and order[0][0] <= now:
                if at_most == 0:
                    return False
                at_most -= 1
                expires_at, key = order.popleft()
                row = self._rows.get(key)
                if row is not None and row[0] == expires_at:
                    del self._rows[key]
                    self._uncount(row)
                else:
                    self._stale -= 1
        return True

    def _put(self, key: bytes, row: _Row) -> None:
        if self._ran or key in self._rows:
            self.forget(key)
        self._rows[key] = row
        self.bytes += row[4]
        if not row[3]:
            self._given_bytes += row[4]
            self._given.append((row[0], key))
        else:  # a mark stands behind younger answers in time, which only means that it is looked at a little late
            (self._answers if row[5] else self._marks).append((row[0], key))

    def _uncount(self, row: _Row) -> None:
        self.bytes -= row[4]
        if not row[3]:
            self._given_bytes -= row[4]
            self._overflowed = False

    def _fits(self, size: int, now: float) -> bool:
        if self.bytes + size <= self.max_bytes:
            return True
        self.expire(now)
        return self._make_room(size)

    def _make_room(self, size: int) -> bool:
        """Give up answers of made keys, the oldest first, until `size` more bytes fit."""
        while self.bytes + size > self.max_bytes:
            if not self._answers:
                return False
            expires_at, key = self._answers.popleft()
            row = self._rows.get(key)
            if row is None or row[0] != expires_at or not row[5]:
                self._stale -= 1
                continue
            del self._rows[key]
            self.bytes -= row[4]
            self._note_ran(hash(key), expires_at)
        return True

    def _forget_ran(self, hashed: int) -> None:
        if self._ran.pop(hashed, None) is not None:
            self.bytes -= RAN_BYTES

    def _note_ran(self, hashed: int, expires_at: float) -> None:
        if hashed in self._ran:  # of two with one hash, or one that ran twice, the first time counts
            return
        if expires_at > self._ran_until:
            self._ran_until = expires_at + 1.0
        self._ran[hashed] = self._ran_until
        self._ran_order.append(hashed)
        self.bytes += RAN_BYTES

    def _drop_stale(self) -> None:
        """A key that runs again and again leaves a place behind each time."""
        rows = self._rows
        for order in (self._marks, self._answers, self._given):
            standing = [place for place in order if place[1] in rows and rows[place[1]][0] == place[0]]
            order.clear()
            order.extend(standing)
        self._stale = 0
