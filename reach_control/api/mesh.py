"""The API for sidecars: register, heartbeat, leave, and the table by long-poll (messages:
`reach_core/messages.py`).
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web

from reach_control.api.health import Health
from reach_control.api.rendering import JSON
from reach_control.membership.service import Service
from reach_core.messages import (
    HeartbeatRequest,
    LeaveRequest,
    Message,
    MessageError,
    RegisterRequest,
    decode,
    encode,
)
from reach_core.problem import Problem
from reach_core.units import parse_duration

M = TypeVar("M", bound=Message)
MAX_BODY = 16 * 1024


class MeshApi:
    """Routes of the `api` listener."""

    def __init__(self, service: Service, health: Health) -> None:
        self._service = service
        self._health = health

    def routes(self) -> list[web.RouteDef]:
        service = self._service
        return [
            web.post("/v1/register", _endpoint(RegisterRequest, service.register)),
            web.post("/v1/heartbeat", _endpoint(HeartbeatRequest, service.heartbeat)),
            web.post("/v1/leave", _endpoint(LeaveRequest, service.leave)),
            web.get("/v1/table", self._table),
            *self._health.routes(),
        ]

    async def _table(self, request: web.Request) -> web.Response:
        """`?since=&epoch=&wait=`: the delta as soon as there is one, after `wait` at the latest (60 s)."""
        query = request.query
        try:
            since = int(query.get("since", "0")[:20])
            wait_s = parse_duration(query.get("wait", "0s"))
        except ValueError as error:
            raise Problem(
                "bad_request", f"The query is wrong ({error}). Ask like /v1/table?since=42&epoch=…&wait=25s."
            ) from None
        self._service.counts["table"] += 1
        body = await self._service.feed.answer(since, query.get("epoch", ""), wait_s)
        return web.Response(body=body, content_type=JSON)


def _endpoint(kind: type[M], serve: Callable[[M], Message]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        data = await request.read()
        try:
            message = decode(kind, data)
        except MessageError as error:
            raise Problem("bad_request", f"The body is not a {kind.__name__}: {error}.") from None
        return web.Response(body=encode(serve(message)), content_type=JSON)

    return handle
