"""The calling side's memory: an agent's own key goes to one agent only, where twice would do harm.

Its agent may repeat the key after a failure, to this sidecar or to its next life. So before the first send, the agent
that is picked is noted on disk, together with the id of the store that will know what ran there. A repeat finds the
note and goes nowhere else; it is in doubt from the start, as if the first call's connection had just broken. Only
when every attempt is known not to have run, the key is free again (design §3, "Dedup").

Two calls with one key at the same time share the note: the second waits until the first has an agent, and joins it
there. From then on neither takes the key elsewhere.
"""

import asyncio

from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.observe import Layer
from reach_sidecar.forward.pinned import Pinned, unavailable
from reach_sidecar.forward.stores import Stores
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Response
from reach_sidecar.journal.database import StoreUnavailable
from reach_sidecar.journal.notes import Notes
from reach_sidecar.membership.view import Offer, PeerView
from reach_sidecar.policy.dedup import row_key
from reach_sidecar.policy.repeat import SAFE_METHODS

NOTE_AGAIN_S = 60.0  # a call that took longer is noted again at its end: the called side counts from there


class Pin:
    def __init__(self, inner: Layer, *, view: PeerView, stores: Stores) -> None:
        self._inner = inner
        self._view = view
        self._stores = stores
        self._pinned: dict[bytes, Pinned] = {}
        self._loop = asyncio.get_running_loop()

    async def __call__(self, call: Call) -> Response:
        if not call.key_given or call.request.method in SAFE_METHODS:
            return await self._inner(call)
        harmful = _is_harmful(call.offers) or (bool(call.capability) and any(
            _is_harmful(offers) for offers in self._view.fallback_offers(call.capability)))
        if not harmful and not self._stores.is_open:
            return await self._inner(call)
        notes = await self._stores.notes()
        asked = call.capability or f"@{call.offers[0].peer.agent_id}"
        key = row_key(call.caller.encode(), asked.encode(), call.scope, call.key)
        if not harmful and key not in self._pinned and not await _is_noted(notes, key):
            return await self._inner(call)
        pinned = self._pinned.get(key)
        if pinned is None:
            pinned = self._pinned[key] = Pinned(key, notes)
        pinned.users += 1
        try:
            return await self._pinned_call(call, pinned)
        finally:
            pinned.users -= 1
            if pinned.decider is call:
                pinned.decided()  # without an agent: the next in line is to find one
            if not pinned.users:
                self._pinned.pop(key, None)

    async def _pinned_call(self, call: Call, pinned: Pinned) -> Response:
        while pinned.decider is not None:
            await pinned.wait(call.deadline)
        if not pinned.agent:
            pinned.decider = call
            if not pinned.known:
                await _read(pinned)
        if pinned.agent:
            if pinned.decider is call:
                pinned.decided()
            pinned.joined = pinned.joined or pinned.users > 1
            call.doubtful, call.journal = True, pinned.journal
            call.remark("pinned", pinned.agent)
        call.pinned = pinned
        try:
            response = await self._inner(call)
        except Problem as problem:
            if pinned.joined and problem.executed == "no" and problem.code != "key_reused":
                problem.executed = "unknown"  # not by this call; what the other one did is not known here
            elif problem.executed == "no" and not call.doubtful:
                await pinned.free(call)
            raise
        try:
            if call.executed == "no" and not call.answered and not call.doubtful:
                await pinned.free(call)
            elif self._loop.time() - call.started > NOTE_AGAIN_S:
                await pinned.note_again()
        except BaseException as error:  # cancelled meanwhile: nobody else will say that the answer is not sent
            if isinstance(response.body, Body):
                response.body.abandon()
            response.sent(0, error)
            raise
        return response


async def _is_noted(notes: Notes, key: bytes) -> bool:
    """Those who offer the capability now may see no harm: whoever offered it at the first call is what counts."""
    try:
        return await notes.get(key) is not None
    except StoreUnavailable as error:
        raise unavailable(error) from None


async def _read(pinned: Pinned) -> None:
    try:
        await pinned.read()
    except StoreUnavailable as error:
        raise unavailable(error) from None


def _is_harmful(offers: list[Offer]) -> bool:
    """Would running it twice at one of them do harm that a durable note can prevent?"""
    return any(offer.capability.dedup == "durable" and not offer.capability.idempotent for offer in offers)
