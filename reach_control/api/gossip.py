"""What comes from other control nodes and, as comparisons, from sidecars: bounded in size and number."""

from collections.abc import Callable

from aiohttp import web

from reach_control.api.rendering import JSON
from reach_control.membership.client import GOSSIP, GOSSIP_BYTES
from reach_core.gossip.compare import CompareError
from reach_core.messages import MessageError, NodeAnswer, NodePush, decode, encode
from reach_core.problem import Problem

MOST_AT_ONCE = 8
RETRY_AFTER_S = 1


class GossipApi:
    """`compare` answers one step of a comparison, `receive` a push of another control node; `heard` is called before
    either."""

    def __init__(self, compare: Callable[[bytes, str], bytes], receive: Callable[[NodePush], NodeAnswer],
                 heard: Callable[[], None]) -> None:
        self._compare = compare
        self._receive = receive
        self._heard = heard
        self._reading = 0

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/gossip", self._gossip), web.post("/v1/nodes", self._nodes)]

    async def _gossip(self, request: web.Request) -> web.Response:
        body = await self._read(request, GOSSIP_BYTES)
        self._heard()
        try:
            answer = self._compare(body, request.remote or "")
        except CompareError as error:
            raise Problem("bad_request", f"The body is no step of a comparison: {error}.") from None
        return web.Response(body=answer, content_type=GOSSIP)

    async def _nodes(self, request: web.Request) -> web.Response:
        body = await self._read(request, NodePush.max_bytes)
        try:
            push = decode(NodePush, body)
        except MessageError as error:
            raise Problem("bad_request", f"The body is not a NodePush: {error}.") from None
        self._heard()
        return web.Response(body=encode(self._receive(push)), content_type=JSON)

    async def _read(self, request: web.Request, most_bytes: int) -> bytes:
        """Larger than the listener allows others; so only few at a time. Raises Problem."""
        if self._reading >= MOST_AT_ONCE:
            raise Problem("backpressure", "This node compares tables with many already. Ask again in a second.",
                          retry_after_s=RETRY_AFTER_S)
        self._reading += 1
        try:
            parts, size = [], 0
            async for part in request.content.iter_any():
                size += len(part)
                if size > most_bytes:
                    raise Problem("body_too_large", f"Such a message has {most_bytes} bytes at most.")
                parts.append(part)
            return b"".join(parts)
        finally:
            self._reading -= 1
