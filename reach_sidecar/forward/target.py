"""Whom the call is for: from the name it was asked by to the agents that offer it.

Names that nobody offers are answered here at once, with names that are near. Only a call that comes before this
sidecar has its first table waits for that.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Protocol

from reach_core.names import normalise
from reach_core.problem import Problem
from reach_sidecar.forward import fields
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.chain import HEADER as RETRIES_LEFT
from reach_sidecar.forward.chain import read_left
from reach_sidecar.forward.observe import Layer
from reach_sidecar.http1.message import Response
from reach_sidecar.membership.view import ANY, Offer, PeerView
from reach_sidecar.policy.attributes import first_unmet, parse_requirements
from reach_sidecar.policy.naming import Destination
from reach_sidecar.policy.retry import CHAIN_RETRIES

TABLE_WAIT_S = 3.0


class FirstTable(Protocol):
    """`synced` is set once there is a table; `missing_table` says in sentences why there is none."""

    @property
    def synced(self) -> asyncio.Event: ...

    @property
    def missing_table(self) -> str: ...


class Keys:
    """Idempotency keys for calls that bring none: unique for ever, and cheaper than fresh randomness each time.

    Nobody gains by guessing one: a key counts only together with the caller that used it.
    """

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(12).encode()
        self._count = 0

    def next(self) -> bytes:
        self._count += 1
        return b"%b%08x" % (self._prefix, self._count)


class Target:
    """`me` is this sidecar's id: it is the caller, as the log and the called side name it."""

    def __init__(self, inner: Layer, *, me: Callable[[], str], view: PeerView, first_table: FirstTable,
                 default_timeout_s: float) -> None:
        self._inner = inner
        self._me = me
        self._view = view
        self._first_table = first_table
        self._default_timeout_s = default_timeout_s
        self._loop = asyncio.get_running_loop()
        self._keys = Keys()

    async def __call__(self, call: Call) -> Response:
        destination = call.destination
        assert destination is not None
        call.caller = self._me()
        self._read_budget(call)
        try:
            call.offers = self._offers(destination, call)
        except Problem:
            if self._first_table.synced.is_set():
                raise
            await self._wait_for_table(call)
            call.offers = self._offers(destination, call)
        call.path = destination.path
        request = call.request
        call.fields = fields.entering(request.headers, request.peer, traced=call.parent_id is not None)
        if not call.key_given and b"idempotency-key" in request.index:  # an empty one: ours takes its place
            call.fields = [header for header in call.fields if header[0] != b"idempotency-key"]
        return await self._inner(call)

    async def _wait_for_table(self, call: Call) -> None:
        """Nobody is known yet, which does not mean that nobody is there. Raises Problem where no table comes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(call.deadline, self._loop.time() + TABLE_WAIT_S)):
                await self._first_table.synced.wait()
        if not self._first_table.synced.is_set():
            raise Problem("no_agent_available", self._first_table.missing_table)

    def _offers(self, destination: Destination, call: Call) -> list[Offer]:
        return self._agent(destination) if destination.kind == "agent" else self._capability(destination, call)

    def _agent(self, destination: Destination) -> list[Offer]:
        peer = self._view.peer(destination.name) or self._view.peer_folded(destination.name)
        if peer is None:
            raise Problem("no_such_agent", f"No agent has the id {destination.name!r} in the table of this sidecar."
                          + _suggest(self._view.near_agents(destination.name)))
        return [Offer(peer, ANY, "exact", b"@" + peer.wire_id)]

    def _capability(self, destination: Destination, call: Call) -> list[Offer]:
        call.capability = normalise(destination.name)
        offers = self._view.offers(call.capability)
        if not offers:
            near = self._view.near(destination.name)
            raise Problem("no_such_capability", f"No agent declares the capability {destination.name!r}."
                          + (_suggest(near) or " `reach peers` shows what is declared."), extra={"near": near})
        if b"reach-require" not in call.request.index:
            return offers
        required = [value for lower, _, value in call.request.headers if lower == b"reach-require"]
        return _meeting(offers, b",".join(required), destination.name)

    def _read_budget(self, call: Call) -> None:
        index = call.request.index
        call.take_deadline(self._default_timeout_s)
        retries_left = read_left(index.get(RETRIES_LEFT))
        call.retries_left = CHAIN_RETRIES if retries_left is None else retries_left
        key = index.get(b"idempotency-key")
        call.key_given = bool(key)
        call.key = key or self._keys.next()


def _meeting(offers: list[Offer], require: bytes, name: str) -> list[Offer]:
    """The offers whose attributes meet `Reach-Require`. Raises Problem, saying what each one lacks."""
    try:
        wanted = parse_requirements(require.decode("latin-1"))
    except ValueError as error:
        raise Problem("bad_request", f"Reach-Require: {error}.") from None
    unmet = [(offer, first_unmet(wanted, offer.capability.attributes)) for offer in offers]
    fitting = [offer for offer, missing in unmet if missing is None]
    if not fitting:
        reasons = "; ".join(f"{offer.peer.agent_id}: {missing} is not met" for offer, missing in unmet[:10])
        raise Problem("no_agent_available", f"No agent that offers {name!r} has the required attributes: {reasons}.")
    return fitting


def _suggest(near: list[str]) -> str:
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
