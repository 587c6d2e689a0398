"""The journal's clock: whatever the machine's clocks do, rows neither live for ever nor go early."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.journal.clock import JournalClock

DAY = 86_400_000
T = 1_800_000_000_000


@pytest.mark.parametrize(
    ("what", "wall_at_note", "wall_at_start", "counts_ms"),
    [
        ("away for an hour", T, T + 3_600_000, 3_600_000),
        ("not away", T, T, 0),
        ("set back by a year meanwhile", T, T - 365 * DAY, 0),
        ("starts in 1970", T, 5_000, 0),
    ],
)
def test_over_a_restart(what: str, wall_at_note: int, wall_at_start: int, counts_ms: int) -> None:
    clock = JournalClock(T + 7, wall_at_note, now_ms=wall_at_start, monotonic_s=50.0)
    assert clock.time_ms(50.0) == T + 7 + counts_ms
    assert clock.time_ms(51.5) == T + 7 + counts_ms + 1500


def test_a_start_in_1970_does_not_count_nor_does_its_end() -> None:
    """A machine without a battery: a start that ends before the clock was set, and one with the right time."""
    first = JournalClock(T, T, now_ms=5_000, monotonic_s=0.0)
    noted = first.note(65_000, 60.0)
    assert noted == (T + 60_000, T)
    second = JournalClock(*noted, now_ms=T + DAY, monotonic_s=3.0)
    assert second.time_ms(3.0) == T + 60_000 + DAY


@given(
    st.lists(st.tuples(st.integers(0, 10 * DAY), st.integers(-400 * DAY, 400 * DAY)), max_size=20),
    st.integers(0, T),
)
def test_jumps_while_it_runs_change_nothing(steps: list[tuple[int, int]], start: int) -> None:
    """Steps of (time that passes, jump of the time of day)."""
    clock = JournalClock(start, T, now_ms=T, monotonic_s=1.0)
    wall, passed = T, 0
    for step, jump in steps:
        passed += step
        wall = max(0, wall + step + jump)
        time_ms, seen = clock.note(wall, 1.0 + passed / 1000)
        assert abs(time_ms - start - passed) <= 1
        assert seen >= max(T, wall)


@given(st.lists(st.tuples(st.integers(0, DAY), st.integers(0, DAY), st.integers(-400 * DAY, 0)), max_size=20))
def test_clocks_set_back_never_make_it_fast_and_running_always_counts(lives: list[tuple[int, int, int]]) -> None:
    """Lives of (time it runs, time it is away, jump back while away)."""
    noted, wall, ran, total = (T, T), T, 0, 0
    for runs, away, jump in lives:
        clock = JournalClock(*noted, now_ms=wall, monotonic_s=0.0)
        wall += runs
        noted = clock.note(wall, runs / 1000)
        wall = max(0, wall + away + jump)
        ran, total = ran + runs, total + runs + away
    assert T + ran - len(lives) <= noted[0] <= T + total
