from collections.abc import Mapping

import pytest

from reach_control.registry import reports as module
from reach_control.registry.reports import Reports

Told = tuple[float, str, Mapping[str, int]]


@pytest.mark.parametrize(
    ("told", "now_s", "due"),
    [
        ([(0, "b", {"a": 4})], 1, []),
        ([(0, "b", {"a": 5})], 1, ["a"]),
        ([(0, "b", {"a": 2}), (1, "c", {"a": 3})], 2, ["a"]),
        ([(0, "b", {"a": 3}), (1, "b", {"a": 4})], 2, []),  # the latest word, not all of them
        ([(0, "b", {"a": 4}), (1, "b", {}), (2, "c", {"a": 4})], 3, []),  # it answers b again
        ([(0, "b", {"a": 4}), (29, "c", {"a": 4})], 29.9, ["a"]),
        ([(0, "b", {"a": 4}), (29, "c", {"a": 4})], 30, []),
        ([(0, "a", {"a": 100})], 1, []),  # of itself
        ([(0, "b", {"a": 0, "c": 9, "d": 9})], 1, ["c", "d"]),
    ],
)
def test_when_a_check_is_due(told: list[Told], now_s: float, due: list[str]) -> None:
    reports = Reports()
    for at_s, caller, failures in told:
        reports.told(caller, failures, at_s)
    assert reports.due(now_s, 64) == due


def test_one_check_in_thirty_seconds() -> None:
    reports = Reports()
    due = []
    for at_s in range(100):
        reports.told("b", {"a": 7}, at_s)
        due += [at_s] * len(reports.due(at_s, 64))
    assert due == [0, 30, 60, 90]


def test_so_many_at_once_and_the_others_next() -> None:
    reports = Reports()
    reports.told("b", {f"agent-{n}": 5 for n in range(10)}, 0)
    assert [len(reports.due(0, 4)) for _ in range(4)] == [4, 4, 2, 0]


def test_memory_is_bounded_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WORDS", 100)
    reports = Reports()
    for n in range(1000):
        reports.told(f"caller-{n}", {f"agent-{m}": 1 for m in range(10)}, n / 1000)
    assert len(reports) == 100
    assert reports.due(1, 64) == [f"agent-{m}" for m in range(10)]
    assert reports.due(100, 64) == []
    assert (len(reports), len(reports._sums), len(reports._suspects), len(reports._probed_s)) == (0, 0, 0, 0)
