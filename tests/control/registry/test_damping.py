import pytest

from reach_control.registry import damping as module
from reach_control.registry.damping import Damping


def after(*falls_s: float) -> Damping:
    damping = Damping()
    for at_s in falls_s:
        damping.fell("a", at_s)
    return damping


@pytest.mark.parametrize(
    ("falls_s", "now_s", "hold_s"),
    [
        ((), 0, 0),
        ((0,), 10, 0),
        ((0, 599), 600, 30),
        ((0, 601), 602, 0),  # ten quiet minutes: forgotten
        ((0, 100, 200), 210, 60),
        ((0, 100, 200, 300), 310, 120),
        ((0, 100, 200, 300, 400), 410, 240),
        ((0, 100, 200, 300, 400, 500), 510, 300),
        (tuple(range(1000)), 1000, 300),
        ((0, 100, 200), 800, 0),
        ((0, 100, 200), 799, 60),
    ],
)
def test_how_long_one_is_held(falls_s: tuple[float, ...], now_s: float, hold_s: float) -> None:
    assert after(*falls_s).hold_s("a", now_s) == hold_s


def test_all_times_follow_the_cool_down_that_is_configured() -> None:
    holds = []
    damping = Damping(2.0)
    for at_s in range(0, 70, 10):
        damping.fell("a", at_s)
        holds.append(damping.hold_s("a", at_s))
    assert holds == [0, 2, 4, 8, 16, 20, 20]
    assert damping.hold_s("a", 100) == 0
    never = Damping(0.0)
    for at_s in range(5):
        never.fell("a", at_s)
    assert never.hold_s("a", 5) == 0


def test_the_quiet_time_begins_when_the_hold_is_over() -> None:
    damping = after(0, 100)
    damping.released("a", 150)
    assert damping.hold_s("a", 749) == 30
    assert damping.hold_s("a", 750) == 0
    damping.released("nobody", 150)
    assert len(damping) == 0


def test_one_does_not_answer_for_another() -> None:
    damping = after(0, 100)
    damping.fell("b", 101)
    assert (damping.hold_s("a", 102), damping.hold_s("b", 102)) == (30, 0)


def test_it_remembers_those_that_fell_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_AGENTS", 10)
    damping = Damping()
    for n in range(100):
        damping.fell(f"agent-{n % 20}", n)
    assert len(damping) == 10
    assert damping.hold_s("agent-19", 100) == 0
