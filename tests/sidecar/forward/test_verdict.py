"""What the caller gets when no attempt brought an answer that it may have as it is."""

import asyncio

import pytest

from reach_core.problem import Attempt, Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.failure import AttemptFailed
from reach_sidecar.forward.verdict import MOST_ANSWER_BYTES, final_answer, problem_of
from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.http1.message import Request, Response, field
from reach_sidecar.policy.repeat import EXECUTED, Result


def tried(*results: Result, seconds: float = 5.0) -> Call:
    """A call whose attempts, at b0, b1, …, came to this."""
    call = Call(Request(b"POST", b"/x", 11, [], Body.whole(b"")), 0.0)
    call.deadline = asyncio.get_running_loop().time() + seconds
    call.results = list(results)
    call.attempts = [Attempt(f"b{number}", result, 1.0, EXECUTED[result]) for number, result in enumerate(results)]
    call.sends = len(results)
    call.target = f"b{len(results) - 1}"
    return call


def response(status: int, body: bytes | Body = b"", *fields: str) -> Response:
    return Response(status, [field(*line.split(": ", 1)) for line in fields], body)


async def final(call: Call, answer: Response, *, repeatable: bool = False) -> Response | Problem:
    try:
        return await final_answer(call, AttemptFailed(call.results[-1], "it said so", answer), answer,
                                  repeatable=repeatable)
    except Problem as problem:
        return problem


# -- with an answer of the agent's

@pytest.mark.parametrize(("results", "repeatable", "passes"), [
    (["retryable"], False, True),  # the only attempt: as if nobody stood between
    (["server_error"], False, True),
    (["server_error"], True, True),
    (["busy", "server_error"], False, True),  # what others refused is no reason to hide it
    (["connect_failed", "draining", "server_error"], False, True),
    (["broken", "server_error"], False, True),  # the joined run ended so
    (["server_error", "server_error"], True, False),
    (["busy", "server_error"], True, False),
    (["retryable", "retryable"], False, False),
])
async def test_whose_words_the_caller_gets(results: list[Result], repeatable: bool, passes: bool) -> None:
    """Design §3: any other 5xx of a call that is not repeatable passes through; else the retries are exhausted."""
    call, answer = tried(*results), response(500, b"own words")
    got = await final(call, answer, repeatable=repeatable)
    if passes:
        assert got is answer
        assert answer.body == b"own words"
        return
    assert isinstance(got, Problem)
    assert (got.code, got.status, got.executed) == ("retries_exhausted", 502, call.executed)
    assert got.extra == {"answer": {"status": 500, "body": "own words"}}
    assert f"{len(results)} attempts failed" in got.detail


@pytest.mark.parametrize(("result", "word", "code", "status", "executed"), [
    ("failure", "failure", "agent_failure", 502, "yes"),
    ("invalid_request", "invalid_request", "agent_invalid_request", 422, "yes"),
    ("retryable", "retryable_failure", "retries_exhausted", 502, "no"),
])
async def test_an_agent_that_declares_a_failure(result: Result, word: str, code: str, status: int,
                                                executed: str) -> None:
    """Also with the only attempt, and also with a 200."""
    answer = response(200, b'{"why": ["x"]}', f"Reach-Outcome: {word}", "Content-Type: application/json")
    got = await final(tried(result), answer)
    assert isinstance(got, Problem)
    assert (got.code, got.status, got.executed) == (code, status, executed)
    assert got.extra == {"answer": {"status": 200, "body": {"why": ["x"]}}}


@pytest.mark.parametrize(("body", "kind", "quoted"), [
    (b'{"a": 1}', "application/json", {"a": 1}),
    (b'{"a": 1}', "application/problem+json; charset=utf-8", {"a": 1}),
    (b'{"a": 1}', "text/plain", '{"a": 1}'),
    (b'{"a": ', "application/json", '{"a": '),
    (b"", "application/json", ""),
    (b"caf\xc3\xa9 \xff", "text/plain", "caf\u00e9 \ufffd"),
])
async def test_the_agents_own_words(body: bytes, kind: str, quoted: object) -> None:
    got = await final(tried("failure"), response(500, body, "Reach-Outcome: failure", f"Content-Type: {kind}"))
    assert isinstance(got, Problem)
    assert got.extra["answer"] == {"status": 500, "body": quoted}


