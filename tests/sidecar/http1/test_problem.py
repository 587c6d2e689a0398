"""Problems as answers: what RFC 9457 and RFC 9209 ask for."""

import orjson
import pytest

from reach_core.problem import KINDS, Attempt, Problem
from reach_sidecar.http1.problem import render


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
