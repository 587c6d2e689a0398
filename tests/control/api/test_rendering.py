import json

from aiohttp.test_utils import make_mocked_request

from reach_control.api.rendering import json_answer, problem_answer
from reach_core.problem import Problem

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_problem_keeps_the_callers_trace() -> None:
    request = make_mocked_request("GET", "/", headers={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"})
    answer = problem_answer(Problem("backpressure", "Try later.", retry_after_s=3), request)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "3")
    assert answer.headers["Reach-Trace-Id"] == TRACE
    assert json.loads(answer.body)["trace_id"] == TRACE


def test_a_problem_without_a_trace_gets_one() -> None:
    for headers in ({}, {"traceparent": "nonsense"}, {"traceparent": "\u20ac"}):
        answer = problem_answer(
            Problem("not_found", "Look elsewhere."), make_mocked_request("GET", "/", headers=headers)
        )
        assert len(json.loads(answer.body)["trace_id"]) == 32


def test_json() -> None:
    answer = json_answer({"a": [1]}, 201)
    assert (answer.status, answer.content_type, answer.body) == (201, "application/json", b'{"a":[1]}')
