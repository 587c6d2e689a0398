"""The called side's door: is the call for this agent, and which of its capabilities is it for?

What is refused here has not run, and says so (`Reach-Refused`), so the caller tries the next agent at once.
"""

from reach_core.names import normalise
from reach_core.peer import Capability
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.chain import HEADER as RETRIES_LEFT
from reach_sidecar.forward.chain import read_left
from reach_sidecar.forward.failure import Refusal
from reach_sidecar.forward.observe import Layer
from reach_sidecar.http1.message import Response
from reach_sidecar.membership.local import LocalAgent
from reach_sidecar.policy.match import meant_by_path
from reach_sidecar.policy.repeat import CHAIN_RETRIES


class Authorise:
    """Reads what the calling sidecar says of the call; the capability's own settings are the local ones."""

    def __init__(self, inner: Layer, *, local: LocalAgent, default_timeout_s: float) -> None:
        self._inner = inner
        self._local = local
        self._default_timeout_s = default_timeout_s

    async def __call__(self, call: Call) -> Response:
        get = call.request.index.get
        call.caller = get(b"reach-caller", b"").decode("latin-1")
        call.key = get(b"idempotency-key", b"")
        call.session = get(b"reach-session", b"")
        attempt = get(b"reach-attempt", b"")
        call.attempt = int(attempt[:3]) if attempt.isdigit() else 0
        left = read_left(get(RETRIES_LEFT))
        call.retries_left = CHAIN_RETRIES if left is None else left
        call.take_deadline(self._default_timeout_s)
        call.target = self._local.agent_id
        call.offered = self._offered(call, get(b"reach-target", b""), get(b"reach-agent", b""))
        return await self._inner(call)

    def _offered(self, call: Call, target: bytes, agent: bytes) -> Capability:
        local = self._local
        name = target.decode("utf-8", "replace")
        by_agent = name.startswith("@")
        call.capability = "" if by_agent else normalise(name)
        if agent.decode("latin-1") != local.agent_id or local.is_gateway:
            raise Refusal("not_here", f"the agent {agent.decode('latin-1')!r} does not live at this address")
        if by_agent:
            return meant_by_path(local.declared, call.request.target)
        capability = local.capabilities.get(call.capability)
        if capability is None:
            raise Refusal("not_here", f"the agent {local.agent_id} does not offer {name!r} any more")
        return capability
