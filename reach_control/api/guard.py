"""In front of every handler: who may come in, and errors as problems whatever went wrong."""

import traceback

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from reach_control.api.rendering import problem_answer
from reach_control.telemetry.log import ControlLog
from reach_core.door import Door, check_token
from reach_core.problem import Problem

OPEN_PATHS = frozenset({"/livez", "/readyz"})


class Guard:
    """`local`: the listener is on loopback, so a `Host` must be too. `token`: what callers must bring, if any."""

    def __init__(self, local: bool, token: str | None, log: ControlLog) -> None:
        self._local = local
        self._door = Door(any_address=not local)
        self._token = token
        self._log = log

    @property
    def middleware(self) -> Middleware:
        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                self._admit(request)
                return await handler(request)
            except Problem as problem:
                return problem_answer(problem, request)
            except web.HTTPException as error:
                return self._translate(error, request)
            except Exception:
                self._log.event("error", "internal", detail=traceback.format_exc(limit=-5))
                detail = "The control node made a mistake; its log has the details. Try again."
                return problem_answer(Problem("internal_error", detail), request)

        return guarded

    def _admit(self, request: web.Request) -> None:
        headers = request.headers
        verdict = self._door.check_headers(headers)
        if verdict == "bad_host" and self._local:
            host = headers.get("Host", "")[:80]
            detail = f"This door serves this machine only, not the host {host!r}. Use 127.0.0.1 or localhost."
            raise Problem("bad_host", detail)
        if verdict == "not_allowed" or (not self._local and "Origin" in headers):
            raise Problem("not_allowed", "Web pages may not use this door. Use `reach` or another program.")
        if self._token and request.path not in OPEN_PATHS:
            check_token(headers, self._token)

    def _translate(self, error: web.HTTPException, request: web.Request) -> web.StreamResponse:
        if isinstance(error, web.HTTPMethodNotAllowed):
            methods = ", ".join(sorted(error.allowed_methods))
            answer = problem_answer(Problem("method_not_allowed", f"Use {methods} for {request.path}."), request)
            answer.headers["Allow"] = methods
            return answer
        if isinstance(error, web.HTTPRequestEntityTooLarge):
            return problem_answer(Problem("body_too_large", "A message of a sidecar has 16 KiB at most."), request)
        if error.status == 404:
            detail = f"There is nothing at {request.path[:80]} on this listener; see the documentation for its paths."
            return problem_answer(Problem("not_found", detail), request)
        detail = error.text or error.reason
        return problem_answer(Problem("bad_request", detail, status=error.status), request)
