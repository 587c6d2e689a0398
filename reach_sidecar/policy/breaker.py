"""Whether an agent that keeps failing is given calls: one breaker for each agent and capability.

*Closed*: calls flow, and failures in a row are counted. The tenth opens it.
*Open*: no calls for a rest, 10 s at first. What was sent before the opening may still fail; that is old news.
*Half open*: the rest is over. One call, the trial, is let through. Its failure starts a rest twice as long, up
to 5 min; any success closes the breaker and forgets all that was. A trial that ended without a verdict (the
caller went away, the agent was busy) hands its place to the next call.

Each rest is varied by ±20 %, so that callers which saw the agent fail together do not come back together.
(Design §3, "Breaker"; what counts as a failure is decided by those who know the answer.)
"""

from random import Random
from typing import Literal

OPENS_AT = 10  # failures in a row
REST_S = 10.0
LONGEST_REST_S = 300.0
REST_SPREAD = 0.2  # a rest is its length ± this share of it

State = Literal["closed", "open", "half_open"]


class Breaker:
    """`failures` in a row; `open_until` in the loop's seconds, 0.0 while closed."""

    __slots__ = ("_next_rest_s", "_on_trial", "failures", "open_until")

    def __init__(self) -> None:
        self.failures: int = 0
        self.open_until: float = 0.0
        self._next_rest_s: float = REST_S
        self._on_trial: bool = False

    def state(self, now: float) -> State:
        if self.open_until == 0.0:
            return "closed"
        return "open" if now < self.open_until else "half_open"

    def allows(self, now: float) -> bool:
        """May a call be sent now? Asking changes nothing: `begin` does."""
        return self.open_until == 0.0 or (now >= self.open_until and not self._on_trial)

    def begin(self, now: float) -> bool:
        """A call is sent now. True when it is the trial: then `succeeded`, `failed` or `abandoned` must follow.

        False as well for a call that was let through although `allows` said no.
        """
        if self.open_until == 0.0 or now < self.open_until or self._on_trial:
            return False
        self._on_trial = True
        return True

    def succeeded(self) -> bool:
        """A call came back well, whichever it was. True if the breaker was not closed before."""
        if self.failures == 0:  # never so while it is open
            return False
        was_open = self.open_until != 0.0
        self.failures = 0
        self.open_until = 0.0
        self._next_rest_s = REST_S
        self._on_trial = False
        return was_open

    def failed(self, now: float, random: Random, *, trial: bool = False) -> bool:
        """A call failed; `trial` is what `begin` said of it. True if the breaker opened, or opened again, just now."""
        if self.open_until == 0.0:
            self.failures += 1
            if self.failures < OPENS_AT:
                return False
        elif trial and self._on_trial:
            self.failures += 1
        else:
            return False
        self._open(now, random)
        return True

    def abandoned(self) -> None:
        """The trial ended without a verdict: the next call is the trial."""
        self._on_trial = False

    def _open(self, now: float, random: Random) -> None:
        rest_s = self._next_rest_s * (1.0 - REST_SPREAD + 2.0 * REST_SPREAD * random.random())
        self.open_until = now + rest_s
        self._next_rest_s = min(2.0 * self._next_rest_s, LONGEST_REST_S)
        self._on_trial = False
