"""In front of every handler: who may come in, and errors as problems whatever went wrong."""

import hmac
import traceback

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from reach_control.api.rendering import problem_answer
from reach_control.telemetry.log import ControlLog
from reach_core.door import Door
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
        host, origin, site = (headers.get(name) for name in ("Host", "Origin", "Sec-Fetch-Site"))
        verdict = self._door.check(_bytes(host), _bytes(origin), _bytes(site))
        if verdict == "bad_host" and self._local:
            raise Problem(
                "bad_host",
                f"This door serves this machine only, not the host {(host or '')[:80]!r}. Use 127.0.0.1 or localhost.",
            )
        if verdict == "not_allowed" or (not self._local and origin is not None):
            raise Problem("not_allowed", "Web pages may not use this door. Use `reach` or another program.")
        if self._token and request.path not in OPEN_PATHS:
            given = headers.get("Reach-Api-Token") or headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token.encode()):
                raise Problem("not_allowed", "Send the value of REACH_API_TOKEN in the header Reach-Api-Token.")

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


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode("utf-8", "surrogateescape")
