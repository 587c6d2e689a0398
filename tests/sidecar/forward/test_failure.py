"""Refusals in the words of both sides."""

import pytest

from reach_core.problem import KINDS, Problem
from reach_sidecar.forward.failure import AttemptFailed, Refusal, mesh_mark, request_broke
from reach_sidecar.policy.retry import EXECUTED, REFUSALS


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
    assert (failed.result, failed.detail, str(failed)) == ("broken", "it broke", "it broke")


def test_a_request_that_broke() -> None:
    problem = request_broke(ValueError("cut"))
    assert (problem.code, problem.status, problem.executed) == ("bad_request", 400, "unknown")
