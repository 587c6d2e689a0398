"""Agents that go up and down again and again are kept out for a while.

The first return after a suspicion is at once. Who falls again within FORGET cool-downs is held suspect for one
cool-down after its return, then for twice as long each time, at most LONGEST of them. Quiet for FORGET, and all is
forgotten. It is by agent and not by registration: a process that dies and starts every minute flaps as well, though its
new registration itself is taken at once (design, "Liveness": only a repeated up -> suspect).
"""

from typing import NamedTuple

COOL_DOWN_S = 30.0
LONGEST = 10
FORGET = 20
MOST_AGENTS = 20_000


class _Falls(NamedTuple):
    times: int
    last_s: float


class Damping:
    """Remembers at most `MOST_AGENTS`, those that fell last. `cool_down_s` as configured; 0: nobody is held."""

    def __init__(self, cool_down_s: float = COOL_DOWN_S) -> None:
        self._cool_down_s = cool_down_s
        self._falls: dict[str, _Falls] = {}  # by agent id, the longest quiet first

    def fell(self, agent_id: str, now_s: float) -> None:
        """The agent went from up to suspect."""
        self._forget(now_s)
        before = self._falls.pop(agent_id, None)
        self._falls[agent_id] = _Falls(1 if before is None else before.times + 1, now_s)
        if len(self._falls) > MOST_AGENTS:
            del self._falls[next(iter(self._falls))]

    def released(self, agent_id: str, now_s: float) -> None:
        """Its time is over: it is up again, and the quiet time begins."""
        before = self._falls.pop(agent_id, None)
        if before is not None:
            self._falls[agent_id] = before._replace(last_s=now_s)

    def hold_s(self, agent_id: str, now_s: float) -> float:
        """For how many seconds after its return it stays suspect; 0: not at all."""
        self._forget(now_s)
        falls = self._falls.get(agent_id)
        if falls is None or falls.times < 2:
            return 0.0
        return self._cool_down_s * min(LONGEST, 2.0 ** min(falls.times - 2, 16))

    def __len__(self) -> int:
        return len(self._falls)

    def _forget(self, now_s: float) -> None:
        while self._falls:
            agent_id = next(iter(self._falls))
            if now_s - self._falls[agent_id].last_s < FORGET * self._cool_down_s:
                return
            del self._falls[agent_id]
