"""Which of the agents that fit gets the call: the better of two drawn at random.

Drawing two and taking the better one spreads load nearly as well as knowing all loads exactly, and does not
herd every caller onto the one agent that looked idle a moment ago (Mitzenmacher, "The Power of Two Choices").
Agents are drawn by `weight`. What makes one better is its score: how well it fits what was asked, how busy it is,
how far away, how much of what was preferred it has, and how often it failed lately.
"""

import bisect
import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

MATCH: dict[str, float] = {"exact": 1.0, "alias": 0.9, "fallback": 0.5}
"""The term `match` by what `Reach-Matched` says."""

NEAR_S = 0.005  # a round trip up to here is the machine's mood, not a distance
HALVED_S = 0.05  # as much on top of NEAR_S halves the factor

FAILURE_HALF_LIFE_S = 10.0
FAILURE_STEP = 0.2  # how much the latest call counts against all before it
FORGOTTEN = 0.001  # a rate below this is none

MANY = 5  # agents, of which more than half are broken


class Candidate(NamedTuple):
    """What an agent is judged by. `load` is (running + queued) / limit, 0 and up; the others lie in 0…1.

    `match` is one of MATCH, `rtt` from `rtt_factor`, `prefer` the share of `Reach-Prefer` that is met, `fail` from
    `FailureRate`.
    """

    load: float
    match: float = 1.0
    rtt: float = 1.0
    prefer: float = 0.0
    fail: float = 0.0


class Weights(NamedTuple):
    """How much each term counts (design §3, defaults)."""

    match: float = 1.0
    load: float = 0.6
    rtt: float = 0.2
    prefer: float = 0.4
    fail: float = 0.4


def score(candidate: Candidate, weights: Weights) -> float:
    """Larger is better; every term lies between 0 and 1 (design §3, "Picking")."""
    load, match, rtt, prefer, fail = candidate
    return (weights.match * match + weights.load / (1.0 + load) + weights.rtt * rtt + weights.prefer * prefer
            - weights.fail * fail)


def rtt_factor(rtt_s: float | None) -> float:
    """1 for an agent nearby, or of unknown distance; 0.53 at 50 ms, 0.2 at 200 ms.

    Up to 5 ms nothing is told apart: on one machine such differences come from what else is running, and the
    smallest would outweigh a call more in the queue of an agent that takes many at once.
    """
    if rtt_s is None or rtt_s <= NEAR_S:
        return 1.0
    return HALVED_S / (HALVED_S + rtt_s - NEAR_S)


class FailureRate:
    """How much of what was lately sent to one agent failed, 0…1. `now` in the loop's seconds.

    Each call moves the rate a fifth of the way to what it was, a failure (1) or not (0). Time halves it every 10 s, so
    that an agent nobody calls any more because of it is tried again.
    """

    __slots__ = ("_at", "_rate")

    def __init__(self) -> None:
        self._rate: float = 0.0
        self._at: float = 0.0

    def note(self, failed: bool, now: float) -> None:
        if not failed and self._rate == 0.0:
            return
        rate = (1.0 - FAILURE_STEP) * self.at(now) + (FAILURE_STEP if failed else 0.0)
        self._rate = rate if rate > FORGOTTEN else 0.0
        self._at = now

    def at(self, now: float) -> float:
        if self._rate == 0.0:
            return 0.0
        decayed: float = self._rate * 0.5 ** ((now - self._at) / FAILURE_HALF_LIFE_S)
        return decayed


def through_broken(total: int, broken: int, random: Random) -> bool:
    """Is this call to be picked for as if no breaker were open? `broken` of the `total` agents have theirs open.

    Where most of many are broken, to leave them alone would send everything to the few that are not, and break those
    too. So that share of the calls that the broken ones were to get still may go to them (design §3, "Breaker").
    """
    return total >= MANY and 2 * broken > total and random.random() * total < broken


def pick(shares: Sequence[float], candidate: Callable[[int], Candidate], weights: Weights, random: Random) -> int:
    """The index of the one to call. `shares` are the agents' declared weights, at least one, all above 0.

    `candidate` is asked for the two that are drawn only: there may be hundreds.
    """
    if len(shares) == 1:
        return 0
    first, second = _draw_two(shares, random)
    return first if score(candidate(first), weights) >= score(candidate(second), weights) else second


def _draw_two(shares: Sequence[float], random: Random) -> tuple[int, int]:
    """Two different indices, each drawn by its share."""
    count = len(shares)
    if min(shares) == max(shares):
        first = int(random.random() * count)
        second = int(random.random() * (count - 1))
        return first, second + (second >= first)
    first = _draw(shares, random)
    return first, _draw([0.0 if index == first else share for index, share in enumerate(shares)], random)


def _draw(shares: Sequence[float], random: Random) -> int:
    sums = list(itertools.accumulate(shares))
    index = bisect.bisect_right(sums, random.random() * sums[-1])
    while index >= len(shares) or shares[index] == 0.0:  # rounding at the upper end
        index -= 1
    return index
