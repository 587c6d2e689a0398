"""Errors of the admin door carry the same members as everywhere."""

import orjson
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from reach_core.problem import Problem
from reach_sidecar.listen.admin_problem import of_http_error, problem_response


def members(response: web.Response) -> dict[str, object]:
    assert response.content_type == "application/problem+json"
    assert isinstance(response.body, bytes)
    return dict(orjson.loads(response.body))


def test_a_problem() -> None:
    response = problem_response(Problem("backpressure", "Try later."))
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert response.headers["Proxy-Status"].startswith("reach-admin; error=connection_limit_reached")
    assert members(response)["type"] == "urn:reach:backpressure"
    assert members(response)["trace_id"] == response.headers["Reach-Trace-Id"]


def test_aiohttps_own_errors() -> None:
    request = make_mocked_request("PUT", "/v1/logs")
    missing = of_http_error(web.HTTPNotFound(), request, ["/livez", "/v1/logs"])
    assert missing.status == 404
    assert members(missing)["detail"] == "There is nothing at /v1/logs; there is /livez, /v1/logs."
    wrong = of_http_error(web.HTTPMethodNotAllowed("PUT", ["GET"]), request, [])
    assert (wrong.status, wrong.headers["Allow"]) == (405, "GET")
    assert members(wrong)["detail"] == "PUT is not offered at /v1/logs; use GET."
    large = of_http_error(web.HTTPRequestEntityTooLarge(max_size=1, actual_size=2), request, [])
    assert (large.status, members(large)["type"]) == (413, "urn:reach:body_too_large")
