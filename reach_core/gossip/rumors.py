"""What is new enough to be told: each entry for a bounded number of rounds, what was told the least first.

A round is a draw of four peers who get the same datagrams. After `4·⌈log10(N+1)⌉` rounds practically everybody has been
told (Karp et al., "Randomized Rumor Spreading", FOCS 2000, has the bounds); who was missed finds out by comparison.
"""

from math import ceil, log10

from reach_core.gossip.datagram import Datagram, pack
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
    """At most `most` of them; beyond that those that were told the most go first."""

    def __init__(self, most: int = 4096) -> None:
        self.notice = 0
        self._notice_left = 0
        self._most = most
        self._rumors: dict[str, _Rumor] = {}

    def __len__(self) -> int:
        return len(self._rumors)

    def __bool__(self) -> bool:
        return bool(self._rumors) or self._notice_left > 0

    def add(self, entry: Entry, rounds: int) -> None:
        """Tell it for so many rounds, instead of what was told of the same agent until now."""
        self._rumors.pop(entry.agent_id, None)
        if rounds > 0:
            if len(self._rumors) >= self._most:
                stalest = max(self._rumors, key=lambda name: self._rumors[name].told)
                del self._rumors[stalest]
            self._rumors[entry.agent_id] = _Rumor(entry, rounds)

    def drop(self, agent_id: str) -> None:
        """Tell it no more."""
        self._rumors.pop(agent_id, None)

    def note(self, notice: int, rounds: int) -> bool:
        """There is a newer version of what holds mesh-wide; False if that is known."""
        if notice <= self.notice:
            return False
        self.notice, self._notice_left = notice, rounds
        return True

    def next(self, sender: str, datagrams: int = 4, fresh_only: bool = False) -> list[Datagram]:
        """One round: at most so many datagrams, the same for all who are told. `fresh_only`: only what has not been
        told yet."""
        chosen = [one for one in self._rumors.values() if not (fresh_only and one.told)]
        if len(chosen) > 1:
            chosen.sort(key=lambda one: one.told)
        made: list[Datagram] = []
        while chosen and len(made) < datagrams:
            datagram, taken = pack([one.entry for one in chosen[:64]], sender, self.notice)
            for one in chosen[:taken]:
                one.told += 1
                one.left -= 1
                if one.left <= 0:
                    del self._rumors[one.entry.agent_id]
            chosen = chosen[taken:]
            made.append(datagram)
        if self._notice_left > 0:
            self._notice_left -= 1
            if not made:
                made.append(Datagram(0, sender, 0, self.notice))
        return made
