"""The local JSON API on the outbound door (design §2): discovery, this sidecar's own state, and the interface
of the articles, so that agents written for that run unchanged.

One table of routes; a handler gets the request and what its path and query say, and answers or raises Problem.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from reach_core.problem import Problem
from reach_core.table import Change
from reach_core.units import parse_duration
from reach_sidecar.http1.body import BodyTooLarge
from reach_sidecar.http1.message import Request, Response, field
from reach_sidecar.http1.problem import render, trace_of
from reach_sidecar.listen.local_api_agents import AgentDocuments, Document, Standing, View
from reach_sidecar.listen.local_api_tasks import run_task
from reach_sidecar.listen.local_api_types import AgentHeartbeat, RegisterAgent, RunTask
from reach_sidecar.listen.watch import Watch
from reach_sidecar.membership.local import AgentIdConflict, LocalAgent

T = TypeVar("T")

MAX_TASK_BYTES = 16 * 1024 * 1024
MAX_DECLARATION_BYTES = 256 * 1024
MAX_PARAMETERS = 20
WAIT_S = 30.0
MAX_WAIT_S = 3600.0
REGISTER_WAIT_S = 1.0
"""How long a registering agent waits for control's verdict, so that a taken id is a 409 and not a surprise."""


class Asked(NamedTuple):
    """`rest` is what follows the route in the path, decoded: an agent's id."""

    request: Request
    parameters: dict[str, str]
    rest: str


Handler = Callable[[Asked], Awaitable[Response]]


