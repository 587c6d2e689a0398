"""Problems as answers: what RFC 9457 and RFC 9209 ask for."""

import re

import orjson
import pytest

from reach_core.problem import KINDS, Attempt, Problem
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Request
from reach_sidecar.http1.problem import render, trace_of


@pytest.mark.parametrize("code", KINDS)
def test_each_kind_renders(code: str) -> None:
    response = render(Problem(code, "Do this."))
    assert isinstance(response.body, bytes)
    document = orjson.loads(response.body)
    assert response.status == document["status"] == KINDS[code].status
    assert document["type"] == f"urn:reach:{code}"
    assert document["detail"] == "Do this."
    assert document["executed"] in ("no", "yes", "unknown")
    assert response.header(b"content-type") == b"application/problem+json"
    assert response.header(b"proxy-status") == f'reach; error={KINDS[code].proxy_error}; details="{code}"'.encode()
    assert (response.header(b"retry-after") is not None) is (response.status == 503)


def test_every_problem_has_a_trace_id() -> None:
    """Also that of a request which could not be read, or that no sidecar would let in."""
    first, second = render(Problem("bad_request", "Do this.")), render(Problem("bad_request", "Do this."))
    assert isinstance(first.body, bytes)
    trace_id = orjson.loads(first.body)["trace_id"]
    assert re.fullmatch("[0-9a-f]{32}", trace_id)
    assert first.header(b"reach-trace-id") == trace_id.encode() != second.header(b"reach-trace-id")


@pytest.mark.parametrize(("given", "taken_over"), [
    (b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True), (b"nonsense", False), (None, False),
])
def test_a_refused_request_keeps_its_trace(given: bytes | None, taken_over: bool) -> None:
    headers = [] if given is None else [(b"traceparent", b"traceparent", given)]
    trace_id = trace_of(Request(b"GET", b"/", 11, headers, Body()))
    assert re.fullmatch("[0-9a-f]{32}", trace_id)
    assert (trace_id == "0af7651916cd43dd8448eb211c80319c") is taken_over


def test_a_trace_id_and_a_proxy_name() -> None:
    problem = Problem("no_agent_available", "None is fit.", retry_after_s=7, attempts=[Attempt("a", "refused", 1.26)])
    response = render(problem, "0af7651916cd43dd8448eb211c80319c", "planner-01")
    assert isinstance(response.body, bytes)
    document = orjson.loads(response.body)
    assert document["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert document["attempts"] == [{"agent": "a", "result": "refused", "ms": 1.3}]
    assert response.header(b"reach-trace-id") == b"0af7651916cd43dd8448eb211c80319c"
    assert response.header(b"retry-after") == b"7"
    assert (response.header(b"proxy-status") or b"").startswith(b"planner-01; ")
