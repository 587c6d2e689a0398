"""The better of two, drawn by weight."""

from collections import Counter
from random import Random
from typing import NamedTuple

import pytest

from reach_sidecar.policy.pick import Candidate, Weights, pick, score

WEIGHTS = Weights()


class Agent(NamedTuple):
    load: float
    share: float = 1.0


def picked(agents: list[Agent], weights: Weights, random: Random) -> int:
    return pick([agent.share for agent in agents], lambda index: Candidate(agents[index].load), weights, random)


def shares(candidates: list[Agent], weights: Weights = WEIGHTS, draws: int = 20_000, seed: int = 7) -> list[float]:
    random = Random(seed)
    counts = Counter(picked(candidates, weights, random) for _ in range(draws))
    return [counts[index] / draws for index in range(len(candidates))]


def test_one_candidate_needs_no_luck() -> None:
    random = Random(1)
    before = random.getstate()
    assert picked([Agent(9.0, 0.5)], WEIGHTS, random) == 0
    assert random.getstate() == before


def test_two_are_both_drawn_and_the_idler_wins_always() -> None:
    assert shares([Agent(0.5), Agent(0.1)]) == [0.0, 1.0]
    assert shares([Agent(0.0), Agent(3.0)]) == [1.0, 0.0]


def test_equals_share_alike() -> None:
    for count in (2, 3, 10):
        for share in shares([Agent(0.2)] * count):
            assert share == pytest.approx(1 / count, abs=0.015)


def test_the_busiest_of_many_is_never_picked_the_idlest_not_always() -> None:
    found = shares([Agent(load) for load in (0.0, 0.3, 0.6, 0.9)])
    # the idlest wins whenever it is drawn: 2 of 4; the next when it is drawn without the idlest; and so on
    for share, expected in zip(found, (3 / 6, 2 / 6, 1 / 6, 0.0), strict=True):
        assert share == pytest.approx(expected, abs=0.015)


def test_weights_draw() -> None:
    """Three with weights 8, 1, 1 at equal load: the first of two drawn wins a tie, so its share is its weight."""
    found = shares([Agent(0.2, 8.0), Agent(0.2, 1.0), Agent(0.2, 1.0)])
    assert found[0] == pytest.approx(0.8, abs=0.02)
    assert found[1] == pytest.approx(found[2], abs=0.02)


def test_weight_does_not_outvote_load() -> None:
    """Of two, both are drawn whatever they weigh."""
    assert shares([Agent(1.0, 1000.0), Agent(0.0, 0.001)]) == [0.0, 1.0]


def test_extreme_weights_never_leave_the_list() -> None:
    candidates = [Agent(0.0, 1e-300), Agent(0.0, 1e6), Agent(0.0, 1e-300)]
    assert sum(shares(candidates, draws=2_000)) == 1.0


class AtTheEdge(Random):
    """Draws the largest number there is below 1."""

    def random(self) -> float:
        return 1.0 - 2**-53


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.1, 0.2, 0.7), (3.0, 1e-9, 1e-9)])
def test_rounding_at_the_upper_end(weights: tuple[float, ...]) -> None:
    candidates = [Agent(0.0, weight) for weight in weights]
    assert picked(candidates, WEIGHTS, AtTheEdge()) in range(3)


def test_without_a_weight_for_load_nothing_else_tells_them_apart() -> None:
    for share in shares([Agent(0.0), Agent(5.0)], Weights(load=0.0)):
        assert share == pytest.approx(0.5, abs=0.015)


def test_score_falls_with_load_and_stays_in_bounds() -> None:
    scores = [score(Candidate(load), WEIGHTS) for load in (0.0, 0.1, 1.0, 10.0, 1e9)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1.6)
    assert scores[-1] == pytest.approx(1.0)


def test_same_seed_same_choice() -> None:
    candidates = [Agent(0.1 * index, 1.0 + index) for index in range(6)]
    first, second = Random(3), Random(3)
    assert [picked(candidates, WEIGHTS, first) for _ in range(50)] == [picked(candidates, WEIGHTS, second)
                                                                    for _ in range(50)]
