"""The better of two, drawn by weight."""

from collections import Counter
from random import Random
from typing import NamedTuple

import pytest

from reach_sidecar.policy.pick import MATCH, Candidate, FailureRate, Weights, pick, rtt_factor, score, through_broken

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
    assert scores[0] == pytest.approx(1.8)
    assert scores[-1] == pytest.approx(1.2)


def test_same_seed_same_choice() -> None:
    candidates = [Agent(0.1 * index, 1.0 + index) for index in range(6)]
    first, second = Random(3), Random(3)
    assert [picked(candidates, WEIGHTS, first) for _ in range(50)] == [picked(candidates, WEIGHTS, second)
                                                                    for _ in range(50)]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (Candidate(0.0), Candidate(0.1)),
        (Candidate(0.0), Candidate(0.0, match=MATCH["alias"])),
        (Candidate(0.0, match=MATCH["alias"]), Candidate(0.0, match=MATCH["fallback"])),
        (Candidate(0.0), Candidate(0.0, rtt=rtt_factor(0.05))),
        (Candidate(0.0, prefer=1.0), Candidate(0.0, prefer=0.5)),
        (Candidate(0.0), Candidate(0.0, fail=0.2)),
        (Candidate(0.1), Candidate(0.0, fail=0.2)),  # an idle one that fails is no bargain
        (Candidate(1.0, prefer=1.0), Candidate(0.0)),
    ],
)
def test_each_term_counts(better: Candidate, worse: Candidate) -> None:
    assert score(better, WEIGHTS) > score(worse, WEIGHTS)
    nothing = Weights(0.0, 0.0, 0.0, 0.0, 0.0)
    assert score(better, nothing) == score(worse, nothing) == 0.0


def test_the_score_term_by_term() -> None:
    candidate = Candidate(3.0, match=0.5, rtt=0.25, prefer=0.75, fail=0.125)
    weights = Weights(1000.0, 400.0, 8.0, 4.0, 8.0)
    assert score(candidate, weights) == 500.0 + 100.0 + 2.0 + 3.0 - 1.0


@pytest.mark.parametrize(
    ("rtt_s", "factor"),
    [(None, 1.0), (0.0, 1.0), (0.0005, 1.0), (0.003, 1.0), (0.005, 1.0), (0.05, 0.526), (0.2, 0.204), (10.0, 0.005)],
)
def test_rtt_factor(rtt_s: float | None, factor: float) -> None:
    assert rtt_factor(rtt_s) == pytest.approx(factor, abs=0.001)


@pytest.mark.parametrize("limit", [1, 4, 64, 1000, 1_000_000])
@pytest.mark.parametrize("queued", [0, 1, 100])
def test_one_machine_is_one_place(limit: int, queued: int) -> None:
    """Half a millisecond or three: the agent with a call less wins."""
    near_but_busier = Candidate((queued + 1) / limit, rtt=rtt_factor(0.0005))
    idler = Candidate(queued / limit, rtt=rtt_factor(0.003))
    assert score(idler, WEIGHTS) > score(near_but_busier, WEIGHTS)


def test_no_failure_no_rate() -> None:
    rate = FailureRate()
    assert rate.at(5.0) == 0.0
    for _ in range(10):
        rate.note(False, 5.0)
    assert rate.at(5.0) == 0.0


def test_failures_raise_it_and_successes_lower_it() -> None:
    rate = FailureRate()
    seen = [0.0]
    for _ in range(20):
        rate.note(True, 7.0)
        seen.append(rate.at(7.0))
    assert seen[1] == pytest.approx(0.2)
    assert seen[-1] == pytest.approx(1.0, abs=0.02)
    assert seen == sorted(seen)
    for _ in range(100):
        before = rate.at(7.0)
        rate.note(False, 7.0)
        assert rate.at(7.0) < before or before == 0.0
    assert rate.at(7.0) == 0.0


@pytest.mark.parametrize(("after_s", "share"), [(0.0, 1.0), (10.0, 0.5), (20.0, 0.25), (100.0, 0.001)])
def test_time_halves_it(after_s: float, share: float) -> None:
    rate = FailureRate()
    for _ in range(8):
        rate.note(True, 50.0)
    assert rate.at(50.0 + after_s) == pytest.approx(rate.at(50.0) * share, rel=0.03)


def test_many_calls_show_the_share_that_fails() -> None:
    random = Random(5)
    rate = FailureRate()
    seen = []
    for number in range(5000):
        rate.note(random.random() < 0.3, number / 1000)
        seen.append(rate.at(number / 1000))
    assert sum(seen[100:]) / len(seen[100:]) == pytest.approx(0.3, abs=0.03)
    assert 0.0 <= min(seen) <= max(seen) <= 1.0


@pytest.mark.parametrize(
    ("total", "broken", "share"),
    [(0, 0, 0.0), (1, 1, 0.0), (4, 4, 0.0), (5, 2, 0.0), (5, 3, 0.6), (5, 5, 1.0), (6, 3, 0.0), (10, 6, 0.6), (10, 0, 0.0)],
)
def test_the_many_broken_rule(total: int, broken: int, share: float) -> None:
    random = Random(9)
    let_through = sum(through_broken(total, broken, random) for _ in range(5000)) / 5000
    assert let_through == pytest.approx(share, abs=0.02)
    if share in (0.0, 1.0):
        assert let_through == share


@pytest.mark.parametrize("first_seed", range(0, 200, 50))
def test_a_hundred_at_once_over_ten_agents(first_seed: int) -> None:
    """By a caller that knows what it has under way itself. No agent of limit 4 needs more than three rounds."""
    for seed in range(first_seed, first_seed + 50):
        random = Random(seed)
        in_flight = [0] * 10
        for _ in range(100):
            in_flight[pick([1.0] * 10, lambda index: Candidate(in_flight[index] / 4), WEIGHTS, random)] += 1  # noqa: B023
        assert max(in_flight) <= 12, f"seed {seed}: {in_flight}"
