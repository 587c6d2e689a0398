"""One call on its way through the layers: what is known of it so far. Each layer fills in its own part."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from reach_core.deadline import parse_timeout
from reach_core.peer import Capability
from reach_core.problem import Attempt, Executed, Problem, worst
from reach_core.trace import TraceContext
from reach_sidecar.forward.pinned import Pinned
from reach_sidecar.http1.message import Field, Request
from reach_sidecar.membership.view import ANY, Offer
from reach_sidecar.policy.attributes import Requirement
from reach_sidecar.policy.naming import Destination
from reach_sidecar.policy.repeat import Result


class Timing(NamedTuple):
    """Where the time of an answered attempt went, in ms (`Server-Timing`)."""

    queue_ms: float
    agent_ms: float
    mesh_ms: float
    retry_ms: float  # before that attempt: others that failed, and the waits between them


class Call:
    """`started` and `deadline` are loop seconds; the loop's clock ticks in ms, so durations are measured from
    `began` (perf_counter seconds). `span_id` is this hop's span, `parent_id` the one it was called from;
    `attempt_span_id` was sent with the last attempt, empty where that sent nothing."""

    __slots__ = ("agent_ms", "answered", "attempt", "attempt_span_id", "attempts", "before_agent", "began", "caller",
                 "capability", "chain_budget", "chain_start", "deadline", "destination", "doubtful", "fields",
                 "first_sent", "journal", "key", "key_given", "mismatched", "offered", "offers", "outcome",
                 "parent_id", "path", "pinned", "preferred", "queue_ms", "remarks", "request", "results",
                 "retries_left", "scope", "sends", "session", "span_id", "started", "target", "trace", "verdict")

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
        self.target = ""  # the agent that was called
        self.caller = ""
        self.key = b""
        self.deadline = 0.0
        self.retries_left = 0
        self.chain_budget: int | None = None  # retries that the chain had when this call began; None: it is the first
        self.chain_start = 0  # and how many were spent in its trace here
        self.session = b""
        self.outcome = ""
        self.remarks: dict[str, object] | None = None  # decisions worth a word in the log line
        self.attempt = 0  # which one was answered; on the called side: which one this is, as the caller counts
        # the calling side
        self.key_given = False
        self.offers: list[Offer] = []
        self.scope = b""  # what tells apart the users of one caller, where that is a gateway
        self.preferred: tuple[Requirement, ...] = ()
        self.fields: list[Field] = []  # what passes through to the next hop
        self.sends = 0  # how often it was tried, whatever became of it
        self.attempts: list[Attempt] = []
        self.results: list[Result] = []
        self.doubtful = False  # an earlier call with the same key may have run
        self.journal = b""  # of the called store, as known when the call was first sent to the agent it may run at
        self.first_sent = 0.0  # loop seconds
        self.pinned: Pinned | None = None  # where the key goes, of a call that must not run twice
        self.mismatched: list[str] = []  # agents that lack a required attribute, each with a word on what
        self.answered = False
        # the called side
        self.offered: Capability = ANY
        self.before_agent: Callable[[], Awaitable[None]] | None = None  # to be done with a place and before the agent
        self.queue_ms = 0.0
        self.agent_ms = 0.0
        self.verdict = ""  # what the agent said of its own work; "" where it said nothing

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

    def remark(self, name: str, value: object) -> None:
        """For the log line of this hop."""
        if self.remarks is None:
            self.remarks = {}
        self.remarks[name] = value

    @property
    def executed(self) -> Executed:
        """What all attempts together may have done."""
        verdict = worst(attempt.executed for attempt in self.attempts)
        return "unknown" if self.doubtful and verdict == "no" else verdict


_NO_TRACE = TraceContext("0" * 32, "0" * 16)
