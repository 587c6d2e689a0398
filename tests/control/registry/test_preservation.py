import pytest

from reach_control.registry.preservation import LONGEST_S, Preservation


def lapse(preservation: Preservation, count: int, at_s: float = 0.0, first: int = 0) -> None:
    for n in range(first, first + count):
        preservation.lapsed(f"agent-{n}", at_s)


@pytest.mark.parametrize(
    ("agents", "lapsed", "is_frozen"),
    [
        (1, 1, False),
        (2, 2, False),
        (3, 3, True),
        (10, 2, False),
        (10, 3, True),
        (20, 3, False),
        (20, 4, True),
        (100, 15, False),
        (100, 16, True),
        (10_000, 1_500, False),
        (10_000, 1_501, True),
    ],
)
def test_more_than_the_share_within_a_window(agents: int, lapsed: int, is_frozen: bool) -> None:
    preservation = Preservation(30.0)
    lapse(preservation, lapsed)
    assert (preservation.frozen(0.0, agents) is not None) is is_frozen


def test_what_is_spread_over_time_is_no_reason() -> None:
    preservation = Preservation(30.0)
    for n in range(100):
        preservation.lapsed(f"agent-{n}", n * 10.0)
        assert preservation.frozen(n * 10.0, 20) is None


def test_it_ends_when_enough_are_back() -> None:
    preservation = Preservation(30.0)
    lapse(preservation, 20)
    assert "20 of 100 agents" in str(preservation.frozen(0.0, 100))
    assert preservation.frozen(200.0, 100) is not None, "the window passes, the agents are still not heard of"
    for n in range(5):
        preservation.back(f"agent-{n}")
    assert preservation.frozen(201.0, 100) is None


def test_it_lasts_five_minutes_at_most_and_then_what_lapsed_is_no_reason_again() -> None:
    preservation = Preservation(30.0)
    lapse(preservation, 20)
    assert preservation.frozen(10.0, 100) is not None
    assert preservation.frozen(10.0 + LONGEST_S - 0.1, 100) is not None
    for later_s in (10.0 + LONGEST_S, 400.0, 1_000.0):
        assert preservation.frozen(later_s, 100) is None
    lapse(preservation, 20, at_s=1_001.0, first=50)
    assert preservation.frozen(1_001.0, 100) is not None


def test_a_start_or_a_stall_grants_one_lease() -> None:
    preservation = Preservation(30.0)
    preservation.grant("It has just started.", 100.0)
    assert preservation.frozen(100.0, 0) == "It has just started."
    assert preservation.frozen(129.9, 0) == "It has just started."
    assert preservation.frozen(130.0, 0) is None


def test_stalls_again_and_again_do_not_stop_expiry_for_ever() -> None:
    preservation = Preservation(30.0)
    frozen = []
    for n in range(40):
        preservation.grant("It stood still.", n * 20.0)
        frozen.append(preservation.frozen(n * 20.0, 10) is not None)
    assert frozen == [True] * 15 + [False] * 25
    assert preservation.frozen(1_000.0, 10) is None
    preservation.grant("It stood still.", 2_000.0)
    assert preservation.frozen(2_000.0, 10) is not None


def test_an_agent_counts_once() -> None:
    preservation = Preservation(30.0)
    for _ in range(50):
        preservation.lapsed("a", 1.0)
    assert preservation.frozen(1.0, 10) is None
