"""Whom the call is for, and what it brings along: its time, its retries, its key, its session.

Names that nobody offers are answered here at once, with names that are near. Only a call that comes before this
sidecar has its first table waits for that. What an agent does not say itself is inherited from the call it works for,
as far as `traceparent` tells which that is (design §3).
"""

import asyncio
import contextlib
import secrets
from hashlib import blake2b
from typing import Protocol

from reach_core.names import normalise
from reach_core.problem import Problem
from reach_sidecar.forward import fields
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.chain import HEADER as RETRIES_LEFT
from reach_sidecar.forward.chain import read_left
from reach_sidecar.forward.given_key import given_key
from reach_sidecar.forward.observe import Layer
from reach_sidecar.forward.offers import FindOffers
from reach_sidecar.forward.running import RunningCalls
from reach_sidecar.http1.message import Response
from reach_sidecar.membership.local import LocalAgent
from reach_sidecar.membership.view import PeerView
from reach_sidecar.policy.attributes import parse_requirements
from reach_sidecar.policy.dedup import MADE_PREFIX
from reach_sidecar.policy.repeat import CHAIN_RETRIES

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
        self._prefix = b"%b%b-" % (MADE_PREFIX, secrets.token_hex(12).encode())
        self._count = 0

    def next(self) -> bytes:
        self._count += 1
        return b"%b%08x" % (self._prefix, self._count)


class Target:
    """`local` is the caller, by its id, as the log and the called side name it; `instance` tells two gateways of one
    name apart."""

    def __init__(self, inner: Layer, *, local: LocalAgent, view: PeerView, find: FindOffers, first_table: FirstTable,
                 running: RunningCalls, instance: str, default_timeout_s: float) -> None:
        self._inner = inner
        self._view = view
        self._instance = instance.encode()
        self._local = local
        self._find = find
        self._first_table = first_table
        self._running = running
        self._default_timeout_s = default_timeout_s
        self._loop = asyncio.get_running_loop()
        self._keys = Keys()

    async def __call__(self, call: Call) -> Response:
        destination = call.destination
        assert destination is not None
        call.caller = self._local.agent_id
        self._read(call)
        if destination.kind == "capability":
            call.capability = normalise(destination.name)
        if not self._first_table.synced.is_set():
            await self._wait_for_table(call)
        call.offers = self._find(call)
        call.path = destination.path
        request = call.request
        place = self._view.key_place(call.offers)
        key = request.index.get(b"idempotency-key") if place is None else await given_key(call, place)
        call.key_given = bool(key)
        call.key = key or self._keys.next()
        if key and self._local.is_gateway and b"authorization" in request.index:
            # many use a gateway, and only this tells their keys apart
            who = self._instance + b" " + request.index[b"authorization"]
            call.scope = blake2b(who, digest_size=12).hexdigest().encode()
        call.fields = fields.entering(request.headers, request.peer, traced=call.parent_id is not None)
        if place is not None or not key:  # ours takes its place
            if b"idempotency-key" in request.index:
                call.fields = [header for header in call.fields if header[0] != b"idempotency-key"]
            call.fields.append((b"idempotency-key", b"Idempotency-Key", call.key))
        if call.session and b"reach-session" not in request.index:
            call.fields.append((b"reach-session", b"Reach-Session", call.session))
        return await self._inner(call)

    async def _wait_for_table(self, call: Call) -> None:
        """Nobody is known yet, or only those that peers have told of meanwhile, which does not mean that nobody else
        is there. Raises Problem where no table comes and nobody is known."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(call.deadline, self._loop.time() + TABLE_WAIT_S)):
                await self._first_table.synced.wait()
        if not self._first_table.synced.is_set() and not len(self._view):
            raise Problem("no_agent_available", self._first_table.missing_table)

    def _read(self, call: Call) -> None:
        index = call.request.index
        call.take_deadline(self._default_timeout_s)
        left = read_left(index.get(RETRIES_LEFT))
        call.retries_left = CHAIN_RETRIES if left is None else left
        call.session = index.get(b"reach-session", b"")
        if call.parent_id is not None and len(self._running):
            self._inherit(call, call.parent_id, said_timeout=b"reach-timeout" in index)
        if b"reach-prefer" in index:
            preferred = [value for lower, _, value in call.request.headers if lower == b"reach-prefer"]
            try:
                call.preferred = parse_requirements(b",".join(preferred).decode("latin-1"))
            except ValueError as error:
                raise Problem("bad_request", f"Reach-Prefer: {error}.") from None

    def _inherit(self, call: Call, parent_id: str, *, said_timeout: bool) -> None:
        """A chain never gets more time or retries than it has, whatever one of its agents says."""
        inherited = self._running.inherited(parent_id, call.trace.trace_id)
        if inherited is None:
            return
        call.deadline = min(call.deadline, inherited.deadline) if said_timeout else inherited.deadline
        call.retries_left = call.chain_budget = min(call.retries_left, inherited.retries_left)
        call.chain_start = self._running.spent(call.trace.trace_id)
        call.session = call.session or inherited.session
