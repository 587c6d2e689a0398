"""Errors of the admin door as problem+json, whoever raised them."""

import secrets

from aiohttp import web

from reach_core.problem import Problem
from reach_core.trace import new_context

PROXY = "reach-admin"


def problem_response(problem: Problem) -> web.Response:
    trace_id = new_context(secrets.randbits(192)).trace_id
    headers = problem.headers(PROXY, trace_id)
    return web.Response(body=problem.body(trace_id), status=problem.status, headers=headers)


def of_http_error(error: web.HTTPException, request: web.Request, paths: list[str]) -> web.Response:
    """aiohttp's own 404 and 405, said our way."""
    if error.status == 404:
        detail = f"There is nothing at {request.path}; there is {', '.join(paths)}."
        return problem_response(Problem("not_found", detail))
    if error.status == 405:
        allowed = error.headers.get("Allow", "")
        detail = f"{request.method} is not offered at {request.path}; use {allowed}."
        response = problem_response(Problem("method_not_allowed", detail))
        response.headers["Allow"] = allowed
        return response
    if error.status == 413:
        return problem_response(Problem("body_too_large", "This door reads no bodies: send the request without one."))
    return problem_response(Problem("bad_request", f"{error.reason}.", status=error.status))
