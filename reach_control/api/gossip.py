"""What comes from other control nodes and, as comparisons, from sidecars: bounded in size, number and time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from reach_control.api.rendering import JSON
from reach_control.membership.client import GOSSIP, GOSSIP_BYTES
from reach_core.gossip.compare import CompareError
from reach_core.messages import MessageError, NodeAnswer, NodePush, decode, encode
from reach_core.problem import Problem

MOST_AT_ONCE = 8
"""Comparisons, and as many pushes: sidecars that compare must not keep control nodes apart."""
READ_S = 5.0
RETRY_AFTER_S = 1


class GossipApi:
    """`compare` answers one step of a comparison, `receive` a push of another control node; `heard` is called before
    either."""

    def __init__(self, compare: Callable[[bytes, str], bytes], receive: Callable[[NodePush], Awaitable[NodeAnswer]],
                 heard: Callable[[], None]) -> None:
        self._compare = compare
        self._receive = receive
        self._heard = heard
        self._under_way = {"comparisons": 0, "pushes": 0}

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/gossip", self._gossip), web.post("/v1/nodes", self._nodes)]

    async def _gossip(self, request: web.Request) -> web.Response:
        async with self._place("comparisons"):
            body = await _read(request, GOSSIP_BYTES)
            self._heard()
            try:
                answer = self._compare(body, request.remote or "")
            except CompareError as error:
                raise Problem("bad_request", f"The body is no step of a comparison: {error}.") from None
            return web.Response(body=answer, content_type=GOSSIP)

    async def _nodes(self, request: web.Request) -> web.Response:
        async with self._place("pushes"):
            body = await _read(request, NodePush.max_bytes)
            try:
                push = decode(NodePush, body)
            except MessageError as error:
                raise Problem("bad_request", f"The body is not a NodePush: {error}.") from None
            self._heard()
            return web.Response(body=encode(await self._receive(push)), content_type=JSON)

    @asynccontextmanager
    async def _place(self, kind: str) -> AsyncIterator[None]:
        """One of a few, because the bodies are larger than those of other requests may be. Raises Problem."""
        if self._under_way[kind] >= MOST_AT_ONCE:
            raise Problem("backpressure", f"This node takes in {MOST_AT_ONCE} {kind} already. Ask again in a second.",
                          retry_after_s=RETRY_AFTER_S)
        self._under_way[kind] += 1
        try:
            yield
        finally:
            self._under_way[kind] -= 1


async def _read(request: web.Request, most_bytes: int) -> bytes:
    """The body. Raises Problem."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(READ_S):
            async for part in request.content.iter_any():
                size += len(part)
                if size > most_bytes:
                    raise Problem("body_too_large", f"Such a message has {most_bytes} bytes at most.")
                parts.append(part)
    except TimeoutError:
        raise Problem("request_timeout", f"The message was not there after {READ_S:g} s.") from None
    return b"".join(parts)
