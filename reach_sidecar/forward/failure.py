"""An attempt that brought no answer for the caller, and a call that is refused on the called side."""

from reach_core.problem import Problem
from reach_sidecar.http1.message import Field, Response, field
from reach_sidecar.policy.repeat import Result


class AttemptFailed(Exception):
    """`result` is what a retry is decided by; `detail` a clause for the caller (`… failed: <detail>`); `response` is
    the agent's answer, where there is one that says so. `blameless`: it says nothing of the agent."""

    def __init__(self, result: Result, detail: str, response: Response | None = None, *,
                 blameless: bool = False) -> None:
        super().__init__(detail)
        self.result = result
        self.detail = detail
        self.response = response
        self.blameless = blameless


_CODE_OF: dict[Result, str] = {
    "busy": "backpressure",
    "draining": "no_agent_available",
    "agent_unreachable": "no_agent_available",
    "not_here": "no_such_agent",
    "not_allowed": "not_allowed",
    "store_unavailable": "store_unavailable",
}


class Refusal(Problem):
    """Said by the called side: not run, for this `reason` (`Reach-Refused`)."""

    def __init__(self, reason: Result, detail: str) -> None:
        super().__init__(_CODE_OF[reason], detail, executed="no")
        self.reason = reason


def mesh_mark(problem: Problem) -> list[Field]:
    """The field by which the calling sidecar knows its peer's words from the agent's."""
    if isinstance(problem, Refusal):
        return [field("Reach-Refused", problem.reason)]
    if problem.code == "backpressure":  # the listener itself is full
        return [field("Reach-Refused", "busy")]
    return [field("Reach-Fault", problem.code)]


def request_broke(error: BaseException) -> Problem:
    """The request's own body broke off, and so the call with it: what of it had come may have been acted upon."""
    return Problem("bad_request", f"The request's body did not arrive whole: {error}.", executed="unknown")
