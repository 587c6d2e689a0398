"""Control's part in gossip: each change goes to four random sidecars, and each of them says that it has it.

What was not acknowledged after 0.2 s is sent again, and after 0.4 s more over TCP; a sidecar that does not take it
then either is replaced by another one. Beyond MAX_BATCHES under way, and for what nobody takes, the comparisons of
sidecars with control are relied upon.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from reach_core.gossip.datagram import Datagram, pack
from reach_core.peer import Entry
from reach_core.table import PeerTable

FAN_OUT = 4
RESEND_S = (0.2, 0.4)
MAX_TRIED = 8
MAX_BATCHES = 256
PUSH_TIMEOUT_S = 3.0


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
    __slots__ = ("datagram", "entries", "targets", "tried")

    def __init__(self, datagram: Datagram, entries: tuple[Entry, ...]) -> None:
        self.datagram = datagram
        self.entries = entries
        self.targets: dict[str, _Target] = {}
        self.tried: set[str] = set()


class Seeds:
    """`sender` is this control node's id. `dropped` counts changes left to comparison, `unheard` batches that nobody
    took."""

    def __init__(self, table: PeerTable, random: Random, sender: str, fan_out: int = FAN_OUT) -> None:
        self.notice = 0
        self.dropped = 0
        self.unheard = 0
        self._table = table
        self._random = random
        self._sender = sender
        self._fan_out = fan_out
        self._batches: dict[int, _Batch] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, entries: Sequence[Entry], now_s: float) -> None:
        """These changed: begin to tell them with the next `tick`."""
        rest = list(entries)
        while rest:
            if len(self._batches) >= MAX_BATCHES:
                self.dropped += len(rest)
                return
            datagram, taken = pack(rest[:64], self._sender, self.notice, self._next)
            self._begin(datagram, tuple(rest[:taken]), now_s)
            rest = rest[taken:]

    def announce(self, notice: int, now_s: float) -> None:
        """There is a newer version of what holds mesh-wide."""
        self.notice = max(self.notice, notice)
        if len(self._batches) < MAX_BATCHES:
            self._begin(pack([], self._sender, self.notice, self._next)[0], (), now_s)

    def acknowledged(self, number: int, agent_id: str) -> None:
        """That sidecar has that batch."""
        batch = self._batches.get(number)
        if batch is not None:
            batch.targets.pop(agent_id, None)
            if not batch.targets:
                del self._batches[number]

    def failed(self, number: int, agent_id: str, now_s: float) -> None:
        """Over TCP it did not take it either: another one is told instead, while there are some."""
        batch = self._batches.get(number)
        if batch is None or batch.targets.pop(agent_id, None) is None:
            return
        if len(batch.tried) < MAX_TRIED:
            self._choose(batch, 1, now_s)
        if not batch.targets:
            self.unheard += 1
            del self._batches[number]

    def tick(self, now_s: float) -> Due:
        """What is to be sent now."""
        sends: list[tuple[str, Datagram]] = []
        pushes: list[Push] = []
        next_s: float | None = None
        for number, batch in list(self._batches.items()):
            for agent_id, target in list(batch.targets.items()):
                if now_s >= target.due_s:
                    self._try(number, batch, agent_id, target, now_s, sends, pushes)
            for target in batch.targets.values():
                wait_s = max(0.0, target.due_s - now_s)
                next_s = wait_s if next_s is None else min(next_s, wait_s)
        return Due(sends, pushes, next_s)

    def _try(self, number: int, batch: _Batch, agent_id: str, target: _Target, now_s: float,
             sends: list[tuple[str, Datagram]], pushes: list[Push]) -> None:
        if target.tries < len(RESEND_S):
            target.due_s = now_s + RESEND_S[target.tries]
            sends.append((target.address, batch.datagram))
        elif target.tries == len(RESEND_S) and batch.entries:
            target.due_s = now_s + PUSH_TIMEOUT_S
            pushes.append(Push(number, agent_id, target.address, batch.entries))
        else:  # nobody said what became of the push, or there was nothing to push but a version
            self.failed(number, agent_id, now_s)
            return
        target.tries += 1

    def _begin(self, datagram: Datagram, entries: tuple[Entry, ...], now_s: float) -> None:
        batch = _Batch(datagram, entries)
        subject = entries[0].agent_id if len(entries) == 1 else ""
        batch.tried.add(subject)  # others first: it knows of itself, and if it is gone it cannot tell anybody
        self._choose(batch, self._fan_out, now_s)
        batch.tried.discard(subject)
        if len(batch.targets) < self._fan_out:
            self._choose(batch, self._fan_out - len(batch.targets), now_s)
        if batch.targets:
            self._batches[self._next] = batch
            self._next += 1

    def _choose(self, batch: _Batch, count: int, now_s: float) -> None:
        for entry in self._table.random_entries(count, self._random, batch.tried):
            batch.tried.add(entry.agent_id)
            batch.targets[entry.agent_id] = _Target(entry.address, now_s)
