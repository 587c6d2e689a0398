"""The retries of a chain of calls: what the calls behind an answer spent is lacking from what its caller may spend.

A calls B, whose agent calls C in the same trace. The budget travels down with `Reach-Retries-Left`. What B spent on C
is noted here by trace, and taken off the budget when B answers A.
"""

from reach_core.trace import parse_traceparent
from reach_sidecar.http1.message import Field, Request
from reach_sidecar.policy.repeat import CHAIN_RETRIES

HEADER = b"reach-retries-left"
MAX_TRACES = 1024
"""Where a chain begins nobody asks for what was spent: the oldest notes are dropped."""


class Chains:
    """Retries spent by this sidecar's own calls, by trace. Empty nearly always: a retry is rare."""

    def __init__(self) -> None:
        self._spent: dict[str, int] = {}

    def spend(self, trace_id: str, retries: int) -> None:
        spent = self._spent
        spent[trace_id] = spent.get(trace_id, 0) + retries
        if len(spent) > MAX_TRACES:
            del spent[next(iter(spent))]

    def spent(self, trace_id: str) -> int:
        return self._spent.get(trace_id, 0) if self._spent else 0

    def left_after(self, request: Request) -> Field:
        """For the answer to a call that came by the mesh: what it brought, less what was spent for it here."""
        brought = request.index.get(HEADER, b"")
        if not self._spent and brought:
            return HEADER, b"Reach-Retries-Left", brought
        trace = parse_traceparent(request.index.get(b"traceparent"))
        spent = self._spent.pop(trace.trace_id, 0) if trace is not None else 0
        left = read_left(brought)
        return HEADER, b"Reach-Retries-Left", b"%d" % max(0, (CHAIN_RETRIES if left is None else left) - spent)


def read_left(value: bytes | None) -> int | None:
    """Of a `Reach-Retries-Left` value; None where it is absent or makes no sense."""
    return min(CHAIN_RETRIES, int(value[:3])) if value is not None and value.isdigit() else None
