"""Errors: one table, rendered in one way, and the verdict that callers decide by."""

import itertools
import json

import pytest

from reach_core.problem import KINDS, Attempt, Problem, worst

# The contract; callers of other languages rely on these.
CONTRACT = {
    "bad_request": (400, "no"), "header_too_large": (431, "no"), "uri_too_long": (414, "no"),
    "body_too_large": (413, "no"), "bad_host": (421, "no"), "no_such_capability": (404, "no"),
    "no_such_agent": (404, "no"), "no_agent_available": (503, "no"), "backpressure": (503, "no"),
    "breaker_open": (503, "no"), "deadline_too_short": (504, "no"), "deadline_exceeded": (504, "unknown"),
    "outcome_unknown": (502, "unknown"), "agent_failure": (502, "yes"), "agent_invalid_request": (422, "yes"),
    "bad_agent_response": (502, "unknown"), "key_reused": (422, "no"), "in_progress": (409, "unknown"),
    "answer_not_kept": (409, "yes"), "store_unavailable": (503, "no"), "not_allowed": (403, "no"),
}  # fmt: skip

# RFC 9209, section 2.3: the registered proxy error types.
REGISTERED = {
    "dns_timeout", "dns_error", "destination_not_found", "destination_unavailable", "destination_ip_prohibited",
    "destination_ip_unroutable", "connection_refused", "connection_terminated", "connection_timeout",
    "connection_read_timeout", "connection_write_timeout", "connection_limit_reached", "tls_protocol_error",
    "tls_certificate_error", "tls_alert_received", "http_request_error", "http_request_denied",
    "http_response_incomplete", "http_response_header_section_size", "http_response_header_size",
    "http_response_body_size", "http_response_trailer_section_size", "http_response_trailer_size",
    "http_response_transfer_coding", "http_response_content_coding", "http_response_timeout", "http_upgrade_failed",
    "http_protocol_error", "proxy_internal_response", "proxy_internal_error", "proxy_configuration_error",
    "proxy_loop_detected",
}  # fmt: skip


@pytest.mark.parametrize("code", CONTRACT)
def test_status_and_verdict(code: str) -> None:
    assert (KINDS[code].status, KINDS[code].executed) == CONTRACT[code]


@pytest.mark.parametrize("code", KINDS)
def test_proxy_status_uses_registered_types(code: str) -> None:
    assert KINDS[code].proxy_error in REGISTERED
    assert Problem(code, "x").proxy_status("one") == f'one; error={KINDS[code].proxy_error}; details="{code}"'


def test_the_worst_verdict_counts() -> None:
    order = ["no", "unknown", "yes"]
    for verdicts in itertools.product(order, repeat=3):
        assert worst(verdicts) == max(verdicts, key=order.index)
    assert worst([]) == "no"


def test_the_document() -> None:
    problem = Problem(
        "retries_exhausted", "Look at the agents.", executed="unknown", agent="b",
        attempts=[Attempt("a", "refused", 1.26), Attempt("b", "broken", 20.0, "unknown")], extra={"near": ["x"]},
    )  # fmt: skip
    document = problem.to_dict("ab" * 16)
    assert document == {
        "type": "urn:reach:retries_exhausted", "title": "Every attempt failed", "status": 502,
        "detail": "Look at the agents.", "executed": "unknown", "trace_id": "ab" * 16, "agent": "b",
        "attempts": [{"agent": "a", "result": "refused", "ms": 1.3}, {"agent": "b", "result": "broken", "ms": 20.0}],
        "near": ["x"],
    }  # fmt: skip
    assert list(document)[:5] == ["type", "title", "status", "detail", "executed"], "in reading order"


def test_what_is_not_known() -> None:
    document = Problem("bad_request", "Say it right.").to_dict()
    assert "trace_id" not in document
    assert document["agent"] is None, "each member is there, so that nobody has to ask first"
    assert document["attempts"] == []


def test_the_answer() -> None:
    problem = Problem("backpressure", "Try later.", retry_after_s=7)
    assert list(problem.headers("a", "ab" * 16).items()) == [
        ("Content-Type", "application/problem+json"),
        ("Proxy-Status", 'a; error=connection_limit_reached; details="backpressure"'),
        ("Retry-After", "7"),
        ("Reach-Trace-Id", "ab" * 16),
    ]
    assert json.loads(problem.body("ab" * 16)) == problem.to_dict("ab" * 16)
    assert list(Problem("bad_request", "x").headers("a")) == ["Content-Type", "Proxy-Status"]


def test_503_says_when_to_come_back() -> None:
    assert Problem("backpressure", "x").retry_after_s == 1
    assert Problem("backpressure", "x", retry_after_s=7).retry_after_s == 7
    assert Problem("bad_request", "x").retry_after_s is None
