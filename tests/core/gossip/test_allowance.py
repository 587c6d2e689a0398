import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.gossip.allowance import Allowance, Bucket


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        # (source, at second, how many)
        ([("a", 0, 1)], [1]),
        ([("a", 0, 10)], [10]),
        ([("a", 0, 11)], [10]),
        ([("a", 0, 10), ("a", 0, 1)], [10, 0]),
        ([("a", 0, 10), ("a", 0.25, 10)], [10, 5]),
        ([("a", 0, 10), ("a", 0.5, 20)], [10, 10]),
        ([("a", 0, 10), ("a", 99, 20)], [10, 10]),
        ([("a", 0, 10), ("b", 0, 10)], [10, 10]),
        ([("a", 0, 10), ("b", 0, 10), ("c", 0, 10), ("d", 0, 10)], [10, 10, 10, 0]),
        ([("a", 0, 10), ("b", 0, 10), ("c", 0, 9), ("d", 0, 10)], [10, 10, 9, 1]),
        ([("a", 0, 10), ("b", 0, 10), ("c", 0, 10), ("d", 0.1, 10)], [10, 10, 10, 3]),
        ([("a", 0, 0)], [0]),
        ([("a", 0, -5), ("a", 0, 20)], [0, 10]),
        ([("a", 50, 10), ("a", 0, 5), ("a", 50, 5)], [10, 0, 0]),
        ([("a", 50, 5), ("a", 0, 9)], [5, 5]),
        ([("a", 50, 10), ("a", 0, 5), ("a", 50.25, 9)], [10, 0, 5]),
    ],
)
def test_so_many_may_be_verified(asked: list[tuple[str, float, int]], granted: list[int]) -> None:
    """20 a second and 10 at once for each source, 30 in all."""
    allowance = Allowance(rate=20, burst=10, total=30)
    assert [allowance.take(source, now_s, count) for source, now_s, count in asked] == granted


def test_a_clock_may_begin_anywhere() -> None:
    allowance = Allowance(rate=10, burst=10, total=20)
    assert allowance.take("a", -1000.0, 20) == 10
    assert allowance.take("a", -999.0, 20) == 10


steps = st.lists(
    st.tuples(st.integers(0, 30), st.floats(0, 0.5), st.integers(0, 300)), min_size=1, max_size=200
)


@given(steps)
def test_no_source_gets_more_than_its_rate_nor_all_more_than_theirs(told: list[tuple[int, float, int]]) -> None:
    allowance = Allowance(rate=200, burst=200, most_sources=8, total=2000)
    now_s = 0.0
    by_source: dict[int, int] = {}
    for source, pause_s, count in told:
        now_s += pause_s
        granted = allowance.take(str(source), now_s, count)
        assert 0 <= granted <= count
        by_source[source] = by_source.get(source, 0) + granted
        assert by_source[source] <= 200 + 200 * now_s + 1
        assert sum(by_source.values()) <= 2000 + 2000 * now_s + 1
        assert len(allowance) <= 9


def test_who_is_alone_gets_all_that_is_promised() -> None:
    allowance = Allowance()
    granted = sum(allowance.take("a", n * 0.01, 50) for n in range(1001))
    assert 2190 <= granted <= 2200


def test_new_names_bring_no_more() -> None:
    """Once there are as many sources as are kept, all newcomers share one bucket, and the others keep theirs."""
    allowance = Allowance(rate=10, burst=10, most_sources=4, total=1_000_000)
    for n in range(4):
        allowance.take(f"here-{n}", 0.0, 1)
    assert sum(allowance.take(f"new-{n}", 0.1, 10) for n in range(1000)) == 10
    assert [allowance.take(f"here-{n}", 0.1, 10) for n in range(4)] == [10, 10, 10, 10]
    assert len(allowance) == 5


def test_when_it_is_quiet_again_a_newcomer_has_a_bucket_of_its_own() -> None:
    allowance = Allowance(rate=10, burst=10, most_sources=4, total=1_000_000)
    for n in range(100):
        allowance.take(f"first-{n}", 0.0, 10)
    assert [allowance.take(f"then-{n}", 1.0, 10) for n in range(4)] == [10] * 4
    assert len(allowance) == 4


def test_of_many_sources_none_is_kept_longer_than_it_needs_to_be() -> None:
    allowance = Allowance()
    for n in range(20_000):
        allowance.take(f"10.0.{n >> 8}.{n & 255}:7072", n * 0.01)
    assert len(allowance) <= 102


def test_a_flood_of_names_costs_little() -> None:
    """Each take looks at no more than a few sources: with ten times as many it takes as long."""

    def each_s(most_sources: int) -> float:
        allowance = Allowance(most_sources=most_sources)
        for n in range(most_sources):
            allowance.take(str(n), 0.0)
        best = float("inf")
        for turn in range(5):
            begun = time.perf_counter()
            for n in range(1000):
                allowance.take(f"{turn}-{n}", 0.5)
            best = min(best, (time.perf_counter() - begun) / 1000)
        return best

    assert each_s(10_000) < 5 * each_s(1000) + 1e-5


@pytest.mark.parametrize(
    ("taken", "now_s", "left", "wait_s"),
    [(0, 0.0, 4, 0.0), (4, 0.0, 0, 1.5), (4, 0.5, 1, 1.0), (4, 1.0, 2, 0.5), (4, 99.0, 4, 0.0), (1, 0.0, 3, 0.0)],
)
def test_a_bucket_says_when_there_are_three(taken: int, now_s: float, left: int, wait_s: float) -> None:
    bucket = Bucket(rate=2, burst=4, now_s=0.0)
    bucket.take(taken)
    assert bucket.left(now_s) == left
    assert bucket.wait_s(3) == pytest.approx(wait_s)


@given(st.floats(0.1, 5000), st.integers(1, 100), st.floats(0, 1e6))
def test_after_the_wait_they_are_there(rate: float, count: int, now_s: float) -> None:
    bucket = Bucket(rate, 100, now_s)
    bucket.take(bucket.left(now_s))
    later_s = now_s + bucket.wait_s(count) + 1e-6
    assert bucket.left(later_s) >= count - 1
    assert bucket.left(later_s + 1 / rate) >= count
