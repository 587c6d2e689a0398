"""Which of the agents that fit gets the call: the better of two drawn at random.

Drawing two and taking the better one spreads load nearly as well as knowing all loads exactly, and does not
herd every caller onto the one agent that looked idle a moment ago (Mitzenmacher, "The Power of Two Choices").
Agents are drawn by `weight`.
"""

import bisect
import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple


class Candidate(NamedTuple):
    """What an agent is judged by. `load` is (running + queued) / limit, 0 and up."""

    load: float


class Weights(NamedTuple):
    """How much each term counts (design §3, defaults)."""

    match: float = 1.0
    load: float = 0.6
    rtt: float = 0.2
    prefer: float = 0.4
    fail: float = 0.4


def score(candidate: Candidate, weights: Weights) -> float:
    """Larger is better; every term lies between 0 and 1."""
    return weights.match + weights.load / (1.0 + candidate.load)


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
