"""What the admin door answers. Imported with aiohttp, when the first connection comes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from reach_core.door import Door, check_token
from reach_core.problem import Problem
from reach_sidecar.listen.admin_logs import LogsEndpoint
from reach_sidecar.listen.admin_problem import of_http_error, problem_response
from reach_sidecar.listen.admin_sources import Sources
from reach_sidecar.telemetry.metrics import Gauge

if TYPE_CHECKING:
    from reach_sidecar.telemetry.exposition import Exposition

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
# Probes know no token, and learn nothing but the state.
_WITHOUT_TOKEN = ("/livez", "/readyz")


class Routes:
    """One handler a path. Without a `door` it is the probe listener: any address may ask, and learns only the state."""

    def __init__(self, sources: Sources, door: Door | None, api_token: str | None) -> None:
        self._sources = sources
        self._door = door
        self._api_token = api_token
        self._exposition: Exposition | None = None
        self.logs = LogsEndpoint(sources.log)
        self._paths: list[str] = []

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=64 * 1024)
        routes = [
            web.get("/livez", self._livez),
            web.get("/readyz", self._readyz),
            web.get("/metrics", self._metrics),
        ]
        if self._door is not None:
            routes += self._of_the_operator()
        app.add_routes(routes)
        self._paths = [route.path for route in routes]
        return app

    def _of_the_operator(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/peers", self._peers),
            web.get("/v1/agents", self._peers),
            web.get("/v1/logs", self.logs.handle),
            web.get("/v1/config", self._config),
            web.get("/v1/self", self._self),
            web.post("/v1/drain", self._drain),
        ]

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if self._door is not None:
                self._check(request, self._door)
            return await handler(request)
        except Problem as problem:
            return problem_response(problem)
        except web.HTTPException as error:
            return of_http_error(error, request, self._paths)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            self._sources.log.event("error", "admin_failed", detail=f"{request.method} {request.path}: {error!r}")
            detail = "The sidecar could not answer this; its log on stderr says why."
            return problem_response(Problem("internal_error", detail))

    def _check(self, request: web.Request, door: Door) -> None:
        headers = request.headers
        code = door.check_headers(headers)
        if code == "bad_host":
            named = headers.get("Host")
            detail = f"This door does not answer for Host {named!r}: use 127.0.0.1, or add it to allowed_hosts."
            raise Problem("bad_host", detail)
        if code is not None:
            detail = "Web pages of other origins may not use this door; add theirs to allowed_origins if they should."
            raise Problem("not_allowed", detail)
        if self._api_token and request.path not in _WITHOUT_TOKEN:
            check_token(headers, self._api_token)

    async def _livez(self, request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        readiness = self._sources.ready()
        status = 200 if readiness.ready else 503
        if request.headers.get("Accept", "").startswith("text/"):
            return web.Response(text=readiness.to_text(), status=status)
        return web.Response(body=readiness.to_json(), status=status, content_type="application/json")

    async def _metrics(self, request: web.Request) -> web.Response:
        exposition = self._exposition
        if exposition is None:
            exposition = self._exposition = await asyncio.to_thread(self._make_exposition)
        body, content_type = await asyncio.to_thread(exposition.render, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    def _make_exposition(self) -> "Exposition":
        from reach_sidecar.telemetry.exposition import Exposition

        sources = self._sources
        read = sources.log.lost_lines
        lost = Gauge("reach_log_lines_lost", "Log lines lost, by where.", read, label="sink", counter=True)
        return Exposition(sources.metrics, sources.version, extra=[lost])

    async def _peers(self, request: web.Request) -> web.Response:
        return _json(self._sources.peers(dict(request.query)))

    async def _config(self, request: web.Request) -> web.Response:
        return _json(self._sources.config())

    async def _self(self, request: web.Request) -> web.Response:
        return _json(self._sources.about())

    async def _drain(self, request: web.Request) -> web.Response:
        self._sources.drain()
        self._sources.log.event("info", "drain", detail="asked for at the admin port")
        return web.Response(body=b'{"status":"draining"}\n', status=202, content_type="application/json")


def _json(document: object) -> web.Response:
    return web.Response(body=orjson.dumps(document, default=str) + b"\n", content_type="application/json")
