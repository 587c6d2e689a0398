"""Room: first come first served at the called side, a short belief at the calling side."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.peer import Limits
from reach_sidecar.policy.limit import BELIEVED_S, enter, known_full

FOUR = Limits(max_concurrency=4, queue=2)
NO_QUEUE = Limits(max_concurrency=1, queue=0)


@pytest.mark.parametrize(
    ("running", "queued", "waiting", "limits", "then"),
    [
        (0, 0, 0, FOUR,     "enter"),
        (3, 0, 0, FOUR,     "enter"),
        (4, 0, 0, FOUR,     "wait"),
        (4, 1, 1, FOUR,     "wait"),
        (4, 2, 2, FOUR,     "busy"),
        (9, 0, 0, FOUR,     "wait"),   # the limit was lowered while more ran
        (9, 5, 5, FOUR,     "busy"),
        (3, 1, 1, FOUR,     "wait"),   # a place is free, but another waits for it
        (3, 2, 2, FOUR,     "busy"),
        (3, 1, 0, FOUR,     "enter"),  # who is still in the queue has a place already
        (0, 0, 0, NO_QUEUE, "enter"),
        (1, 0, 0, NO_QUEUE, "busy"),
    ],
)  # fmt: skip
def test_enter(running: int, queued: int, waiting: int, limits: Limits, then: str) -> None:
    assert enter(running, queued, waiting, limits) == then


@given(st.lists(st.sampled_from(["come", "leave"]), max_size=80), st.integers(1, 4), st.integers(0, 3))
def test_first_come_first_served(events: list[str], places: int, queue: int) -> None:
    """A room kept by these decisions: nobody overtakes, the bounds hold, and no place stays empty while one waits."""
    limits = Limits(max_concurrency=places, queue=queue)
    running, line, served, refused = 0, deque[int](), [], set()
    for call, event in enumerate(events):
        if event == "come":
            then = enter(running, len(line), len(line), limits)
            if then == "enter":
                running += 1
                served.append(call)
            elif then == "wait":
                line.append(call)
            else:
                refused.add(call)
                assert running == places
                assert len(line) == queue
        elif running:
            running -= 1
            if line:
                running += 1
                served.append(line.popleft())
        assert running <= places
        assert len(line) <= queue
        assert not line or running == places
    assert served == sorted(served)
    assert not refused & set(served)


@pytest.mark.parametrize(
    ("running", "queued", "limits", "ago", "in_flight", "full"),
    [
        (4, 2, FOUR,     0.0,               0, True),
        (4, 2, FOUR,     BELIEVED_S,        0, True),
        (4, 2, FOUR,     BELIEVED_S + 0.01, 0, False),
        (4, 2, FOUR,     60.0,              0, False),
        (4, 1, FOUR,     0.0,               0, False),
        (3, 2, FOUR,     0.0,               0, False),
        (9, 0, FOUR,     0.0,               0, False),  # more run than are let in now, but the queue has room
        (9, 9, FOUR,     0.0,               0, True),
        (0, 0, FOUR,     None,              0, False),
        (4, 2, FOUR,     None,              0, False),
        # the caller's own calls are no hearsay
        (0, 0, FOUR,     None,              5, False),
        (0, 0, FOUR,     None,              6, True),
        (0, 0, FOUR,     60.0,              6, True),
        (1, 0, FOUR,     0.0,               7, True),
        (1, 0, NO_QUEUE, 0.0,               0, True),
        (0, 0, NO_QUEUE, 0.0,               1, True),
        (0, 0, NO_QUEUE, 0.0,               0, False),
    ],
)  # fmt: skip
def test_known_full(running: int, queued: int, limits: Limits, ago: float | None, in_flight: int, full: bool) -> None:
    assert known_full(running, queued, limits, ago, in_flight=in_flight) is full


def test_a_short_belief() -> None:
    assert 0.0 < BELIEVED_S <= 1.0
