"""One timer, the right moments: virtual time, so nothing waits."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from reach_sidecar.http1.deadlines import Deadlines


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Only what Deadlines asks of a loop."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, callback: Any, *args: Any) -> Timer:
        self.timers.append(Timer(at, lambda: callback(*args)))
        return self.timers[-1]

    @property
    def set_timers(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.cancelled]

    def run_until(self, end: float) -> None:
        while due := [timer for timer in self.set_timers if timer.at <= end]:
            timer = min(due, key=lambda one: one.at)
            self.now = max(self.now, timer.at)
            timer.cancelled = True
            timer.call()
        self.now = end


@pytest.fixture
def loop() -> Any:
    return Loop()


def test_each_ends_at_its_own_time_and_those_removed_never(loop: Any) -> None:
    deadlines, ended = Deadlines(), []
    numbers = {at: deadlines.add(loop, at, lambda at=at: ended.append((loop.now, at)))  # type: ignore[misc]
               for at in (130.0, 110.0, 120.0, 110.0 + 1e-9)}
    deadlines.remove(numbers[120.0])
    loop.run_until(200.0)
    assert [at for _, at in ended] == [110.0, 110.0 + 1e-9, 130.0]
    assert all(now >= at for now, at in ended)
    assert len(deadlines) == 0
    assert loop.set_timers == [], "nothing is left to wake for"


def test_later_deadlines_do_not_move_the_timer(loop: Any) -> None:
    deadlines = Deadlines()
    for at in range(1000):
        deadlines.remove(deadlines.add(loop, 130.0 + at, lambda: None))
    assert len(loop.timers) == 1


def test_an_earlier_one_does(loop: Any) -> None:
    deadlines, ended = Deadlines(), []
    deadlines.add(loop, 700.0, lambda: ended.append(700))
    deadlines.add(loop, 101.0, lambda: ended.append(101))
    loop.run_until(102.0)
    assert ended == [101]
    loop.run_until(700.0)
    assert ended == [101, 700]


def test_one_that_adds_another_while_it_ends(loop: Any) -> None:
    deadlines = Deadlines()
    ended: list[int] = []
    deadlines.add(loop, 101.0, lambda: _add(deadlines, loop, ended))
    loop.run_until(103.0)
    assert ended == [102]


def test_any_mix_ends_in_time(loop: Any) -> None:
    random = Random(11)
    deadlines, ended, kept = Deadlines(), [], []
    for step in range(500):
        at = loop.now + random.random() * 20
        number = deadlines.add(loop, at, lambda at=at: ended.append((at, loop.now)))  # type: ignore[misc]
        if random.random() < 0.5:
            deadlines.remove(number)
        else:
            kept.append(at)
        loop.run_until(loop.now + random.random() * (step % 3))
    loop.run_until(loop.now + 100)
    assert sorted(at for at, _ in ended) == sorted(kept)
    assert all(abs(now - at) < 1e-6 for at, now in ended)


def _add(deadlines: Deadlines, loop: Any, ended: list[int]) -> None:
    deadlines.add(loop, 102.0, lambda: ended.append(102))


def test_one_that_takes_another_due_one_with_it(loop: Any) -> None:
    deadlines = Deadlines()
    ended: list[int] = []
    numbers: list[int] = []
    numbers += [deadlines.add(loop, 101.0, lambda: deadlines.remove(numbers[1])),
                deadlines.add(loop, 101.0, lambda: ended.append(2))]
    loop.run_until(102.0)
    assert ended == []
    assert len(deadlines) == 0
