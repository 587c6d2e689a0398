"""How many repeats are granted: 20 % of the calls of ten seconds, at least one a second."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.policy.budget import MAX_TARGETS, Budget, Budgets


def granted(budget: Budget, now: float, asked: int) -> int:
    return sum(budget.spend(now) for _ in range(asked))


@pytest.mark.parametrize(
    ("calls", "repeats"),
    [(0, 10), (1, 10), (4, 10), (5, 11), (50, 20), (1000, 210)],
)
def test_a_fifth_of_the_calls_and_one_a_second(calls: int, repeats: int) -> None:
    budget = Budget()
    for _ in range(calls):
        budget.offer(7.0)
    assert granted(budget, 7.5, 2000) == repeats


def test_one_a_second_without_any_call() -> None:
    budget = Budget()
    assert granted(budget, 0.0, 100) == 10
    assert sum(granted(budget, float(second), 100) for second in range(1, 101)) == 100


def test_a_refusal_is_not_counted() -> None:
    budget = Budget()
    assert granted(budget, 1.0, 1000) == 10
    for _ in range(5):
        budget.offer(1.0)
    assert granted(budget, 1.0, 1000) == 1


@pytest.mark.parametrize(
    ("later_s", "repeats"),
    [(0.0, 0), (8.9, 0), (9.9, 0), (10.0, 10), (10.9, 10), (25.0, 10), (1e9, 10)],
)
def test_the_window_rolls(later_s: float, repeats: int) -> None:
    """Calls and repeats at 100.0 are gone ten slots later, both of them."""
    budget = Budget()
    for _ in range(500):
        budget.offer(100.0)
    assert granted(budget, 100.0, 1000) == 110
    assert granted(budget, 100.0 + later_s, 1000) == repeats


def test_slots_leave_one_by_one() -> None:
    budget = Budget()
    for second in range(10):
        for _ in range(10):
            budget.offer(float(second))
    assert granted(budget, 9.5, 1000) == 30
    assert granted(budget, 10.5, 1000) == 0  # ten calls have left, the repeats not
    assert granted(budget, 19.0, 1000) == 10  # now they have, with all calls


def test_a_steady_stream_of_failures_costs_a_fifth_and_one_a_second() -> None:
    """100 calls a second for a minute, each of which would like to be repeated twice."""
    budget = Budget()
    repeats = 0
    for number in range(6000):
        now = 3.0 + number / 100
        budget.offer(now)
        repeats += granted(budget, now, 2)
    assert repeats == pytest.approx(0.2 * 6000 + 60, rel=0.02)


EVENTS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.01, 0.3, 0.999, 1.0, 1.7, 9.0, 10.0, 31.0]), st.integers(0, 40), st.integers(0, 40)),
    max_size=60,
)


@given(EVENTS, st.sampled_from([0.0, 0.5, 1000.25]))
def test_the_bound(events: list[tuple[float, int, int]], start: float) -> None:
    """The exact bound that the module proves, at every moment: 0.2 · calls + 1/s · elapsed + 10."""
    budget, now = Budget(), start
    calls = repeats = 0
    first: float | None = None
    for wait_s, offered, asked in events:
        now += wait_s
        for _ in range(offered):
            budget.offer(now)
        got = granted(budget, now, asked)
        if first is None and offered + asked:
            first = now
        calls, repeats = calls + offered, repeats + got
        assert repeats <= 0.2 * calls + (now - (now if first is None else first)) + 10 + 1e-6


@given(st.lists(st.tuples(st.integers(0, 2500), st.booleans()), max_size=200))
def test_granted_whenever_the_window_has_room(events: list[tuple[int, bool]]) -> None:
    """Against the plain definition, in centiseconds from the first event on."""
    budget = Budget()
    seen: list[tuple[int, bool]] = []
    now = 0
    for number, (wait, is_call) in enumerate(events):
        now += wait if number else 0
        window = [one for at, one in seen if at // 100 > now // 100 - 10]
        if is_call:
            budget.offer(now / 100)
            seen.append((now, True))
        else:
            room = window.count(False) + 1 <= 0.2 * window.count(True) + 10 + 1e-9
            assert budget.spend(now / 100) is room
            if room:
                seen.append((now, False))


def test_each_target_has_its_own() -> None:
    budgets = Budgets()
    assert granted(budgets.of("a"), 1.0, 100) == 10
    assert granted(budgets.of("b"), 1.0, 100) == 10
    assert not budgets.of("a").spend(1.0)


def test_bounded_and_the_longest_unused_goes() -> None:
    budgets = Budgets()
    first = budgets.of("first")
    second = budgets.of("second")
    for number in range(MAX_TARGETS - 2):
        budgets.of(f"{number}")
    assert budgets.of("first") is first
    budgets.of("one too many")
    assert budgets.of("first") is first
    assert budgets.of("second") is not second
