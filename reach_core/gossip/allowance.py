"""How many signatures may be verified: 200 a second for each source, 2,000 in all.

Verifying takes 0.15 ms, so one who sends forged entries takes at most 3 % of a CPU, and all who do together 30 %. What
is left unverified is not lost: the next comparison brings it from somebody else.

Each source has a bucket of tokens, and there is one over all. A source that was quiet until its bucket must be full
again is as good as unknown and forgotten. When there are too many others, newcomers share one bucket: whoever calls
himself something new each time gets no more by it, and those who were here before keep what is theirs.
"""

_NEWCOMERS = ""


class Bucket:
    """`burst` tokens at first, and `rate` more a second up to `burst`."""

    __slots__ = ("_at_s", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._at_s = now_s

    def left(self, now_s: float) -> int:
        """Whole tokens there are now."""
        if now_s > self._at_s:  # a clock that goes back gives nothing, and nothing twice
            self._tokens = min(self.burst, self._tokens + (now_s - self._at_s) * self.rate)
            self._at_s = now_s
        return int(self._tokens + 1e-9)

    def take(self, count: int) -> None:
        """At most as many as `left` said."""
        self._tokens -= count

    def wait_s(self, count: int) -> float:
        """Seconds from the last `left` until there are `count`."""
        return max(0.0, (count - self._tokens) / self.rate)

    def is_full_by(self, now_s: float) -> bool:
        """Is it full again, however much was taken?"""
        return now_s - self._at_s >= self.burst / self.rate


class Allowance:
    """`rate` and `total` are tokens a second, `burst` what one source may save up; `most_sources` have buckets of their
    own at a time."""

    def __init__(
        self, rate: float = 200.0, burst: float = 200.0, most_sources: int = 4096, total: float = 2000.0
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._most_sources = most_sources
        self._total = total
        self._in_all: Bucket | None = None
        self._by_source: dict[str, Bucket] = {}  # who asked last is last

    def __len__(self) -> int:
        return len(self._by_source)

    def take(self, source: str, now_s: float, count: int = 1) -> int:
        """How many of `count` verifications `source` may have now."""
        if self._in_all is None:
            self._in_all = Bucket(self._total, self._total, now_s)
        own = self._bucket(source, now_s)
        granted = max(0, min(count, own.left(now_s), self._in_all.left(now_s)))
        own.take(granted)
        self._in_all.take(granted)
        return granted

    def _bucket(self, source: str, now_s: float) -> Bucket:
        found = self._by_source.pop(source, None)
        if found is None:
            self._forget_full(now_s)
            if len(self._by_source) >= self._most_sources:
                source = _NEWCOMERS
                found = self._by_source.pop(source, None)
            if found is None:
                found = Bucket(self._rate, self._burst, now_s)
        self._by_source[source] = found
        return found

    def _forget_full(self, now_s: float) -> None:
        """Those that were quiet the longest are the first, so this looks at no more than it drops, and one."""
        while self._by_source:
            source = next(iter(self._by_source))
            if not self._by_source[source].is_full_by(now_s):
                return
            del self._by_source[source]
