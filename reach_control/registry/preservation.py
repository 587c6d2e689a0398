"""When this node must not trust its own clock: many leases that run out at once say more about it than about them.

Three reasons stop expiry by the clock: more than max(SHARE, FEW) of the agents lapsed within one window (one lease),
the node stood still, or it has just started. The first ends once enough of those agents were heard of, seen alive or
confirmed dead; the others after one lease. None lasts longer than LONGEST_S. What others confirm, and what owners say
themselves, goes on meanwhile (design, "Self-preservation").
"""

from math import inf

SHARE = 0.15
FEW = 2
LONGEST_S = 300.0


class Preservation:
    """`window_s`: one lease. Remembers each lapsed agent at most once."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._lapsed: dict[str, float] = {}  # agent id -> when its lease ran out, earliest first
        self._since_s = inf  # expiry stands still since
        self._granted_until_s = -inf
        self._why = ""

    def grant(self, why: str, now_s: float) -> None:
        """Nothing expires for one lease from now; `why` is a sentence."""
        self._granted_until_s, self._why = now_s + self.window_s, why

    def lapsed(self, agent_id: str, now_s: float) -> None:
        self._lapsed.pop(agent_id, None)
        self._lapsed[agent_id] = now_s

    def back(self, agent_id: str) -> None:
        """Heard of, seen alive, confirmed dead or gone: it says nothing about this node any more."""
        self._lapsed.pop(agent_id, None)

    def frozen(self, now_s: float, agents: int) -> str | None:
        """Why expiry stands still, of so many agents in all; None if it does not."""
        if not self._since_s <= now_s < self._since_s + LONGEST_S:
            self._forget(now_s)
        why = self._reason(now_s, agents)
        if why is None:
            self._since_s = inf
        elif self._since_s == inf:
            self._since_s = now_s
        return why if now_s < self._since_s + LONGEST_S else None

    def _reason(self, now_s: float, agents: int) -> str | None:
        if now_s < self._granted_until_s:
            return self._why
        if len(self._lapsed) > max(SHARE * agents, FEW):
            return (
                f"{len(self._lapsed)} of {agents} agents fell silent at about the same time: "
                "more likely this node or its network is the cause than they are."
            )
        return None

    def _forget(self, now_s: float) -> None:
        while self._lapsed:
            agent_id = next(iter(self._lapsed))
            if now_s - self._lapsed[agent_id] < self.window_s:
                return
            del self._lapsed[agent_id]
