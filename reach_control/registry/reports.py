"""When callers say that their calls to an agent fail, the agent's declared health check is due.

Callers tell in their heartbeats how many calls failed in a row, by agent. The latest word of each within FRESH_S is
added up; at ENOUGH the agent's sidecar is asked to run its check now, at most once in COOL_DOWN_S (design, "Health
levels": L2). It then calls itself unfit, or not: callers never decide that.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

FRESH_S = 30.0
ENOUGH = 5
COOL_DOWN_S = 30.0
MOST_WORDS = 50_000
"""Pairs of caller and agent that are remembered; the oldest callers' go first."""
_MOST_BY_ONE = 1_000


class Probe(NamedTuple):
    """Have the sidecar at `address` check its agent now."""

    agent_id: str
    gen: int
    address: str


class _Word(NamedTuple):
    at_s: float
    failures: dict[str, int]


class Reports:
    """What callers said, by caller."""

    def __init__(self) -> None:
        self._words: dict[str, _Word] = {}  # the oldest first
        self._sums: Counter[str] = Counter()
        self._suspects: dict[str, None] = {}  # agents with ENOUGH
        self._probed_s: dict[str, float] = {}  # the oldest first
        self._size = 0

    def told(self, caller: str, failures: Mapping[str, int], now_s: float) -> None:
        """All the caller has to say now: agents it does not name any more are answering it."""
        self._withdraw(caller)
        mine = {one: min(n, _MOST_BY_ONE) for one, n in failures.items() if n > 0 and one != caller}
        if mine:
            self._words[caller] = _Word(now_s, mine)
            self._size += len(mine)
            for agent_id, n in mine.items():
                self._sums[agent_id] += n
                if self._sums[agent_id] >= ENOUGH:
                    self._suspects[agent_id] = None
        while self._size > MOST_WORDS:
            self._withdraw(next(iter(self._words)))

    def due(self, now_s: float, most: int) -> list[str]:
        """Agents to be checked now, at most so many; each is taken as checked."""
        self._forget(now_s)
        due = [one for one in self._suspects if one not in self._probed_s][:most]
        self._probed_s.update((one, now_s) for one in due)
        return due

    def __len__(self) -> int:
        return self._size

    def _forget(self, now_s: float) -> None:
        while self._words:
            caller = next(iter(self._words))
            if now_s - self._words[caller].at_s < FRESH_S:
                break
            self._withdraw(caller)
        while self._probed_s:
            agent_id = next(iter(self._probed_s))
            if now_s - self._probed_s[agent_id] < COOL_DOWN_S:
                break
            del self._probed_s[agent_id]

    def _withdraw(self, caller: str) -> None:
        word = self._words.pop(caller, None)
        if word is None:
            return
        self._size -= len(word.failures)
        for agent_id, n in word.failures.items():
            self._sums[agent_id] -= n
            if self._sums[agent_id] < ENOUGH:
                self._suspects.pop(agent_id, None)
            if self._sums[agent_id] <= 0:
                del self._sums[agent_id]
