"""Answers of the control node: JSON, and problems as RFC 9457 has them."""

import secrets

import orjson
from aiohttp import web

from reach_core.problem import Problem
from reach_core.trace import new_context, parse_traceparent

JSON = "application/json"


def json_answer(document: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(document), status=status, content_type=JSON)


def problem_answer(problem: Problem, request: web.Request) -> web.Response:
    given = request.headers.get("traceparent")
    context = parse_traceparent(given.encode("latin-1", "replace") if given else None)
    trace_id = (context or new_context(secrets.randbits(192))).trace_id
    headers = problem.headers("reach-control", trace_id)
    return web.Response(body=problem.body(trace_id), status=problem.status, headers=headers)
