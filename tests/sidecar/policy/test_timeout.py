"""How long a call may run: bounds, p95 of the last calls, the shortest answer lately."""

import math
from collections import deque
from random import Random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.policy.timeout import (
    ADAPTIVE_AT_LEAST_S,
    ADAPTIVE_AT_MOST_S,
    ENOUGH,
    FACTOR,
    SHORTEST_SPAN_S,
    WINDOW,
    Durations,
    Shortest,
    adaptive_s,
    execution_s,
)


@pytest.mark.parametrize(
    ("declared", "remaining", "adaptive", "bound"),
    [
        (None, 30.0, None, 30.0),
        (60.0, 30.0, None, 30.0),
        (10.0, 30.0, None, 10.0),
        (10.0, 30.0, 4.0,  4.0),
        (10.0, 30.0, 14.0, 10.0),
        (None, 30.0, 4.0,  4.0),
        (None, 3.0,  4.0,  3.0),
        (10.0, 0.0,  4.0,  0.0),
        (10.0, -1.0, None, 0.0),
    ],
)  # fmt: skip
def test_execution_is_the_least_of_what_is_known(declared: float | None, remaining: float, adaptive: float | None,
                                                 bound: float) -> None:
    assert execution_s(declared, remaining, adaptive) == bound


def durations(*seconds: float, timed_out: bool = False) -> Durations:
    found = Durations()
    for one in seconds:
        found.add(one, timed_out=timed_out)
    return found


def rank_95(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


@pytest.mark.parametrize(
    ("seconds", "p95"),
    [
        ([],                        0.0),
        ([3.0],                     3.0),
        ([1.0, 2.0],                2.0),
        ([1.0] * 19 + [9.0],        1.0),
        ([1.0] * 18 + [9.0] * 2,    9.0),
        ([9.0] * 10 + [1.0] * 190,  1.0),
        ([9.0] * 11 + [1.0] * 189,  9.0),
        ([9.0] * 50 + [1.0] * 200,  1.0),  # only the last 200 count
    ],
)  # fmt: skip
def test_p95(seconds: list[float], p95: float) -> None:
    assert durations(*seconds).p95 == p95


def test_timed_out_counts_double() -> None:
    found = durations(*[1.0] * 190)
    for _ in range(5):
        found.add(7.0, timed_out=True)
    assert len(found) == WINDOW
    assert found.p95 == 1.0, "ten of two hundred are five in a hundred"
    assert len(durations(*[1.0] * 10, timed_out=True)) == 20
    found = durations(*[1.0] * 190)
    for _ in range(6):
        found.add(7.0, timed_out=True)
    assert found.p95 == 7.0


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.booleans()), min_size=1, max_size=300), st.integers(1, 30))
def test_p95_is_that_of_the_last_ones_and_never_old(calls: list[tuple[float, bool]], every: int) -> None:
    """Whenever it is asked: it is exact for some moment at most a fifth of the window ago."""
    found, last = Durations(), deque[float](maxlen=WINDOW)
    exact: list[float] = []
    for index, (seconds, timed_out) in enumerate(calls):
        found.add(seconds, timed_out=timed_out)
        last.extend([seconds] * (1 + timed_out))
        exact.append(rank_95(list(last)))
        if index % every == 0:
            assert found.p95 in exact[-1 - WINDOW // 5:]
    assert len(found) == len(last)


def test_adaptive_needs_enough_and_keeps_its_bounds() -> None:
    assert adaptive_s(Durations()) is None
    assert adaptive_s(durations(*[2.0] * (ENOUGH - 1))) is None
    assert adaptive_s(durations(*[2.0] * ENOUGH)) == FACTOR * 2.0 == 3.0
    assert adaptive_s(durations(*[0.0001] * 50)) == ADAPTIVE_AT_LEAST_S
    assert adaptive_s(durations(*[5000.0] * 50)) == ADAPTIVE_AT_MOST_S


def test_adaptive_follows_an_agent_that_became_slow_and_one_that_recovers() -> None:
    """Calls that took 1 s take 10 s from now on: they are cut off for a while, then they fit; and back again."""
    found = durations(*[1.0] * WINDOW)
    cut = 0
    for _ in range(WINDOW):
        bound = execution_s(None, 600.0, adaptive_s(found))
        cut += bound < 10.0
        found.add(min(10.0, bound), timed_out=bound < 10.0)
    assert 0 < cut < WINDOW
    assert adaptive_s(found) == pytest.approx(15.0)
    for _ in range(2 * WINDOW):
        found.add(1.0, timed_out=False)
    assert adaptive_s(found) == 1.5


@pytest.mark.slow
def test_adding_costs_next_to_nothing() -> None:
    random, found = Random(5), Durations()
    times = [random.expovariate(1.0) for _ in range(1000)]
    best = math.inf
    for _ in range(20):
        began = process_time()
        for seconds in times:
            found.add(seconds, timed_out=False)
        best = min(best, (process_time() - began) / len(times))
    assert best < 2e-6, "0.2 µs where it was written"


def test_shortest_needs_three_answers() -> None:
    shortest = Shortest()
    assert shortest.at(1000.0) == 0.0
    shortest.note(0.5, 1000.0)
    shortest.note(0.3, 1001.0)
    assert shortest.at(1001.0) == 0.0
    shortest.note(0.9, 1002.0)
    assert shortest.at(1002.0) == 0.3


def test_shortest_forgets_within_a_minute_and_not_before_half_of_it() -> None:
    shortest = Shortest()
    for _ in range(3):
        shortest.note(2.0, 1000.0)
    assert shortest.at(1000.0 + SHORTEST_SPAN_S) == 2.0
    assert shortest.at(1000.0 + 2 * SHORTEST_SPAN_S) == 0.0
    shortest.note(9.0, 1000.0 + 2 * SHORTEST_SPAN_S)
    assert shortest.at(1000.0 + 2 * SHORTEST_SPAN_S) == 0.0, "the old three are gone"


def test_shortest_follows_what_became_slower() -> None:
    shortest = Shortest()
    for second in range(300):
        shortest.note(0.1 if second < 100 else 4.0, float(second))
        if 3 <= second < 100 + SHORTEST_SPAN_S:
            assert shortest.at(float(second)) == 0.1
        if second >= 100 + 2 * SHORTEST_SPAN_S:
            assert shortest.at(float(second)) == 4.0


@given(st.lists(st.tuples(st.floats(0.0, 25.0), st.floats(0.0, 9.0), st.booleans()), max_size=60))
def test_shortest_is_between_the_minima_of_half_a_minute_and_a_minute(
    steps: list[tuple[float, float, bool]],
) -> None:
    shortest, now, noted = Shortest(), 50_000.0, list[tuple[float, float]]()
    for pause, seconds, asks_only in steps:
        now += pause
        if not asks_only:
            shortest.note(seconds, now)
            noted.append((now, seconds))
        found = shortest.at(now)
        recent = [one for when, one in noted if when > now - SHORTEST_SPAN_S]
        minute = [one for when, one in noted if when > now - 2 * SHORTEST_SPAN_S]
        if len(minute) < 3:
            assert found == 0.0
        elif len(recent) >= 3:
            assert min(minute) <= found <= min(recent)
        else:
            assert found == 0.0 or found in minute
