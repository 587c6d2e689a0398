"""One attempt: the call to one peer's sidecar, and what came of it."""

import asyncio
from random import Random
from time import perf_counter

import orjson

from reach_core.deadline import format_timeout
from reach_core.problem import KINDS, Problem
from reach_core.trace import span_of
from reach_sidecar.forward import fields
from reach_sidecar.forward.call import Call, Timing
from reach_sidecar.forward.cancel import Canceller
from reach_sidecar.forward.chain import HEADER as RETRIES_LEFT
from reach_sidecar.forward.chain import Chains, read_left
from reach_sidecar.forward.failure import AttemptFailed, request_broke
from reach_sidecar.forward.observe import traceparent
from reach_sidecar.forward.outgoing import frame, switch
from reach_sidecar.forward.pinned import UNKNOWN
from reach_sidecar.forward.replay import KEEP_AT_MOST, ReplayedBody
from reach_sidecar.http1.body import Body, BodyError, BodyTooLarge
from reach_sidecar.http1.client import (
    AnswerTimeout,
    BadAnswer,
    ClientConnection,
    ConnectFailed,
    ExchangeBroken,
)
from reach_sidecar.http1.message import Field, Request, Response
from reach_sidecar.http1.wire import request_head
from reach_sidecar.membership.peer import Peer
from reach_sidecar.membership.view import Offer
from reach_sidecar.policy.exclude import DRAINS
from reach_sidecar.policy.naming import own_path
from reach_sidecar.policy.repeat import REFUSALS, SAFE_METHODS, Result

MESH_IDLE_S = 55.0  # under the mesh listener's own idle time-out, so a pooled connection is not closed on us
HEAD_START_S = 0.005
LONG_ENOUGH_S = 0.1  # to connect: who cannot in that time is far away or gone
MEMORY_KNOWS_S = 25.0  # under the 30 s that the called side remembers keys of sidecars
DRAINING_OUT_S = 30.0  # an agent that answered that it drains is tried again: it may have been restarted
MAX_PROBLEM_BYTES = 64 * 1024
_EXPECT = (b"expect", b"Expect", b"100-continue")
_FAULT_RESULT: dict[str, Result] = {
    "deadline_exceeded": "timeout", "outcome_unknown": "agent_broke", "bad_agent_response": "bad_answer",
}


