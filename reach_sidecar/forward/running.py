"""The calls that this side is delivering: what can be cancelled, and what the agent's own calls inherit from.

An agent that passes `traceparent` on says by it which of these calls it works for, and its calls get that one's
deadline, retries and session. The span id names the call exactly. An agent that makes spans of its own names the
trace only; several calls of one trace may run here, and then the gentlest reading counts (`policy/inherit.py`).
"""

import asyncio
from typing import NamedTuple

from reach_sidecar.forward.call import Call
from reach_sidecar.forward.chain import Chains
from reach_sidecar.policy.inherit import Inherited, merge


class Running(NamedTuple):
    call: Call
    task: "asyncio.Task[object] | None"


class RunningCalls:
    """By the span this hop gave the call: the agent sees it as the parent of its own."""

    def __init__(self, chains: Chains) -> None:
        self._running: dict[str, Running] = {}
        self._chains = chains
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._running)

    def enter(self, call: Call) -> None:
        self._running[call.span_id] = Running(call, asyncio.current_task(self._loop))

    def leave(self, call: Call) -> None:
        self._running.pop(call.span_id, None)

    def cancel(self, caller: str, key: bytes) -> bool:
        """Stop the call, which closes its connection to the agent. False: it is not running here, or is still wanted:
        others wait for the same key, or the agent that called may come back with it."""
        for call, task in list(self._running.values()):
            if call.key == key and call.caller == caller:
                wanted = call.request.wanted
                if wanted is not None and wanted():
                    return False
                del self._running[call.span_id]
                return task is not None and task.cancel()
        return False

    def spent(self, trace_id: str) -> int:
        """Retries that calls of this trace have spent here."""
        return self._chains.spent(trace_id)

    def inherited(self, parent_id: str, trace_id: str) -> Inherited | None:
        """What a call made under the span `parent_id` of the trace inherits; None where no such call runs here."""
        running = self._running.get(parent_id)
        if running is not None and running.call.trace.trace_id == trace_id:
            return self._of(running.call)
        return merge([self._of(call) for call, _ in self._running.values() if call.trace.trace_id == trace_id])

    def _of(self, call: Call) -> Inherited:
        left = call.retries_left - self._chains.spent(call.trace.trace_id)
        return Inherited(call.deadline, max(0, left), call.session)
