"""`/livez`, `/readyz` and `/metrics`, the same on every listener that has them."""

from collections.abc import Callable

from aiohttp import web

from reach_control.api.rendering import json_answer
from reach_control.telemetry.metrics import Figures, exposition


class Health:
    """`ready` says why not, or None."""

    def __init__(self, ready: Callable[[], str | None], figures: Callable[[], Figures]) -> None:
        self._ready = ready
        self._figures = figures

    def routes(self, metrics: bool = False) -> list[web.RouteDef]:
        routes = [web.get("/livez", self._livez), web.get("/readyz", self._readyz)]
        return [*routes, web.get("/metrics", self._metrics)] if metrics else routes

    async def _livez(self, _: web.Request) -> web.Response:
        return json_answer({"status": "ok"})

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self._ready()
        if reason is None:
            return json_answer({"status": "ready"})
        return json_answer({"status": "not_ready", "detail": reason}, 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        text, content_type = exposition(self._figures())
        return web.Response(body=text, headers={"Content-Type": content_type})
