"""What an agent's answers say of it at one capability: which of them count as failures, and when the breaker moves."""

from random import Random
from typing import get_args

import pytest

from reach_sidecar.membership.track import Track
from reach_sidecar.policy.breaker import LONGEST_REST_S, OPENS_AT
from reach_sidecar.policy.repeat import REFUSALS, Result

RESULTS: tuple[Result, ...] = get_args(Result)
# design §3, "Breaker": never `busy`, 4xx or `failure`
FAILURES: set[Result] = {"connect_failed", "broken", "agent_broke", "timeout", "server_error", "bad_answer", "retryable"}
GOOD: set[Result] = {"answered", "failure", "invalid_request"}


def judged(track: Track, result: Result, status: int = 0, *, trial: bool = False, now: float = 100.0) -> bool:
    return track.judge(result, status, trial, now, Random(7))


def opened(now: float = 100.0) -> Track:
    track = Track()
    assert [judged(track, "broken", now=now) for _ in range(OPENS_AT)] == [False] * (OPENS_AT - 1) + [True]
    return track


def test_every_result_is_one_of_three_kinds() -> None:
    assert {*RESULTS} == FAILURES | GOOD | REFUSALS


@pytest.mark.parametrize("result", sorted(FAILURES))
def test_ten_failures_in_a_row_open_it(result: Result) -> None:
    track = Track()
    told = [judged(track, result, 503 if result == "retryable" else 0) for _ in range(OPENS_AT)]
    assert told == [False] * (OPENS_AT - 1) + [True], "told once, when it opens"
    assert track.breaker.state(100.0) == "open"
    assert track.failures.at(100.0) > 0.5


@pytest.mark.parametrize(("result", "status"), [*((one, 0) for one in sorted(GOOD)), ("retryable", 429)])
def test_what_is_no_failure_ends_the_row(result: Result, status: int) -> None:
    """A 429 is busy in other words: the agent is there and works as it should."""
    track = Track()
    for _ in range(3):
        for _ in range(OPENS_AT - 1):
            judged(track, "broken")
        assert not judged(track, result, status)
    assert track.breaker.state(100.0) == "closed"


@pytest.mark.parametrize("result", sorted(REFUSALS))
def test_a_refusal_is_neither_good_nor_bad(result: Result) -> None:
    track = Track()
    for _ in range(3 * OPENS_AT):
        assert not judged(track, result)
    assert (track.breaker.failures, track.failures.at(100.0)) == (0, 0.0)
    for _ in range(OPENS_AT - 1):
        judged(track, "broken")
        judged(track, result)
    assert judged(track, "broken"), "and does not end the row"


@pytest.mark.parametrize("good", ["judged", "answered"])
def test_the_trial_that_is_answered_closes_it(good: str) -> None:
    track, later = opened(), 100.0 + LONGEST_REST_S
    assert track.breaker.begin(later)
    assert judged(track, "failure", 200, trial=True, now=later) if good == "judged" else track.answered(later)
    assert track.breaker.state(later) == "closed"
    assert not track.answered(later), "told once, when it closes"


def test_the_trial_that_fails_opens_it_again() -> None:
    track, later = opened(), 100.0 + LONGEST_REST_S
    assert track.breaker.begin(later)
    assert judged(track, "timeout", trial=True, now=later)
    assert track.breaker.state(later) == "open"


@pytest.mark.parametrize("result", sorted(REFUSALS))
def test_the_trial_that_is_refused_leaves_it_to_the_next(result: Result) -> None:
    track, later = opened(), 100.0 + LONGEST_REST_S
    assert track.breaker.begin(later)
    assert not track.breaker.allows(later)
    assert not judged(track, result, trial=True, now=later)
    assert track.breaker.allows(later)
