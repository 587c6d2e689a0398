"""The second look: before silence has a consequence, control and three random sidecars go and see.

What is asked of the world leaves as a `Look` and comes back as a `Sighting`. At most MOST_LOOKS are under way and
MOST_A_SECOND begin in a second (four requests each), so that looking never crowds out heartbeats; the others wait their
turn. One that never comes back counts as seen by nobody after LOST_S. If this node stood still while a look was under
way, its time-outs mean nothing: it is made again.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from reach_core.peer import Rank
from reach_core.table import PeerTable

MOST_LOOKS = 64
MOST_A_SECOND = 128
WITNESSES = 3
LOST_S = 10.0
_DRAWN = 12  # sidecars among which three that are heard of are found, unless nearly all are silent


class Look(NamedTuple):
    """See whether the agent's sidecar answers at `address`, and have those at `witnesses` see, too."""

    agent_id: str
    gen: int
    address: str
    witnesses: tuple[str, ...]


class Sighting(NamedTuple):
    """What came of a look: `alive` and `dead` count the witnesses who saw it so, not those who could not be asked."""

    by_control: bool
    alive: int = 0
    dead: int = 0

    @property
    def is_alive(self) -> bool:
        return self.by_control or self.alive > 0

    @property
    def is_confirmed_death(self) -> bool:
        """By control and two sidecars: true even when this node's own clock cannot be trusted."""
        return not self.is_alive and self.dead >= 2


NOBODY = Sighting(by_control=False)


class _UnderWay:
    __slots__ = ("gen", "is_void", "started_s")

    def __init__(self, gen: int, started_s: float) -> None:
        self.gen = gen
        self.started_s = started_s
        self.is_void = False


class Looks:
    """Agents by id, each at most once in line and once under way."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._waiting: dict[str, None] = {}
        self._under_way: dict[str, _UnderWay] = {}
        self._second_s = -1.0  # when the second began in which `_begun` looks were
        self._begun = 0

    def want(self, agent_id: str) -> None:
        self._waiting[agent_id] = None

    def drop(self, agent_id: str) -> None:
        """No longer needed. One that is under way still comes back."""
        self._waiting.pop(agent_id, None)

    def next(self, now_s: float) -> str | None:
        """Whose turn it is, if another look may be made."""
        if now_s - self._second_s >= 1.0:
            self._second_s, self._begun = now_s, 0
        if len(self._under_way) >= MOST_LOOKS or self._begun >= MOST_A_SECOND:
            return None
        for agent_id in self._waiting:
            if agent_id not in self._under_way:
                del self._waiting[agent_id]
                return agent_id
        return None

    def start(self, agent_id: str, gen: int, now_s: float) -> None:
        self._under_way[agent_id] = _UnderWay(gen, now_s)
        self._begun += 1

    def finish(self, agent_id: str, gen: int) -> bool:
        """A look came back. Is it to be judged? One made while this node stood still gets in line again."""
        found = self._under_way.get(agent_id)
        if found is None or found.gen != gen:
            return False
        del self._under_way[agent_id]
        if found.is_void:
            self.want(agent_id)
        return not found.is_void

    def lost(self, now_s: float) -> list[tuple[str, int]]:
        """Agent id and gen of looks that should have come back long ago; still to be finished."""
        return [(one, it.gen) for one, it in self._under_way.items() if now_s - it.started_s >= LOST_S]

    def make_void(self) -> None:
        """Whatever those under way will say, it does not count."""
        for one in self._under_way.values():
            one.is_void = True

    def witnesses(self, table: PeerTable, agent_id: str, is_silent: Callable[[str], bool]) -> tuple[str, ...]:
        """Addresses of up to WITNESSES other sidecars, drawn from those that are up and heard of."""
        drawn = table.random_entries(_DRAWN, self._random, (agent_id,), Rank.DOWN)
        able = [one.address for one in drawn if one.rank <= Rank.UP and not is_silent(one.agent_id)]
        return tuple(able[:WITNESSES])

    def __len__(self) -> int:
        """Those under way."""
        return len(self._under_way)
