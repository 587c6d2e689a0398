"""When a breaker opens, how long it rests, and that one call at a time tries it."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.policy.breaker import LONGEST_REST_S, OPENS_AT, Breaker


class Middle(Random):
    """Draws the middle: a rest is exactly as long as it says."""

    def random(self) -> float:
        return 0.5


def opened(now: float = 100.0) -> Breaker:
    breaker = Breaker()
    assert [breaker.failed(now, Middle()) for _ in range(OPENS_AT)] == [False] * 9 + [True]
    return breaker


def fail_the_trial(breaker: Breaker, random: Random | None = None) -> float:
    """One trial as soon as it may be. The length of the rest that follows, in seconds."""
    now = breaker.open_until
    assert breaker.allows(now)
    assert breaker.begin(now)
    assert breaker.failed(now, random or Middle(), trial=True)
    return breaker.open_until - now


def test_a_new_one_is_closed() -> None:
    breaker = Breaker()
    assert breaker.state(0.0) == "closed"
    assert breaker.allows(0.0)
    assert not breaker.begin(0.0)
    assert not breaker.succeeded()
    assert (breaker.failures, breaker.open_until) == (0, 0.0)


def test_the_tenth_failure_in_a_row_opens_it() -> None:
    breaker = Breaker()
    for count in range(1, 10):
        assert not breaker.failed(5.0, Middle())
        assert breaker.failures == count
        assert breaker.allows(5.0)
    assert breaker.failed(5.0, Middle())
    assert breaker.open_until == pytest.approx(15.0)
    assert not breaker.allows(5.0)


def test_a_success_between_starts_the_count_again() -> None:
    breaker = Breaker()
    for _ in range(9):
        breaker.failed(5.0, Middle())
    assert not breaker.succeeded()
    assert breaker.failures == 0
    assert not any(breaker.failed(5.0, Middle()) for _ in range(9))
    assert breaker.failed(5.0, Middle())


@pytest.mark.parametrize(
    ("after_s", "state", "allows", "begins_trial"),
    [
        (0.0, "open", False, False),
        (9.999, "open", False, False),
        (10.0, "half_open", True, True),
        (5000.0, "half_open", True, True),
    ],
)
def test_rest(after_s: float, state: str, allows: bool, begins_trial: bool) -> None:
    breaker = opened(100.0)
    now = 100.0 + after_s
    assert breaker.state(now) == state
    assert breaker.allows(now) is allows
    assert breaker.begin(now) is begins_trial


def test_one_trial_and_no_second_beside_it() -> None:
    breaker = opened()
    now = breaker.open_until
    assert breaker.allows(now)
    assert breaker.allows(now)  # asking takes nothing
    assert breaker.begin(now)
    assert not breaker.allows(now)
    assert not breaker.allows(now + 1000.0)
    assert not breaker.begin(now)  # let through by another rule: no trial
    assert breaker.state(now) == "half_open"


def test_a_good_trial_closes_it_and_all_is_forgotten() -> None:
    breaker = opened()
    fail_the_trial(breaker)
    fail_the_trial(breaker)
    assert breaker.begin(breaker.open_until)
    assert breaker.succeeded()
    assert not breaker.succeeded()
    assert breaker.state(1.0) == "closed"
    assert (breaker.failures, breaker.open_until) == (0, 0.0)
    again = [breaker.failed(1000.0, Middle()) for _ in range(10)]
    assert again == [False] * 9 + [True]
    assert breaker.open_until == pytest.approx(1010.0)


def test_rests_double_up_to_five_minutes() -> None:
    breaker = opened()
    assert [round(fail_the_trial(breaker)) for _ in range(7)] == [20, 40, 80, 160, 300, 300, 300]


@pytest.mark.parametrize("seed", range(5))
def test_rests_vary_by_a_fifth(seed: int) -> None:
    random = Random(seed)
    rests = []
    for _ in range(300):
        breaker = Breaker()
        for _ in range(10):
            breaker.failed(0.0, random)
        rests.append(breaker.open_until)
    assert 8.0 <= min(rests) < 8.3
    assert 11.7 < max(rests) <= 12.0
    breaker = opened()
    longest = [fail_the_trial(breaker, random) for _ in range(50)][5:]
    assert all(0.8 * LONGEST_REST_S <= rest <= 1.2 * LONGEST_REST_S + 1e-9 for rest in longest)


def test_stragglers_that_fail_change_nothing() -> None:
    breaker = opened(100.0)
    before = breaker.failures, breaker.open_until
    for now in (101.0, 109.0, 110.0, 120.0):  # during the rest, and after it
        assert not breaker.failed(now, Middle())
    assert breaker.begin(120.0)
    assert not breaker.failed(120.0, Middle())  # not the trial, which is still under way
    assert not breaker.allows(121.0)
    assert (breaker.failures, breaker.open_until) == before


def test_a_straggler_that_succeeds_closes_it() -> None:
    breaker = opened(100.0)
    assert breaker.succeeded()
    assert breaker.allows(101.0)


def test_an_abandoned_trial_hands_its_place_on() -> None:
    breaker = opened(100.0)
    assert breaker.begin(110.0)
    breaker.abandoned()
    assert breaker.state(110.0) == "half_open"
    assert breaker.allows(110.0)
    assert breaker.begin(110.0)
    assert breaker.failed(111.0, Middle(), trial=True)
    assert breaker.open_until == pytest.approx(131.0)  # its own length, not one longer for the abandoned one


def test_a_trial_that_fails_late_counts_as_any_other_call() -> None:
    """A straggler's success has closed the breaker while the trial was under way."""
    breaker = opened(100.0)
    assert breaker.begin(110.0)
    assert breaker.succeeded()
    assert not breaker.failed(112.0, Middle(), trial=True)
    assert breaker.failures == 1
    assert breaker.state(112.0) == "closed"


def test_opens_where_time_starts() -> None:
    """0.0 means closed; a breaker that opens at 0.0 is open all the same."""
    assert opened(0.0).state(0.0) == "open"


STEPS = st.lists(st.tuples(st.sampled_from(["call", "success", "failure", "gone"]), st.floats(0.0, 30.0)), max_size=120)


@given(STEPS, st.integers(0, 2**32))
def test_whatever_happens(steps: list[tuple[str, float]], seed: int) -> None:
    """At most one trial under way, no call in a rest, and only a success brings back the short rest."""
    breaker, random, now = Breaker(), Random(seed), 1.0
    under_way: list[bool] = []
    opened_in_a_row = 0
    for what, wait_s in steps:
        now += wait_s
        if what == "call":
            if breaker.allows(now):
                assert breaker.state(now) != "open"
                under_way.append(breaker.begin(now))
        elif under_way:
            trial = under_way.pop(0)
            if what == "success":
                breaker.succeeded()
                opened_in_a_row = 0
                assert breaker.state(now) == "closed"
                under_way = [False] * len(under_way)
            elif what == "failure":
                if breaker.failed(now, random, trial=trial):
                    expected = min(10.0 * 2**opened_in_a_row, 300.0)
                    assert 0.8 * expected - 1e-6 <= breaker.open_until - now <= 1.2 * expected + 1e-6
                    opened_in_a_row += 1
            elif trial:
                breaker.abandoned()
        assert sum(under_way) <= 1
        assert breaker.allows(now) == (breaker.state(now) != "open" and not any(under_way))
        assert (breaker.open_until == 0.0) == (breaker.failures < OPENS_AT)