async def test_an_answer_that_streams_is_quoted_when_it_is_all_there() -> None:
    body = Body()
    answer = response(500, body, "Reach-Outcome: failure")
    sent: list[tuple[int, object]] = []
    answer.when_sent(lambda count, error: sent.append((count, error)))
    waiting = asyncio.ensure_future(final(tried("failure"), answer))
    for piece in (b"one ", b"two"):
        await asyncio.sleep(0)
        body.feed(piece)
    body.finish()
    got = await waiting
    assert isinstance(got, Problem)
    assert got.extra["answer"] == {"status": 500, "body": "one two"}
    assert sent == [(7, None)], "whoever counts it under way is told that it is over"


@pytest.mark.parametrize("trouble", ["cut", "long", "late"])
async def test_one_that_cannot_be_quoted_is_null(trouble: str) -> None:
    body = Body()
    body.feed(b"x" * (MOST_ANSWER_BYTES + 1 if trouble == "long" else 10))
    if trouble == "cut":
        body.fail(BodyError("cut"))
    answer = response(500, body, "Reach-Outcome: failure")
    sent: list[int] = []
    answer.when_sent(lambda count, _: sent.append(count))
    got = await final(tried("failure", seconds=0.05), answer)
    assert isinstance(got, Problem)
    assert (got.code, got.extra["answer"]) == ("agent_failure", {"status": 500, "body": None})
    assert sent == [0]


# -- without one

@pytest.mark.parametrize(("results", "repeatable", "code", "executed"), [
    (["busy"], False, "backpressure", "no"),
    (["busy", "busy", "busy"], False, "backpressure", "no"),
    (["store_unavailable", "store_unavailable"], False, "store_unavailable", "no"),
    (["busy", "draining"], False, "no_agent_available", "no"),
    (["connect_failed"], False, "no_agent_available", "no"),
    (["draining", "draining", "draining"], False, "retries_exhausted", "no"),
    (["not_allowed"], False, "not_allowed", "no"),
    (["busy", "not_allowed"], False, "not_allowed", "no"),
    (["broken"], False, "outcome_unknown", "unknown"),
    (["agent_broke"], False, "outcome_unknown", "unknown"),
    (["timeout"], False, "deadline_exceeded", "unknown"),
    (["bad_answer"], False, "bad_agent_response", "unknown"),
    (["broken", "connect_failed", "connect_failed"], False, "outcome_unknown", "unknown"),
    (["broken", "busy"], False, "outcome_unknown", "unknown"),
    (["broken"], True, "outcome_unknown", "unknown"),
    (["broken", "agent_broke", "busy"], True, "retries_exhausted", "unknown"),
    (["timeout", "timeout"], True, "retries_exhausted", "unknown"),
])
async def test_what_the_attempts_add_up_to(results: list[Result], repeatable: bool, code: str, executed: str) -> None:
    call = tried(*results)
    problem = problem_of(call, AttemptFailed(results[-1], "because"), repeatable=repeatable)
    assert (problem.code, problem.executed) == (code, executed)
    assert f"{call.target}: because." in problem.detail


async def test_nobody_left_is_no_agent_available_even_after_three() -> None:
    call = tried("draining", "busy", "connect_failed")
    problem = problem_of(call, AttemptFailed("connect_failed", "because"), repeatable=False, exhausted=True)
    assert problem.code == "no_agent_available"
    assert "(b0: draining; b1: busy; b2: connect_failed)" in problem.detail


async def test_who_may_have_done_the_work_is_named() -> None:
    """Not the one that was asked last."""
    call = tried("broken", "connect_failed")
    problem = problem_of(call, AttemptFailed("connect_failed", "because"), repeatable=False)
    assert "b0 may have done the work" in problem.detail


async def test_an_earlier_call_with_the_key_may_have_run() -> None:
    call = tried("busy")
    call.doubtful = True
    problem = problem_of(call, AttemptFailed("busy", "because"), repeatable=False)
    assert (problem.code, problem.executed) == ("outcome_unknown", "unknown")
