"""One call on its way through the layers: what is known of it so far. Each layer fills in its own part."""

from typing import NamedTuple

from reach_core.deadline import parse_timeout
from reach_core.problem import Attempt, Executed, Problem, worst
from reach_core.trace import TraceContext
from reach_sidecar.http1.message import Field, Request
from reach_sidecar.membership.view import Offer
from reach_sidecar.policy.naming import Destination
from reach_sidecar.policy.retry import Result


class Timing(NamedTuple):
    """Where the time of an answered attempt went, in ms (`Server-Timing`)."""

    queue_ms: float
    agent_ms: float
    mesh_ms: float


class Call:
    """`started` and `deadline` are loop seconds; the loop's clock ticks in ms, so durations are measured from
    `began` (perf_counter seconds). `span_id` is this hop's span, `parent_id` the one it was called from;
    `attempt_span_id` was sent with the last attempt, empty where that sent nothing."""

    __slots__ = ("attempt", "attempt_span_id", "attempts", "began", "caller", "capability", "deadline",
                 "destination", "fields", "key", "key_given", "offers", "outcome", "parent_id", "path", "queue_ms",
                 "request", "results", "retries_left", "span_id", "started", "target", "trace")

    def __init__(self, request: Request, started: float, began: float = 0.0) -> None:
        self.request = request
        self.started = started
        self.began = began
        self.trace: TraceContext = _NO_TRACE
        self.span_id = ""
        self.parent_id: str | None = None
        self.attempt_span_id = ""
        self.destination: Destination | None = None
        self.capability = ""  # as asked for, normalised
        self.path: bytes | None = None  # path and query for the agent; None: the capability's own path
        self.offers: list[Offer] = []
        self.target = ""  # the agent that was called
        self.caller = ""
        self.key = b""
        self.key_given = False
        self.deadline = 0.0
        self.retries_left = 0
        self.fields: list[Field] = []  # what passes through to the next hop
        self.attempt = 0  # which one was answered; on the called side: which one this is, as the caller counts
        self.attempts: list[Attempt] = []
        self.results: list[Result] = []
        self.outcome = ""
        self.queue_ms = 0.0

    def take_deadline(self, default_s: float) -> None:
        """What the request says of its time (`Reach-Timeout`), else `default_s`. Raises Problem."""
        timeout_s = default_s
        timeout = self.request.index.get(b"reach-timeout")
        if timeout is not None:
            try:
                timeout_s = parse_timeout(timeout)
            except ValueError as error:
                raise Problem("bad_request", f"Reach-Timeout: {error}.") from None
        self.deadline = self.started + timeout_s

    @property
    def executed(self) -> Executed:
        """What all attempts together may have done."""
        return worst(attempt.executed for attempt in self.attempts)


_NO_TRACE = TraceContext("0" * 32, "0" * 16)
