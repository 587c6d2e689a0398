"""A call's own sums."""

from reach_core.problem import Attempt
from reach_sidecar.forward.call import Call
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Request


def test_executed_is_the_worst_of_all_attempts() -> None:
    call = Call(Request(b"GET", b"/", 11, [], Body()), 0.0, 0.0)
    assert call.executed == "no"
    for result, executed, worst in (("busy", "no", "no"), ("broken", "unknown", "unknown"), ("busy", "no", "unknown"),
                                    ("answered", "yes", "yes"), ("broken", "unknown", "yes")):
        call.attempts.append(Attempt("b", result, 1.0, executed))  # type: ignore[arg-type]
        assert call.executed == worst
