"""Refusals in the words of both sides."""

import pytest

from reach_core.problem import KINDS, Problem
from reach_sidecar.forward.failure import AttemptFailed, Refusal, mesh_mark, request_broke
from reach_sidecar.http1.message import Response
from reach_sidecar.policy.repeat import EXECUTED, REFUSALS


@pytest.mark.parametrize("reason", sorted(REFUSALS))
def test_a_refusal_has_not_run_and_says_so(reason: str) -> None:
    refusal = Refusal(reason, "because")  # type: ignore[arg-type]
    assert (refusal.executed, refusal.detail, refusal.reason) == ("no", "because", reason)
    assert refusal.code in KINDS
    assert EXECUTED[reason] == "no"  # type: ignore[index]
    assert mesh_mark(refusal) == [(b"reach-refused", b"Reach-Refused", reason.encode())]


def test_any_other_problem_is_a_fault() -> None:
    assert mesh_mark(Problem("outcome_unknown", "x")) == [(b"reach-fault", b"Reach-Fault", b"outcome_unknown")]


def test_a_failed_attempt_carries_what_a_retry_is_decided_by() -> None:
    failed = AttemptFailed("broken", "it broke")
    assert (failed.result, failed.detail, str(failed), failed.response) == ("broken", "it broke", "it broke", None)
    response = Response(503, [])
    assert AttemptFailed("retryable", "its agent answered 503", response).response is response


def test_a_listener_that_is_full_refuses_like_an_agent_that_is() -> None:
    """It knows of no agent yet, and the call has not run: the next one is tried at once."""
    assert mesh_mark(Problem("backpressure", "x")) == [(b"reach-refused", b"Reach-Refused", b"busy")]


def test_a_request_that_broke() -> None:
    problem = request_broke(ValueError("cut"))
    assert (problem.code, problem.status, problem.executed) == ("bad_request", 400, "unknown")
