"""Was this node away for so long that it must not tell what it knows?

A tombstone is remembered for 24 h. Who hears nobody for longer than half of that may still hold an agent that was
removed meanwhile and whose removal the others have begun to forget: taken into a comparison, such an entry would bring
the agent back. So such a node forgets its table when it hears of the others again, and loads it anew. While it hears
nobody it goes on with what it has (design, "Control plane and the table").
"""

MAX_AWAY_S = 12 * 3600.0


class Absence:
    """`now_s` has to go on while the machine sleeps (CLOCK_BOOTTIME)."""

    def __init__(self, now_s: float, max_away_s: float = MAX_AWAY_S) -> None:
        self.ended = False
        self._max_away_s = max_away_s
        self._heard_s = now_s

    def is_too_long(self, now_s: float) -> bool:
        """Is what is known not to be told: did an absence end that was too long, or would one end now?"""
        return self.ended or now_s - self._heard_s > self._max_away_s

    def heard(self, now_s: float) -> bool:
        """Another node was heard of. True from the end of an absence that was too long until `reset`: what is known is
        not to be used or told then."""
        self.ended = self.is_too_long(now_s)
        self._heard_s = max(self._heard_s, now_s)
        return self.ended

    def goes_on(self, now_s: float) -> None:
        """Something else shows that this node was not away: it ends no absence, but keeps one from beginning."""
        if not self.is_too_long(now_s):
            self._heard_s = max(self._heard_s, now_s)

    def reset(self) -> None:
        """The table was loaded anew."""
        self.ended = False
