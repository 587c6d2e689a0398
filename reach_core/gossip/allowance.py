"""How many signatures may be verified: 200 a second for each source, 2,000 in all (design, "Signed entries").

Whoever sends forged entries so costs a few per cent of one CPU at most. What is left unverified is not lost: the next
comparison brings it from somebody else.
"""


class Allowance:
    """A bucket of tokens for each source and one over all; bounded memory."""

    def __init__(self, rate: float = 200.0, burst: float = 200.0, most_sources: int = 4096,
                 total: float = 2000.0) -> None:
        self._rate = rate
        self._burst = burst
        self._most_sources = most_sources
        self._total = total
        self._left: dict[str, tuple[float, float]] = {}  # by source: tokens, and when that was
        self._left_in_all = (total, 0.0)

    def take(self, source: str, now_s: float, count: int = 1) -> int:
        """How many of `count` verifications `source` may have now."""
        own = _refilled(self._left.get(source), self._rate, self._burst, now_s)
        in_all = _refilled(self._left_in_all, self._total, self._total, now_s)
        granted = max(0, min(count, int(own), int(in_all)))
        if source not in self._left and len(self._left) >= self._most_sources:
            self._forget_full(now_s)
        self._left[source] = (own - granted, now_s)
        self._left_in_all = (in_all - granted, now_s)
        return granted

    def _forget_full(self, now_s: float) -> None:
        """A source whose bucket is full again is as good as unknown; if all are busy, the oldest goes."""
        full = [one for one, left in self._left.items()
                if _refilled(left, self._rate, self._burst, now_s) >= self._burst]
        for source in full:
            del self._left[source]
        while len(self._left) >= self._most_sources:
            del self._left[next(iter(self._left))]


def _refilled(left: tuple[float, float] | None, rate: float, burst: float, now_s: float) -> float:
    if left is None:
        return burst
    tokens, at_s = left
    return min(burst, tokens + max(0.0, now_s - at_s) * rate)
