"""Control's part in gossip: each change goes to four random sidecars, and each of them says that it has it.

What was not acknowledged after 0.2 s is sent again, and after 0.4 s more over TCP; a sidecar that does not take it
then either is replaced by another one, until eight were tried.

However much changes at once, no more than RATE datagrams and pushes leave in a second. News that waits for its turn is
kept by agent, so that of several changes of one agent only the last is told; what came last goes first, so one change
goes out at once in the middle of ten thousand. Something told for the first time goes before something told again: one
sidecar that has it is worth more than three more of them. What is too much is left to the comparisons of sidecars with
each other and with control, the oldest first: of what waits what is over MAX_WAITING, as many as a sidecar would tell
on; of what is under way the batches over MAX_BATCHES, those that somebody has heard before the others.

Sidecars that seem well and that the news is not about are told first: if something died, it cannot tell anybody.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import NamedTuple

from reach_core.gossip.allowance import Bucket
from reach_core.gossip.datagram import MAX_NEWS, Datagram, encode, pack
from reach_core.gossip.seal import OVERHEAD
from reach_core.peer import Entry, Rank
from reach_core.table import PeerTable

FAN_OUT = 4
RESEND_S = (0.2, 0.4)
MAX_TRIED = 8
MAX_BATCHES = 256
MAX_WAITING = 4096
RATE = 1000.0
"""Datagrams and pushes a second: at most 1.2 MB/s, and 2 % of a CPU to seal and send them."""
BURST = 64
"""That many at once fit into the buffer of a socket."""
MAX_PUSHES = 16
PUSH_TIMEOUT_S = 3.0
MAX_LIFE_S = 30.0
"""Within this time sidecars have compared their tables three times: what nobody took by then need not be told."""
_DEFER_S = 0.02  # what finds no place now looks again after this
_FIRST_NUMBERS = 2**31


class Push(NamedTuple):
    """News to be told over TCP; say `acknowledged` or `failed` with `number` and `agent_id`."""

    number: int
    agent_id: str
    address: str
    entries: tuple[Entry, ...]


class Due(NamedTuple):
    """What is to be done now, and the seconds until more may be (None: nothing is under way)."""

    sends: list[tuple[str, Datagram]]
    pushes: list[Push]
    next_s: float | None


class _Target:
    __slots__ = ("address", "due_s", "tries")

    def __init__(self, address: str, due_s: float) -> None:
        self.address = address
        self.due_s = due_s
        self.tries = 0


class _Batch:
    __slots__ = ("datagram", "entries", "is_heard", "size", "targets", "tried", "until_s")

    def __init__(self, datagram: Datagram, entries: tuple[Entry, ...], until_s: float) -> None:
        self.datagram = datagram
        self.entries = entries
        self.size = len(encode(datagram)) + OVERHEAD
        self.until_s = until_s
        self.is_heard = False
        self.targets: dict[str, _Target] = {}
        self.tried: set[str] = set()


class Seeds:
    """`sender` is this control node's id. `counts`: `datagrams` and their `bytes`, `pushes`, `acknowledged`,
    `replaced` (sidecars), `unheard` (batches that nobody took), `left_to_comparison` (entries)."""

    def __init__(self, table: PeerTable, random: Random, sender: str, fan_out: int = FAN_OUT) -> None:
        self.notice = 0
        self.counts: Counter[str] = Counter()
        self._table = table
        self._random = random
        self._sender = sender
        self._fan_out = fan_out
        self._is_announcing = False
        self._waiting: dict[str, Entry] = {}  # by agent; the last is told first
        self._batches: dict[int, _Batch] = {}  # by number, the oldest first
        self._pushing: dict[tuple[int, str], float] = {}  # until when each is waited for
        self._pace = Bucket(RATE, max(BURST, fan_out), float("-inf"))
        self._next = random.randrange(1, _FIRST_NUMBERS)  # what is acknowledged to an earlier process is not to this

    def __len__(self) -> int:
        """Batches under way."""
        return len(self._batches)

    @property
    def waiting(self) -> int:
        """Entries whose turn has not come."""
        return len(self._waiting)

    @property
    def dropped(self) -> int:
        """Entries left to comparison."""
        return self.counts["left_to_comparison"]

    @property
    def unheard(self) -> int:
        """Batches that no sidecar took."""
        return self.counts["unheard"]

    def add(self, entries: Sequence[Entry], now_s: float) -> None:
        """These changed: begin to tell them with the next `tick`."""
        for entry in reversed(entries):
            known = self._waiting.get(entry.agent_id)
            if known is None or entry.order > known.order:
                self._waiting.pop(entry.agent_id, None)
                self._waiting[entry.agent_id] = entry
        while len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
            self.counts["left_to_comparison"] += 1

    def announce(self, notice: int, now_s: float) -> None:
        """There is a newer version of what holds mesh-wide; any datagram tells it."""
        self.notice = max(self.notice, notice)
        self._is_announcing = True

    def acknowledged(self, number: int, agent_id: str) -> None:
        """That sidecar has that batch."""
        self._pushing.pop((number, agent_id), None)
        batch = self._batches.get(number)
        if batch is None or agent_id not in batch.tried:
            return
        batch.is_heard = True
        if batch.targets.pop(agent_id, None) is not None:
            self.counts["acknowledged"] += 1
            if not batch.targets:
                self._end(number)

    def failed(self, number: int, agent_id: str, now_s: float) -> None:
        """Over TCP it did not take it either: another one is told instead, while there are some."""
        self._pushing.pop((number, agent_id), None)
        batch = self._batches.get(number)
        if batch is None or batch.targets.pop(agent_id, None) is None:
            return
        if len(batch.tried) < MAX_TRIED:
            self.counts["replaced"] += 1
            self._choose(batch, 1, now_s)
        if not batch.targets:
            self._end(number)

    def tick(self, now_s: float) -> Due:
        """What is to be sent now."""
        due = Due([], [], None)
        for push in [push for push, until_s in self._pushing.items() if now_s >= until_s]:
            del self._pushing[push]
        self._begin_batches(now_s)
        next_s = self._turn_s() if self._waiting or self._is_announcing else None
        for number in reversed(list(self._batches)):  # first what is told for the first time
            batch = self._batches[number]
            if now_s >= batch.until_s:
                self._end(number)
                continue
            for agent_id, target in list(batch.targets.items()):
                if now_s >= target.due_s:
                    self._try(number, agent_id, target, now_s, due)
            for target in batch.targets.values():
                wait_s = max(0.0, target.due_s - now_s)
                next_s = wait_s if next_s is None else min(next_s, wait_s)
        return due._replace(next_s=next_s)

    # -- steps

    def _turn_s(self) -> float:
        return max(_DEFER_S, self._pace.wait_s(self._fan_out))

    def _begin_batches(self, now_s: float) -> None:
        """As many as may be sent now."""
        may_send = self._pace.left(now_s)
        while (self._waiting or self._is_announcing) and may_send >= self._fan_out:
            first = list(islice(reversed(self._waiting.values()), MAX_NEWS))
            datagram, taken = pack(first, self._sender, self.notice, self._next)
            batch = _Batch(datagram, tuple(first[:taken]), now_s + MAX_LIFE_S)
            self._choose(batch, self._fan_out, now_s)
            if not batch.targets:  # there is nobody
                self._waiting.clear()
                self._is_announcing = False
                return
            for entry in batch.entries:
                del self._waiting[entry.agent_id]
            self._is_announcing = False
            if len(self._batches) >= MAX_BATCHES:
                heard = (number for number, one in self._batches.items() if one.is_heard)
                self._end(next(heard, next(iter(self._batches))))
            self._batches[self._next] = batch
            self._next += 1
            may_send -= len(batch.targets)

    def _choose(self, batch: _Batch, count: int, now_s: float) -> None:
        """More sidecars for it: those that are well and others than it is about first."""
        others = batch.tried.union(entry.agent_id for entry in batch.entries)
        for exclude, most_rank in ((others, Rank.UP), (others, Rank.SUSPECT), (batch.tried, Rank.SUSPECT)):
            for entry in self._table.random_entries(count, self._random, exclude, most_rank):
                batch.tried.add(entry.agent_id)
                others.add(entry.agent_id)
                batch.targets[entry.agent_id] = _Target(entry.address, now_s)
                count -= 1
            if count <= 0:
                return

    def _try(self, number: int, agent_id: str, target: _Target, now_s: float, due: Due) -> None:
        batch = self._batches[number]
        may_send = self._pace.left(now_s) > 0
        if target.tries < len(RESEND_S):
            if may_send:
                self._pace.take(1)
                self.counts["datagrams"] += 1
                self.counts["bytes"] += batch.size
                target.due_s = now_s + RESEND_S[target.tries]
                target.tries += 1
                due.sends.append((target.address, batch.datagram))
            else:
                target.due_s = now_s + _DEFER_S
        elif target.tries == len(RESEND_S) and batch.entries:
            if may_send and len(self._pushing) < MAX_PUSHES:
                self._pace.take(1)
                self.counts["pushes"] += 1
                target.due_s = self._pushing[number, agent_id] = now_s + PUSH_TIMEOUT_S
                target.tries += 1
                due.pushes.append(Push(number, agent_id, target.address, batch.entries))
            elif batch.is_heard:  # places are for what nobody has heard
                del batch.targets[agent_id]
                if not batch.targets:
                    self._end(number)
            else:
                target.due_s = now_s + _DEFER_S
        else:  # nobody said what became of the push, or there was nothing to push but a version
            self.failed(number, agent_id, now_s)

    def _end(self, number: int) -> None:
        batch = self._batches.pop(number)
        if not batch.is_heard:
            self.counts["unheard"] += 1
            self.counts["left_to_comparison"] += len(batch.entries)
