"""A table without sidecars: agents that only stand in it, and calls that are looked up there."""

import msgspec

from reach_core.names import normalise
from reach_core.peer import Capability, Entry, Rank
from reach_core.table import PeerTable
from reach_sidecar.forward.call import Call
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.message import Request, field
from reach_sidecar.membership.peer import Peer
from reach_sidecar.membership.view import PeerView
from reach_sidecar.policy.naming import destination

NOW_MS = 1_000


class Known:
    """`put` makes an agent known."""

    def __init__(self) -> None:
        self.table = PeerTable()
        self.view = PeerView(self.table, Limits())
        self._ver = 0

    def put(self, agent_id: str, *names: str | Capability, **more: object) -> Peer:
        self._ver += 1
        capabilities = tuple(Capability(name=one) if isinstance(one, str) else one for one in names)
        entry = Entry(agent_id=agent_id, gen=1, ver=self._ver, rank=Rank.UP, address="127.0.0.1:1",
                      capabilities=capabilities)
        self.view.apply(self.table.merge([msgspec.structs.replace(entry, **more)], NOW_MS))
        peer = self.view.peer(agent_id)
        assert peer is not None
        return peer


def call_to(target: str, *fields: str, method: bytes = b"POST") -> Call:
    """A call as it comes to be looked up: `/to/summarize/x`."""
    headers = [field(*line.split(": ", 1)) for line in fields]
    call = Call(Request(method, target.encode(), 11, headers, Body.whole(b"")), 0.0)
    call.destination = destination(target.encode(), b"127.0.0.1", None)
    if call.destination.kind == "capability":
        call.capability = normalise(call.destination.name)
    call.deadline = 1e9
    return call
