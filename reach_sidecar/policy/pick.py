"""Which of the agents that fit gets the call: the better of two drawn at random.

Drawing two and taking the better one spreads load nearly as well as knowing all loads exactly, and does not
herd every caller onto the one agent that looked idle a moment ago (Mitzenmacher, "The Power of Two Choices").
Agents are drawn by `weight`.
"""

import bisect
import itertools
from collections.abc import Sequence
from random import Random
from typing import NamedTuple


class Candidate(NamedTuple):
    """`load` is (running + queued) / limit, 0 and up; `weight` the agent's declared share."""

    load: float
    weight: float = 1.0


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


def pick(candidates: Sequence[Candidate], weights: Weights, random: Random) -> int:
    """The index of the one to call; `candidates` is not empty."""
    count = len(candidates)
    if count == 1:
        return 0
    if all(candidate.weight == candidates[0].weight for candidate in candidates):
        first = int(random.random() * count)
        second = int(random.random() * (count - 1))
        second += second >= first
    else:
        first, second = _draw_weighted(candidates, random)
    return first if score(candidates[first], weights) >= score(candidates[second], weights) else second


def _draw_weighted(candidates: Sequence[Candidate], random: Random) -> tuple[int, int]:
    """Two different indices, each by weight."""
    first = _draw([candidate.weight for candidate in candidates], random)
    rest = [0.0 if index == first else candidate.weight for index, candidate in enumerate(candidates)]
    return first, _draw(rest, random)


def _draw(weights: list[float], random: Random) -> int:
    sums = list(itertools.accumulate(weights))
    index = bisect.bisect_right(sums, random.random() * sums[-1])
    while index >= len(weights) or weights[index] == 0.0:  # rounding at the upper end
        index -= 1
    return index
