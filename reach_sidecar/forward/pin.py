"""The calling side's memory: an agent's own key goes to one agent only, where twice would do harm.

Its agent may repeat the key after a failure, to this sidecar or to its next life. So before the first send, the agent
that is picked is noted on disk, together with the id of the store that will know what ran there. A repeat finds the
note and goes nowhere else; it is in doubt from the start, as if the first call's connection had just broken. Only
when every attempt is known not to have run, the key is free again (design §3, "Dedup").

Two calls with one key at the same time share the note: the second waits until the first has an agent, and joins it
there. From then on neither takes the key elsewhere. Where that store's id is not known yet, the second waits for the
first one's answer, which tells it.
"""

import asyncio

from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.observe import Layer
from reach_sidecar.forward.pinned import Pinned, unavailable
from reach_sidecar.forward.stores import Stores
from reach_sidecar.forward.whole_body import is_short
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
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def __call__(self, call: Call) -> Response:
        if not call.key_given or call.request.method in SAFE_METHODS:
            return await self._inner(call)
        harmful = _is_harmful(call.offers) or (bool(call.capability) and any(
            _is_harmful(offers) for offers in self._view.fallback_offers(call.capability)))
        if not harmful and not self._stores.is_open:
            return await self._inner(call)
        keys = _keys(call)
        try:
            async with asyncio.timeout_at(call.deadline):
                notes = await self._stores.notes()
                concerned = harmful or keys[0] in self._pinned or await _is_noted(notes, keys)
        except TimeoutError:
            raise _too_late() from None
        if not concerned:
            return await self._inner(call)
        pinned = self._pinned.get(keys[0])
        if pinned is None:
            pinned = self._pinned[keys[0]] = Pinned(keys, notes)
        pinned.users += 1
        try:
            return await self._pinned_call(call, pinned)
        finally:
            if pinned.leader is call:
                if call.executed == "no" and len(call.results) == call.sends:
                    self._free(pinned)  # whatever ended it: nothing is under way, and nothing ran
                pinned.leads_no_more()
            if pinned.decider is call:
                pinned.decided()  # without an agent: the next in line is to find one
            self._let_go(pinned)

    def _let_go(self, pinned: Pinned) -> None:
        pinned.users -= 1
        if not pinned.users:
            self._pinned.pop(pinned.keys[0], None)

    def _free(self, pinned: Pinned) -> None:
        """Drop its note beside whatever goes on. Who comes meanwhile waits, for the note would be dropped late."""
        if pinned.set_free():
            pinned.users += 1
            task = self._loop.create_task(self._drop(pinned))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _drop(self, pinned: Pinned) -> None:
        try:
            await pinned.drop()
        finally:
            pinned.decided()
            self._let_go(pinned)

    async def _pinned_call(self, call: Call, pinned: Pinned) -> Response:
        while not pinned.open:
            if pinned.decider is None and not is_short(call.request):  # the agent's side would say so too
                raise Problem("in_progress", "The first call with this key is still running, and this request is too "
                              "long to be compared with it: wait and ask again.")
            await pinned.wait(call.deadline)
        if not pinned.agent:
            pinned.decider = call
            if not pinned.known:
                await _read(pinned, call.deadline)
            if not pinned.agent:
                pinned.leader = call
        if pinned.agent:
            if pinned.decider is call:
                pinned.decided()
            pinned.joined = pinned.joined or pinned.users > 1
            call.doubtful, call.journal = True, pinned.journal
            call.caller = pinned.caller or call.caller  # the called side knows the key by the name of that time
            call.remark("pinned", pinned.agent)
        call.pinned = pinned
        try:
            response = await self._inner(call)
        except Problem as problem:
            if pinned.joined and problem.executed == "no" and problem.code != "key_reused":
                problem.executed = "unknown"  # not by this call; what the other one did is not known here
            elif problem.executed == "no" and not call.doubtful:
                self._free(pinned)
            raise
        try:
            if call.executed == "no" and not call.answered and not call.doubtful:
                self._free(pinned)
            elif self._loop.time() - call.started > NOTE_AGAIN_S:
                await pinned.note_again()
        except BaseException as error:  # cancelled meanwhile: nobody else will say that the answer is not sent
            if isinstance(response.body, Body):
                response.body.abandon()
            response.sent(0, error)
            raise
        return response


def _keys(call: Call) -> list[bytes]:
    """What the call's key is noted under: by the capability as it is declared, which all its names lead to, and by the
    name that was asked for, which may mean another one by the next time. Not by the caller: this sidecar's agent may
    get its name later."""
    if not call.capability:
        return [row_key(b"", b"@" + call.offers[0].peer.wire_id, call.scope, call.key)]
    names = dict.fromkeys((call.offers[0].capability.name, call.capability))
    return [row_key(b"", name.encode(), call.scope, call.key) for name in names]


async def _is_noted(notes: Notes, keys: list[bytes]) -> bool:
    """Those who offer the capability now may see no harm: whoever offered it at the first call is what counts."""
    try:
        for key in keys:
            if await notes.get(key) is not None:
                return True
    except StoreUnavailable as error:
        raise unavailable(error) from None
    return False


async def _read(pinned: Pinned, deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await pinned.read()
    except StoreUnavailable as error:
        raise unavailable(error) from None
    except TimeoutError:
        raise _too_late() from None


def _too_late() -> Problem:
    return Problem("deadline_exceeded", "The call's time was over before it was known where its key has gone.",
                   executed="unknown")


def _is_harmful(offers: list[Offer]) -> bool:
    """Would running it twice at one of them do harm that a durable note can prevent?"""
    return any(offer.capability.dedup == "durable" and not offer.capability.idempotent for offer in offers)
