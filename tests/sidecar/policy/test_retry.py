"""The rows of the table: what happened, did it run, and then."""

import pytest

from reach_core.headers import MESH_ANSWER
from reach_sidecar.policy.retry import EXECUTED, MAX_ATTEMPTS, REFUSALS, SAFE_METHODS, Result, next_step

NOT_RUN: list[Result] = ["connect_failed", "busy", "draining", "agent_unreachable", "not_here", "store_unavailable"]
PERHAPS: list[Result] = ["broken", "timeout"]


def step(*results: Result, repeatable: bool = False, replayable: bool = True, left: int = 2) -> str:
    return next_step(results, repeatable=repeatable, replayable=replayable, retries_left=left)


@pytest.mark.parametrize("result", NOT_RUN)
def test_not_run_goes_to_the_next_agent_whatever_the_call(result: Result) -> None:
    assert EXECUTED[result] == "no"
    assert step(result) == "next_agent"
    assert step(result, repeatable=True) == "next_agent"


@pytest.mark.parametrize("result", PERHAPS)
def test_perhaps_run_is_repeated_only_where_twice_does_no_harm(result: Result) -> None:
    assert EXECUTED[result] == "unknown"
    assert step(result) == "stop"
    assert step(result, repeatable=True) == "next_agent"


@pytest.mark.parametrize("result", ["answered", "not_allowed", "bad_answer"])
def test_final(result: Result) -> None:
    """An answer, a refusal that every agent would repeat, and a malformed answer are never tried again."""
    assert step(result, repeatable=True) == "stop"
    assert step("connect_failed", result, repeatable=True) == "stop"


@pytest.mark.parametrize("perhaps", PERHAPS)
@pytest.mark.parametrize("result", NOT_RUN)
def test_the_rows_judge_the_call(perhaps: Result, result: Result) -> None:
    """Once any attempt may have run, a later refusal does not make another agent safe."""
    assert step(perhaps, result) == "stop"
    assert step(perhaps, result, repeatable=True) == "next_agent"


def test_three_attempts_and_no_more() -> None:
    assert MAX_ATTEMPTS == 3
    assert step("busy", "busy") == "next_agent"
    assert step("busy", "busy", "busy", repeatable=True, left=9) == "stop"


def test_the_chains_retries() -> None:
    assert step("busy", left=1) == "next_agent"
    assert step("busy", left=0, repeatable=True) == "stop"
    assert step("busy", left=-1, repeatable=True) == "stop"


@pytest.mark.parametrize("result", [*NOT_RUN, *PERHAPS])
def test_a_body_that_is_gone_cannot_be_sent_again(result: Result) -> None:
    assert step(result, repeatable=True, replayable=False) == "stop"


def test_words_are_complete() -> None:
    assert set(EXECUTED) == {*NOT_RUN, *PERHAPS, "answered", "not_allowed", "bad_answer"}
    assert EXECUTED["bad_answer"] == "unknown"
    assert EXECUTED["answered"] == "yes"
    assert {reason for reason in EXECUTED if reason in REFUSALS} == REFUSALS
    assert b"reach-refused" in MESH_ANSWER
    assert {b"GET", b"HEAD", b"OPTIONS"} <= SAFE_METHODS
    assert not {b"POST", b"PUT", b"PATCH", b"DELETE", b"CONNECT"} & SAFE_METHODS
