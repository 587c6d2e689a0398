"""Comparing tables over TCP, from either end: sidecars and other control nodes ask, and this node asks others."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from reach_core.gossip.allowance import Allowance
from reach_core.gossip.compare import (
    Differences,
    Opening,
    Transferred,
    decode,
    decode_question,
    differences,
    encode,
    is_all,
    opening,
    transfer,
    transferred,
)
from reach_core.keyring import Keyring
from reach_core.messages import unpack_entries
from reach_core.peer import Entry
from reach_core.table import PeerTable

MAX_ROUNDS = 16
SAY_EVERY_S = 10.0
MOST_SOURCES = 256

Post = Callable[[bytes], Awaitable[bytes]]


class Tables:
    """`meet` takes in verified entries; `forged` is told of an altered one, and who passed it on, now and then.

    `counts`: `asked`, `answered`, `entries_met`, `_forged`, `_unknown_key`, `_unverified`, `_unreadable`.
    """

    def __init__(self, node: str, table: PeerTable, keyring: Keyring, random: Random,
                 meet: Callable[[list[Entry], bool], object], now_s: Callable[[], float],
                 forged: Callable[[str, str], None]) -> None:
        self.counts: Counter[str] = Counter()
        self._node = node
        self._table = table
        self._keyring = keyring
        self._random = random
        self._meet = meet
        self._now_s = now_s
        self._forged = forged
        self._allowance = Allowance()
        self._say_again_at: dict[str, float] = {}  # by source

    def answer(self, data: bytes, source: str) -> bytes:
        """To a question of `source`. Raises CompareError."""
        asked = decode_question(data)
        self.counts["answered"] += 1
        if isinstance(asked, Opening):
            return encode(differences(self._table, asked, self._random))
        self._learn(asked.entries, source, asked.sender)
        return encode(transferred(self._table, asked))

    async def compare(self, post: Post, source: str) -> bool:
        """Make this table and that of another control node equal; True if they were. Raises what `post` raises, and
        CompareError."""
        for _ in range(MAX_ROUNDS):
            self.counts["asked"] += 1
            found = decode(Differences, await post(encode(opening(self._table, self._node))))
            if found.same:
                return True
            ours = transfer(self._table, found, self._node, self._random)
            answer = decode(Transferred, await post(encode(ours)))
            self._learn(answer.entries, None, source)
            if is_all(found, ours, answer):
                return False
        return False

    def verify(self, entry: Entry, source: str) -> bool:
        """Is it signed by a control node? Counts and says what is not."""
        if not self._keyring.knows(entry):
            self.counts["entries_unknown_key"] += 1
            return False
        if self._keyring.verify(entry):
            return True
        self.counts["entries_forged"] += 1
        now_s = self._now_s()
        if len(self._say_again_at) > MOST_SOURCES:
            self._say_again_at.clear()
        if now_s >= self._say_again_at.get(source, now_s):
            self._say_again_at[source] = now_s + SAY_EVERY_S
            self._forged(entry.agent_id, source)
        return False

    def _learn(self, packed: Sequence[bytes], source: str | None, sender: str) -> None:
        """Without a `source` as many as came are verified: another control node was asked for them."""
        entries, unreadable = unpack_entries(packed)
        self.counts["entries_unreadable"] += unreadable
        newer = [entry for entry in entries if self._is_newer(entry)]
        known = [entry for entry in newer if self._keyring.knows(entry)]
        granted = len(known) if source is None else self._allowance.take(source, self._now_s(), len(known))
        self.counts["entries_unknown_key"] += len(newer) - len(known)
        self.counts["entries_unverified"] += len(known) - granted
        good = [entry for entry in known[:granted] if self.verify(entry, sender)]
        if good:
            self.counts["entries_met"] += len(good)
            self._meet(good, source is not None)

    def _is_newer(self, entry: Entry) -> bool:
        known = self._table.get(entry.agent_id)
        return known is None or entry.order > known.order
