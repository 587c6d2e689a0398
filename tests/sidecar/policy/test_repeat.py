"""The rows of the design's table "When to try again": what happened, did it run, and then."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.headers import MESH_ANSWER
from reach_sidecar.policy.repeat import (
    CHAIN_RETRIES,
    EXECUTED,
    MAX_ATTEMPTS,
    REFUSALS,
    SAFE_METHODS,
    Facts,
    Result,
    Step,
    classify,
    next_step,
)

RESULTS: tuple[Result, ...] = get_args(Result)
FINAL: list[Result] = ["not_allowed", "bad_answer", "failure", "invalid_request", "answered"]
# Refused, and another agent may take it.
REFUSED: list[Result] = ["busy", "draining", "agent_unreachable", "not_here", "store_unavailable"]

STOP = Step("stop", False, False)
NEXT = Step("next_agent", False, False)
NEXT_LATER = Step("next_agent", True, False)
SAME = Step("same_agent", False, False)
SAME_LATER = Step("same_agent", True, False)
ASK = Step("same_agent", False, True)
ASK_LATER = Step("same_agent", True, True)


def step(*results: Result, repeatable: bool = False, replayable: bool = True, deduplicated: bool = True,
         left: int = CHAIN_RETRIES, bound: bool = False, counted: int | None = None) -> Step:
    facts = Facts(repeatable, replayable, deduplicated, left, bound)
    return next_step(results, facts, len(results) if counted is None else counted)


#                 what happened     did it run  repeatable            not repeatable
#                                               dedup    none         dedup    none
ROWS: list[tuple[Result, str, Step, Step, Step, Step]] = [
    ("connect_failed",              "no",       NEXT, NEXT,           NEXT, NEXT),
    ("busy",                        "no",       NEXT, NEXT,           NEXT, NEXT),
    ("draining",                    "no",       NEXT, NEXT,           NEXT, NEXT),
    ("agent_unreachable",           "no",       NEXT, NEXT,           NEXT, NEXT),
    ("not_here",                    "no",       NEXT, NEXT,           NEXT, NEXT),
    ("store_unavailable",           "no",       NEXT, NEXT,           NEXT, NEXT),
    ("not_allowed",                 "no",       STOP, STOP,           STOP, STOP),
    ("broken",                      "unknown",  SAME, NEXT,           ASK, STOP),
    ("agent_broke",                 "unknown",  NEXT, NEXT,           STOP, STOP),
    ("timeout",                     "unknown",  NEXT, NEXT,           STOP, STOP),
    ("retryable",                   "no",       NEXT_LATER, NEXT_LATER, NEXT_LATER, NEXT_LATER),
    ("server_error",                "unknown",  NEXT_LATER, NEXT_LATER, STOP, STOP),
    ("bad_answer",                  "unknown",  STOP, STOP,           STOP, STOP),
    ("failure",                     "yes",      STOP, STOP,           STOP, STOP),
    ("invalid_request",             "yes",      STOP, STOP,           STOP, STOP),
    ("answered",                    "yes",      STOP, STOP,           STOP, STOP),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_table(row: tuple[Result, str, Step, Step, Step, Step]) -> None:
    result, executed, repeatable, repeatable_no_keys, once, once_no_keys = row
    assert EXECUTED[result] == executed
    assert step(result, repeatable=True) == repeatable
    assert step(result, repeatable=True, deduplicated=False) == repeatable_no_keys
    assert step(result) == once
    assert step(result, deduplicated=False) == once_no_keys


def test_the_table_is_whole() -> None:
    assert {row[0] for row in ROWS} == set(RESULTS) == set(EXECUTED)
    assert len(ROWS) == len(RESULTS)
    assert set(REFUSED) | {"not_allowed"} == REFUSALS
    assert b"reach-refused" in MESH_ANSWER
    assert {b"GET", b"HEAD", b"OPTIONS"} <= SAFE_METHODS
    assert not {b"POST", b"PUT", b"PATCH", b"DELETE", b"CONNECT"} & SAFE_METHODS


@pytest.mark.parametrize("then", ["broken", "connect_failed", *REFUSED])
def test_in_doubt_the_same_agent_is_asked_until_the_deadline(then: Result) -> None:
    """However often, however few retries are left: asking runs nothing."""
    assert step("broken", left=0) == ASK
    assert step("broken", then) == ASK_LATER
    assert step("busy", "connect_failed", "broken", counted=3) == ASK
    breaks: list[Result] = ["broken"] * 40
    assert step(*breaks, then, left=0, counted=1) == ASK_LATER


@pytest.mark.parametrize("then", ["agent_broke", "timeout", "server_error", *FINAL])
def test_in_doubt_asking_ends_with_what_asking_cannot_better(then: Result) -> None:
    assert step("broken", then) == STOP
    assert step("broken", "broken", "busy", then, counted=1) == STOP


def test_in_doubt_without_keys_nobody_is_asked() -> None:
    for then in ("broken", "connect_failed", "retryable", *REFUSED):
        assert step("broken", then, deduplicated=False) == STOP


def test_in_doubt_an_agent_that_says_not_done_gets_a_real_attempt() -> None:
    """It ran or joined, and its answer was "not done": another run is work, so it counts; still no other agent."""
    assert step("broken", "retryable", counted=1) == SAME_LATER
    assert step("broken", "retryable", counted=1, left=0) == STOP
    assert step("broken", "retryable", counted=MAX_ATTEMPTS) == STOP


def test_repeatable_joins_once_then_moves_on() -> None:
    assert step("broken", repeatable=True) == SAME
    assert step("broken", "broken", repeatable=True) == NEXT
    assert step("broken", "busy", repeatable=True) == NEXT
    assert step("broken", "agent_broke", repeatable=True) == NEXT
    assert step("broken", "retryable", repeatable=True) == NEXT_LATER
    assert step("busy", "broken", repeatable=True) == SAME


def test_not_run_leaves_no_doubt() -> None:
    assert step("retryable", "connect_failed") == NEXT
    assert step("connect_failed", "retryable") == NEXT_LATER
    assert step("busy", "broken") == ASK


def test_three_attempts_and_no_more() -> None:
    assert MAX_ATTEMPTS == 3
    assert step("busy", "busy") == NEXT
    assert step("busy", "busy", "busy", repeatable=True, left=9) == STOP
    assert step("busy", "busy", "busy", repeatable=True, left=9, counted=2) == NEXT


def test_the_chains_retries() -> None:
    assert step("busy", left=1) == NEXT
    assert step("busy", left=0, repeatable=True) == STOP
    assert step("broken", left=-1, repeatable=True) == STOP


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("repeatable", [True, False])
def test_a_body_that_is_gone_cannot_be_sent_again(result: Result, repeatable: bool) -> None:
    assert step(result, repeatable=repeatable, replayable=False) == STOP


@pytest.mark.parametrize(
    ("result", "repeatable", "then"),
    [
        ("busy",         False, SAME_LATER),
        ("connect_failed", True, SAME_LATER),
        ("retryable",    False, SAME_LATER),
        ("broken",       True,  SAME),
        ("broken",       False, ASK),
        ("agent_broke",  True,  SAME_LATER),
        ("server_error", True,  SAME_LATER),
        ("agent_broke",  False, STOP),
        ("server_error", False, STOP),
    ],
)  # fmt: skip
def test_bound_to_one_agent(result: Result, repeatable: bool, then: Step) -> None:
    assert step(result, repeatable=repeatable, bound=True) == then


HISTORIES = st.lists(st.sampled_from(RESULTS), min_size=1, max_size=8)
FACTS = st.builds(Facts, repeatable=st.booleans(), replayable=st.booleans(), deduplicated=st.booleans(),
                  retries_left=st.integers(-1, 3), bound=st.booleans())


@given(HISTORIES, FACTS, st.integers(0, 8))
def test_what_may_have_run_is_never_given_to_another(results: list[Result], facts: Facts, counted: int) -> None:
    then = next_step(results, facts, counted)
    if not facts.repeatable and any(EXECUTED[result] != "no" for result in results):
        assert then.go != "next_agent"
        assert then.go == "stop" or facts.deduplicated
    if facts.bound:
        assert then.go != "next_agent"
    if then.go != "stop":
        assert facts.replayable
        assert then.free or (counted < MAX_ATTEMPTS and facts.retries_left > 0)
    else:
        assert then == STOP


@given(HISTORIES, FACTS)
def test_only_asking_in_doubt_is_free(results: list[Result], facts: Facts) -> None:
    then = next_step(results, facts, 1)
    if then.free:
        assert then.go == "same_agent"
        assert not facts.repeatable
        assert {EXECUTED[result] for result in results} != {"no"}


@given(st.lists(st.sampled_from(RESULTS), min_size=12, max_size=12), FACTS)
def test_played_to_the_end_no_call_runs_twice_at_two_agents(script: list[Result], facts: Facts) -> None:
    """A caller that keeps to the steps: where every answer may come, at most one agent of a once-only call may run."""
    agent, counted, left = 0, 0, facts.retries_left
    results: list[Result] = []
    ran: set[int] = set()
    for index, result in enumerate(script):
        then = STOP
        if index:
            then = next_step(results, facts._replace(retries_left=left), counted)
            if then.go == "stop":
                break
            agent += then.go == "next_agent"
            left -= not then.free
        counted += not then.free
        results.append(result)
        if EXECUTED[result] != "no":
            ran.add(agent)
    assert facts.repeatable or len(ran) <= 1
    assert counted <= MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("status", "outcome", "retry_after", "result"),
    [
        (200, "",                  False, "answered"),
        (200, "success",           False, "answered"),
        (101, "",                  False, "answered"),
        (302, "",                  True,  "answered"),
        (404, "",                  False, "answered"),
        (429, "",                  False, "answered"),
        (429, "",                  True,  "retryable"),
        (451, "",                  True,  "answered"),
        (500, "",                  False, "server_error"),
        (500, "",                  True,  "server_error"),
        (503, "",                  False, "server_error"),
        (503, "",                  True,  "retryable"),
        (599, "",                  False, "server_error"),
        (200, "failure",           False, "failure"),
        (200, "retryable_failure", False, "retryable"),
        (200, "invalid_request",   False, "invalid_request"),
        (500, "success",           False, "answered"),
        (503, "failure",           True,  "failure"),
        (500, "retryable_failure", False, "retryable"),
        (422, "retryable_failure", False, "retryable"),
        (500, "invalid_request",   False, "invalid_request"),
    ],
)  # fmt: skip
def test_classify(status: int, outcome: str, retry_after: bool, result: Result) -> None:
    assert classify(status, outcome, retry_after) == result