class LocalApi:
    """`call` sends a request through the path of a call: its `Reach-Target` names whom it is for.

    `proxy` names this sidecar in `Proxy-Status`; `about` makes the document of `GET /v1/self` where more is
    known of the sidecar than here.
    """

    def __init__(
        self,
        local: LocalAgent,
        view: View,
        membership: Standing,
        call: Callable[[Request], Awaitable[Response]],
        *,
        proxy: Callable[[], str] | None = None,
        about: Callable[[], Document] | None = None,
    ) -> None:
        self._local = local
        self.documents = AgentDocuments(local, view, membership)
        self._membership = membership
        self._call = call
        self._proxy = proxy or (lambda: local.agent_id)
        self._about = about or self.documents.about
        self._loop = asyncio.get_running_loop()
        self._openapi: bytes | None = None
        self.watch = Watch(view)
        self._routes: dict[str, tuple[bytes, Handler]] = {
            "/v1/agents": (b"GET", self._agents),
            "/v1/watch": (b"GET", self._watch),
            "/v1/self": (b"GET", self._self),
            "/v1/wait": (b"GET", self._wait),
            "/v1/openapi.json": (b"GET", self._describe),
            "/agents/register": (b"POST", self._register),
            "/agents/heartbeat": (b"POST", self._heartbeat),
            "/tasks/run": (b"POST", self._run),
            "/internal/health": (b"GET", self._health),
        }
        self._by_id: dict[str, Handler] = {"/v1/agents/": self._agent, "/agents/": self._registered}

    async def handle(self, request: Request, path: str, query: str) -> Response | None:
        """The answer, also where it is an error; None for a path that is not of this API."""
        if not path.startswith(("/v1/", "/agents/", "/tasks/")) and path not in ("/agents", "/internal/health"):
            return None
        try:
            return await self._dispatch(request, path, query)
        except Problem as problem:
            response = render(problem, trace_of(request), self._proxy())
            if problem.code == "method_not_allowed":
                response.headers.append(field("Allow", str(problem.extra["allow"])))
            return response

    def table_changed(self, changes: Iterable[Change]) -> None:
        """To be called after the view has followed `changes`."""
        self.watch.changed({change.after.agent_id for change in changes})

    def close(self) -> None:
        """End what streams."""
        self.watch.close()

    async def _dispatch(self, request: Request, path: str, query: str) -> Response:
        method, handler, rest = self._route(path)
        if request.method != method and not (request.method == b"HEAD" and method == b"GET"):
            allow = "GET, HEAD" if method == b"GET" else method.decode()
            raise Problem("method_not_allowed", f"{path} takes {allow}, not {request.method.decode('latin-1')}.",
                          extra={"allow": allow})
        try:
            parameters = dict(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS))
        except ValueError:
            raise Problem("bad_request", "The query of the URL cannot be read: percent-encode it as UTF-8, and give "
                          f"at most {MAX_PARAMETERS} parameters.") from None
        return await handler(Asked(request, parameters, rest))

    def _route(self, path: str) -> tuple[bytes, Handler, str]:
        found = self._routes.get(path)
        if found is not None:
            return *found, ""
        for prefix, handler in self._by_id.items():
            rest = path.removeprefix(prefix)
            if rest and rest != path and "/" not in rest:
                return b"GET", handler, unquote(rest)
        raise Problem("not_found", f"Nothing is served at {path}. GET /v1/openapi.json describes what there is.")

    # -- peers and this sidecar

    async def _agents(self, asked: Asked) -> Response:
        return Response.json(200, self.documents.listing(asked.parameters))

    async def _agent(self, asked: Asked) -> Response:
        return Response.json(200, self.documents.one(asked.rest))

    async def _watch(self, asked: Asked) -> Response:
        if asked.request.method == b"HEAD":
            return Response(200, [field("Content-Type", "text/event-stream")])
        last = asked.request.header(b"last-event-id") or b""
        return self.watch.open(asked.parameters.get("capability", ""), last.decode("latin-1"))

    async def _self(self, asked: Asked) -> Response:
        return Response.json(200, self._about())

    async def _wait(self, asked: Asked) -> Response:
        """Until there is a table to route on and our agent, if we have one, is known to control."""
        timeout_s = _wait_s(asked.parameters.get("timeout"))
        began = self._loop.time()
        try:
            async with asyncio.timeout(timeout_s):
                await self._membership.synced.wait()
                await self._membership.registered.wait()
        except TimeoutError:
            missing = "no table has been received" if not self._membership.synced.is_set() else (
                f"the agent {self._local.agent_id} is not registered")
            reason = self._membership.problem or "Wait longer; the log of this sidecar says what it is doing."
            raise Problem("deadline_exceeded", f"The mesh is not ready: {missing}. {reason}", executed="no") from None
        agents = self.documents.count()
        return Response.json(200, {"ready": True, "agents": agents, "waited_s": round(self._loop.time() - began, 3)})

    async def _describe(self, asked: Asked) -> Response:
        if self._openapi is None:
            from reach_sidecar.listen.openapi import document

            self._openapi = msgspec.json.encode(document())
        return Response(200, [field("Content-Type", "application/json")], self._openapi)

    # -- the articles' interface

    async def _register(self, asked: Asked) -> Response:
        wanted = await _read(asked.request, RegisterAgent, MAX_DECLARATION_BYTES)
        is_new_id = wanted.agent_id != self._local.agent_id
        try:
            self._local.declare(
                wanted.agent_id,
                wanted.address,
                wanted.health_path,
                None if wanted.max_concurrency is None else int(wanted.max_concurrency),
                None if wanted.capabilities is None else [
                    one if isinstance(one, str) else one.capability() for one in wanted.capabilities],
                wanted.version,
            )
        except AgentIdConflict as conflict:
            raise Problem("agent_id_conflict", str(conflict), agent=conflict.declared) from None
        except ValueError as error:
            raise Problem("bad_request", f"The agent cannot be registered: {error}.") from None
        membership = self._membership
        if membership.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REGISTER_WAIT_S):
                    await membership.settled()
            if membership.refusal is not None and membership.refusal.agent == self._local.agent_id:
                self._local.provisional |= is_new_id  # it may come back under another name
                raise membership.refusal
        ttl = membership.lease_ttl_s
        return Response.json(200, {"status": "registered", "agent_id": self._local.agent_id,
                                   "lease_ttl": int(ttl) if ttl == int(ttl) else ttl})

    async def _heartbeat(self, asked: Asked) -> Response:
        beat = await _read(asked.request, AgentHeartbeat, MAX_DECLARATION_BYTES)
        if self._local.is_gateway or beat.agent_id != self._local.agent_id:
            raise Problem("register_again", f"The agent {beat.agent_id!r} is not registered at this sidecar. "
                          "POST /agents/register declares it.")
        return Response.json(200, {"status": "ok"})

    async def _registered(self, asked: Asked) -> Response:
        return Response.json(200, self.documents.registered(asked.rest))

    async def _run(self, asked: Asked) -> Response:
        task = await _read(asked.request, RunTask, MAX_TASK_BYTES)
        try:
            return await run_task(asked.request, task, self._call)
        except ValueError as error:
            raise Problem("bad_request", f"The task cannot be sent: {error}.") from None

    async def _health(self, asked: Asked) -> Response:
        document: Document = {
            "status": "ok",
            "agent_id": self._local.agent_id,
            "registered": self._local.registered,
            "connected": self._membership.connected,
            "agents": self.documents.count(),
        }
        return Response.json(200, document)


async def _read(request: Request, kind: type[T], limit: int) -> T:
    """The JSON body as `kind`. Raises Problem."""
    try:
        data = await request.body.collect(limit)
    except BodyTooLarge:
        raise Problem("body_too_large", f"The body may have {limit} bytes here. Send less, or call the capability "
                      "itself, whose body streams.") from None
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Problem("bad_request", f"The body must be a JSON object as GET /v1/openapi.json describes it: {error}."
                      ) from None


def _wait_s(text: str | None) -> float:
    if text is None:
        return WAIT_S
    try:
        return min(MAX_WAIT_S, parse_duration(text))
    except ValueError as error:
        raise Problem("bad_request", f"`timeout`: {error}.") from None
