"""The API for sidecars: register, heartbeat, leave, the table whole or by long-poll, and what else holds mesh-wide
(messages: `reach_core/messages.py`).
"""

import asyncio
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
SEND_S = 20.0
LARGE = 256 * 1024  # bytes of an answer of which only so many are sent at a time


class MeshApi:
    """Routes of the `api` listener."""

    def __init__(self, service: Service, health: Health, info: Callable[[], bytes]) -> None:
        self._service = service
        self._health = health
        self._info = info

    def routes(self) -> list[web.RouteDef]:
        service = self._service
        return [
            web.post("/v1/register", _endpoint(RegisterRequest, service.register)),
            web.post("/v1/heartbeat", _endpoint(HeartbeatRequest, service.heartbeat)),
            web.post("/v1/leave", _endpoint(LeaveRequest, service.leave)),
            web.get("/v1/table", self._table),
            web.get("/v1/mesh", self._mesh),
            *self._health.routes(),
        ]

    async def _mesh(self, _: web.Request) -> web.Response:
        self._service.counts["mesh"] += 1
        return web.Response(body=self._info(), content_type=JSON)

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
        feed = self._service.feed
        epoch = query.get("epoch", "")
        is_whole = not feed.is_reader(since, epoch)
        async with feed.place(is_whole):  # before it is made: many that wait to be sent would fill the memory
            body = await feed.answer(since, epoch, wait_s)
            answer = web.Response(body=body, content_type=JSON)
            async with feed.place(not is_whole and len(body) > LARGE):
                await _send(answer, request)
        return answer


async def _send(answer: web.Response, request: web.Request) -> None:
    """To the end, so that it is known when the place is free; who does not read loses the connection."""
    try:
        async with asyncio.timeout(SEND_S):
            await answer.prepare(request)
            await answer.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()


def _endpoint(kind: type[M], serve: Callable[[M], Message]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        data = await request.read()
        try:
            message = decode(kind, data)
        except MessageError as error:
            raise Problem("bad_request", f"The body is not a {kind.__name__}: {error}.") from None
        return web.Response(body=encode(serve(message)), content_type=JSON)

    return handle
