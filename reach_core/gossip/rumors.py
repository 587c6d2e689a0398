"""What is new enough to be told: each entry for a bounded number of rounds, what was told the least first.

A round is a draw of four peers who get the same datagrams. After `4·⌈log10(N+1)⌉` rounds practically everybody has been
told (Karp et al., "Randomized Rumor Spreading", FOCS 2000, has the bounds); who was missed finds out by comparison.

Rumors lie in levels, one for each number of times told, so that a storm of news costs no sorting: a round takes from
the lowest level up, and what is too much goes from the highest.
"""

from collections.abc import Callable
from math import ceil, log10

from reach_core.gossip.datagram import MAX_NEWS, NEWS, Datagram, pack
from reach_core.peer import Entry

FAN_OUT = 4
PERIOD_S = 0.2


def rounds(agents: int) -> int:
    """In how many rounds each node tells a piece of news, in a mesh of so many agents."""
    return 4 * ceil(log10(agents + 1)) if agents > 0 else 0


class _Rumor:
    __slots__ = ("entry", "left", "told")

    def __init__(self, entry: Entry, left: int) -> None:
        self.entry = entry
        self.left = left
        self.told = 0


class Rumors:
    """At most `most` of them, at least 1; beyond that those that were told the most go first."""

    def __init__(self, most: int = 4096) -> None:
        self.notice = 0
        self._notice_left = 0
        self._notice_is_fresh = False
        self._most = most
        self._rumors: dict[str, _Rumor] = {}
        self._levels: list[dict[str, _Rumor]] = [{}]  # by how often told; the same rumors

    def __len__(self) -> int:
        return len(self._rumors)

    def __bool__(self) -> bool:
        return bool(self._rumors) or self._notice_left > 0

    @property
    def has_fresh(self) -> bool:
        """Is there anything that has never been told?"""
        return bool(self._levels[0]) or self._notice_is_fresh

    def add(self, entry: Entry, rounds: int) -> None:
        """Tell it for so many rounds, instead of what was told of the same agent until now."""
        self.drop(entry.agent_id)
        if rounds > 0:
            if len(self._rumors) >= self._most:
                self.drop(next(iter(next(level for level in reversed(self._levels) if level))))
            self._levels[0][entry.agent_id] = self._rumors[entry.agent_id] = _Rumor(entry, rounds)

    def drop(self, agent_id: str) -> None:
        """Tell it no more."""
        rumor = self._rumors.pop(agent_id, None)
        if rumor is not None:
            del self._levels[rumor.told][agent_id]

    def keep(self, is_true: Callable[[Entry], bool]) -> None:
        """Tell no more what is not true (any more)."""
        for agent_id in [agent_id for agent_id, rumor in self._rumors.items() if not is_true(rumor.entry)]:
            self.drop(agent_id)

    def note(self, notice: int, rounds: int) -> bool:
        """There is a newer version of what holds mesh-wide; False if that is known."""
        if notice <= self.notice:
            return False
        self.notice, self._notice_left = notice, rounds
        self._notice_is_fresh = rounds > 0
        return True

    def next(self, sender: str, datagrams: int = 4, fresh_only: bool = False) -> list[Datagram]:
        """One round: at most so many datagrams, the same for all who are told. `fresh_only`: only what has not been
        told yet."""
        chosen = self._least_told(datagrams * MAX_NEWS, fresh_only)
        made: list[Datagram] = []
        first = 0
        while first < len(chosen) and len(made) < datagrams:
            datagram, taken = pack([one.entry for one in chosen[first : first + MAX_NEWS]], sender, self.notice)
            made.append(datagram)
            first += taken
        for rumor in chosen[:first]:
            self._was_told(rumor)
        if self._notice_left > 0 and (self._notice_is_fresh or not fresh_only):
            self._notice_left -= 1
            self._notice_is_fresh = False
            if not made:
                made.append(Datagram(NEWS, sender, 0, self.notice))
        if not self._rumors and len(self._levels) > 1:
            self._levels = [{}]
        return made

    def _least_told(self, most: int, fresh_only: bool) -> list[_Rumor]:
        found: list[_Rumor] = []
        for level in self._levels[:1] if fresh_only else self._levels:
            for rumor in level.values():
                if len(found) == most:
                    return found
                found.append(rumor)
        return found

    def _was_told(self, rumor: _Rumor) -> None:
        agent_id = rumor.entry.agent_id
        del self._levels[rumor.told][agent_id]
        rumor.told += 1
        rumor.left -= 1
        if rumor.left <= 0:
            del self._rumors[agent_id]
            return
        if rumor.told == len(self._levels):
            self._levels.append({})
        self._levels[rumor.told][agent_id] = rumor
