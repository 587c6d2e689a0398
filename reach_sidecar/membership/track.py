"""What this sidecar has seen of one agent at one of its capabilities: the breaker, and how often it failed lately.

The owner of the breaker. It judges calls that this sidecar made, and nobody else is told; whether the agent is well
is for its own sidecar to say (`unfit`), and whether it has room, for its queue (`busy`).
"""

from random import Random

from reach_sidecar.policy.breaker import Breaker
from reach_sidecar.policy.pick import FailureRate
from reach_sidecar.policy.repeat import Result

# A `busy` agent or one that refuses works as it should, and a malformed answer is no better than none. Everything else
# that is no failure shows that the agent is there.
_FAILURES: frozenset[str] = frozenset({"connect_failed", "broken", "agent_broke", "timeout", "server_error",
                                       "bad_answer"})
_GOOD: frozenset[str] = frozenset({"answered", "failure", "invalid_request"})


class Track:
    __slots__ = ("breaker", "failures")

    def __init__(self) -> None:
        self.breaker = Breaker()
        self.failures = FailureRate()

    def answered(self, now: float) -> bool:
        """The usual case. True if the breaker closed by it."""
        self.failures.note(False, now)
        return self.breaker.succeeded()

    def judge(self, result: Result, status: int, trial: bool, now: float, random: Random) -> bool:
        """Take note of what became of a call; `status` is that of the agent's answer, 0 where there was none. True if
        the breaker opened or closed by it."""
        if result in _FAILURES or (result == "retryable" and status != 429):
            self.failures.note(True, now)
            return self.breaker.failed(now, random, trial=trial)
        if result in _GOOD or result == "retryable":
            return self.answered(now)
        if trial:
            self.breaker.abandoned()
        return False
