"""A call's own sums."""

import pytest

from reach_core.problem import Attempt, Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Request, field


def made(*lines: str, started: float = 100.0) -> Call:
    headers = [field(*line.split(": ", 1)) for line in lines]
    return Call(Request(b"GET", b"/", 11, headers, Body()), started, 0.0)


def test_an_earlier_call_with_the_key_may_have_run() -> None:
    """Whatever this one comes to: only what is sure to have run is worse."""
    call = made()
    call.doubtful = True
    assert call.executed == "unknown"
    for result, executed, worst in (("busy", "no", "unknown"), ("broken", "unknown", "unknown"),
                                    ("answered", "yes", "yes")):
        call.attempts.append(Attempt("b", result, 1.0, executed))  # type: ignore[arg-type]
        assert call.executed == worst


@pytest.mark.parametrize(("lines", "deadline"), [([], 107.0), (["Reach-Timeout: 1500ms"], 101.5),
                                                 (["REACH-TIMEOUT: 2s"], 102.0)])
def test_its_time_is_what_the_request_says_of_it(lines: list[str], deadline: float) -> None:
    call = made(*lines)
    call.take_deadline(7.0)
    assert call.deadline == deadline


@pytest.mark.parametrize("value", ["", "soon", "0s", "-1s", "5"])
def test_a_time_that_cannot_be_read_is_said(value: str) -> None:
    with pytest.raises(Problem, match="Reach-Timeout") as problem:
        made(f"Reach-Timeout: {value}").take_deadline(7.0)
    assert problem.value.code == "bad_request"


def test_remarks_are_there_once_there_is_one() -> None:
    call = made()
    assert call.remarks is None
    call.remark("dedup", "join")
    call.remark("pinned", "b")
    assert call.remarks == {"dedup": "join", "pinned": "b"}


def test_executed_is_the_worst_of_all_attempts() -> None:
    call = Call(Request(b"GET", b"/", 11, [], Body()), 0.0, 0.0)
    assert call.executed == "no"
    for result, executed, worst in (("busy", "no", "no"), ("broken", "unknown", "unknown"), ("busy", "no", "unknown"),
                                    ("answered", "yes", "yes"), ("broken", "unknown", "yes")):
        call.attempts.append(Attempt("b", result, 1.0, executed))  # type: ignore[arg-type]
        assert call.executed == worst