class Send:
    def __init__(self, *, random: Random, canceller: Canceller, chains: Chains) -> None:
        self._random = random
        self._canceller = canceller
        self._chains = chains
        self._loop = asyncio.get_running_loop()

    async def __call__(self, call: Call, offer: Offer, body: ReplayedBody, *, asked_again: bool) -> Response:
        """`asked_again`: of the same agent, which may have run it. Raises AttemptFailed, or Problem where the peer's
        word is final. The call is counted in `peer.in_flight` already; once it is answered, until the answer is out."""
        peer = offer.peer
        doubted = asked_again and call.executed != "no"
        if not doubted and not call.doubtful:
            call.journal = peer.journals.get(offer.capability.dedup, UNKNOWN)
            call.first_sent = self._loop.time()
        if call.pinned is not None:
            call.journal = call.pinned.journal  # what is noted, or has been learnt since
        started = perf_counter()
        connection = peer.pool.take_idle(MESH_IDLE_S) or await self._connect(call, offer)
        peer.called_at = call.started
        try:
            response = await self._exchange(connection, call, offer, body, doubted)
            left = read_left(response.index.get(RETRIES_LEFT))
            if left is not None and left < call.retries_left:
                self._chains.spend(call.trace.trace_id, call.retries_left - left)
                call.retries_left = left
            load = await self._judge(response, peer, call.deadline)
            journal = response.index.get(b"reach-journal")
            if journal is not None and journal != peer.journals.get(offer.capability.dedup):
                peer.journals[offer.capability.dedup] = journal
        except asyncio.CancelledError:
            self._cancel(peer, call)
            raise
        response.when_sent(lambda _, error: self._sent(peer, call, error))
        self._dress(response, call, offer, load, started)
        return response

    async def _connect(self, call: Call, offer: Offer) -> ClientConnection:
        """A call with little time leaves the greater part of it for others, where there are any. That a connection did
        not come in less than the usual time puts nobody out; whether it counts for the breaker depends on how little it
        was, or one hurried caller would take a healthy agent from everybody."""
        remaining_s = max(0.001, call.deadline - self._loop.time())
        given_s = remaining_s / 3 if len(call.offers) > 1 else remaining_s
        peer = offer.peer
        try:
            return await peer.pool.connect(given_s)
        except ConnectFailed as error:
            call.attempt_span_id = ""
            if not error.hurried:
                peer.put_out(str(error), self._loop.time())
            raise AttemptFailed("connect_failed", str(error),
                                blameless=error.hurried and given_s < LONG_ENOUGH_S) from None

    async def _exchange(self, connection: ClientConnection, call: Call, offer: Offer, body: ReplayedBody,
                        doubted: bool) -> Response:
        request = call.request
        content = body.for_attempt()
        headers = self._headers(call, offer)
        if (doubted or call.doubtful) and not (offer.capability.idempotent or request.method in SAFE_METHODS):
            headers.append((b"reach-journal", b"Reach-Journal", self._journal(call, offer)))
        chunked = frame(headers, content, request)
        ask_first = not isinstance(content, bytes) and _asks_first(request)
        if ask_first:
            headers.append(_EXPECT)
        destination = call.destination
        path = call.path
        if path is None:
            path = own_path(offer.capability.path, destination.query if destination is not None else b"")
        head = request_head(request.method, path, headers)
        try:
            return await connection.exchange(request.method, head, content, call.deadline, chunked=chunked,
                                             ask_first=ask_first, interim=request.interim)
        except ConnectFailed as error:
            raise AttemptFailed("connect_failed", str(error)) from None
        except ExchangeBroken:
            if request.body.error is not None:  # it was we who broke it off
                raise request_broke(request.body.error) from None
            raise AttemptFailed("broken", "the connection to its sidecar broke before the answer") from None
        except AnswerTimeout:
            raise AttemptFailed("timeout", "no answer within the call's time") from None
        except BadAnswer as error:
            raise AttemptFailed("bad_answer", f"its sidecar's answer is not HTTP: {error}") from None

    def _headers(self, call: Call, offer: Offer) -> list[Field]:
        peer = offer.peer
        span_id = call.attempt_span_id = span_of(self._random.getrandbits(64))
        headers = [(b"host", b"Host", peer.wire_address), *call.fields]
        headers += (
            (b"reach-target", b"Reach-Target", offer.wire_target),
            (b"reach-agent", b"Reach-Agent", peer.wire_id),
            (b"reach-caller", b"Reach-Caller", call.caller.encode()),
            (b"reach-attempt", b"Reach-Attempt", b"%d" % call.sends),
            (b"reach-timeout", b"Reach-Timeout", format_timeout(_for_the_peer(call.deadline - self._loop.time()))),
            (b"reach-retries-left", b"Reach-Retries-Left", b"%d" % call.retries_left),
            traceparent(call.trace, span_id),
        )
        if call.scope:
            headers.append((b"reach-scope", b"Reach-Scope", call.scope))
        return headers

    def _journal(self, call: Call, offer: Offer) -> bytes:
        """The id of the store that knows whether the call ran, if that still does: memory forgets, and then having no
        row means nothing."""
        if offer.capability.dedup == "memory" and self._loop.time() - call.first_sent > MEMORY_KNOWS_S:
            return UNKNOWN
        return call.journal

    async def _judge(self, response: Response, peer: Peer, deadline: float) -> fields.Load | None:
        """Is this the agent's answer? Then how loaded it is; else raises what its sidecar says instead."""
        index = response.index
        load = fields.read_load(index.get(b"reach-load"))
        if load is not None:
            now = self._loop.time()
            peer.hear_load(load.running, load.queued, now)
            if not load.limit:
                peer.put_out(DRAINS, now, DRAINING_OUT_S)
        if b"reach-refused" not in index and b"reach-fault" not in index:
            if load is None and b"reach-load" not in index:
                raise self._no_sidecar(response, peer)
            return load
        refused = index.get(b"reach-refused", b"").decode("latin-1")
        fault = index.get(b"reach-fault", b"").decode("latin-1")
        document = await _problem_of(response, deadline)
        detail = str(document.get("detail", "")).rstrip(".")
        executed = document.get("executed")
        if refused in REFUSALS:
            raise AttemptFailed(refused, detail or f"its sidecar refused: {refused}")  # type: ignore[arg-type]
        if fault in _FAULT_RESULT and executed != "no":
            raise AttemptFailed(_FAULT_RESULT[fault], detail)
        code = fault if fault in KINDS else "bad_gateway"
        raise Problem(code, f"{detail or 'Its sidecar gave no reason'}.", agent=peer.agent_id,
                      executed=executed if executed in ("no", "yes", "unknown") else "unknown")

    def _no_sidecar(self, response: Response, peer: Peer) -> AttemptFailed:
        """Another program has got the address: what it says is not the agent's answer, and for a while nobody is sent
        there."""
        if isinstance(response.body, Body):
            response.body.abandon()
        if isinstance(response.tunnel, ClientConnection):
            response.tunnel.abort()
        detail = f"what answers at {peer.entry.address} is not a sidecar"
        peer.put_out(detail, self._loop.time())
        return AttemptFailed("bad_answer", detail)

    def _dress(self, response: Response, call: Call, offer: Offer, load: fields.Load | None, started: float) -> None:
        """What the caller learns about the way (design, "Headers": in the answer)."""
        queue_ms, agent_ms = (load.queue_us / 1000, load.agent_us / 1000) if load is not None else (0.0, 0.0)
        now = perf_counter()
        total_ms = (now - started) * 1000
        mesh_ms = max(0.0, total_ms - queue_ms - agent_ms)
        call.agent_ms = agent_ms
        if agent_ms > 0.0 and offer.peer.in_flight <= 1:  # of several at once, some wait in loops: no distance
            offer.peer.hear_rtt(mesh_ms / 1000, self._loop.time())
        retry_ms = (started - call.began) * 1000 if call.sends > 1 else 0.0
        timing = Timing(queue_ms, agent_ms, mesh_ms, retry_ms)
        headers = fields.mesh_answer(response.headers)
        headers += (
            (b"reach-trace-id", b"Reach-Trace-Id", call.trace.trace_id.encode()),
            (b"reach-agent", b"Reach-Agent", offer.peer.wire_id),
            (b"reach-attempts", b"Reach-Attempts", b"%d" % call.sends),
            (b"reach-matched", b"Reach-Matched", offer.matched.encode()),
            fields.server_timing(timing),
        )
        if response.tunnel is not None and response.status == 101:
            switch(headers, call.request)
        response.headers = headers

    def _sent(self, peer: Peer, call: Call, error: BaseException | None) -> None:
        peer.in_flight -= 1
        if isinstance(error, asyncio.CancelledError):
            self._cancel(peer, call)

    def _cancel(self, peer: Peer, call: Call) -> None:
        """Nobody waits any more. Whoever gave a key of its own may come back for the answer (design, "Cancelling")."""
        if not call.key_given:
            self._canceller.cancel(peer, call.caller, call.key)


def _for_the_peer(remaining_s: float) -> float:
    """A little less than is left: the called side knows what has run, and shall have said so before the time is over
    here."""
    return remaining_s - min(HEAD_START_S, remaining_s * 0.05)


def _asks_first(request: Request) -> bool:
    """A long body cannot be kept for another attempt: let a refusal come before it is sent."""
    length = request.header(b"content-length")
    return request.expects_continue or (length is not None and int(length) > KEEP_AT_MOST)


def _abandon(body: bytes | Body) -> None:
    if isinstance(body, Body):
        body.abandon()


async def _problem_of(response: Response, deadline: float) -> dict[str, object]:
    """What a peer's sidecar says is wrong; nothing when it does not come whole and in time."""
    body = response.body
    try:
        async with asyncio.timeout_at(deadline):
            raw = body if isinstance(body, bytes) else await body.collect(MAX_PROBLEM_BYTES)
        document = orjson.loads(raw)
    except (orjson.JSONDecodeError, BodyError, BodyTooLarge, TimeoutError):
        _abandon(body)
        return {}
    except BaseException:  # the caller went away
        _abandon(body)
        raise
    return document if isinstance(document, dict) else {}
