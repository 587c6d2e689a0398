"""What the caller is told when no attempt brought an answer that it may have as it is."""

import asyncio

import orjson

from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.failure import AttemptFailed
from reach_sidecar.http1.body import Body, BodyError, BodyTooLarge
from reach_sidecar.http1.message import Response
from reach_sidecar.policy.outcome import is_json
from reach_sidecar.policy.repeat import MAX_ATTEMPTS

MOST_ANSWER_BYTES = 1 << 20  # of an agent's answer within a problem


async def final_answer(call: Call, failed: AttemptFailed, response: Response, *, repeatable: bool) -> Response:
    """The agent's own answer where it may pass as it is. Raises Problem, with the answer in it, where it may not: the
    agent says itself that it failed, or several attempts were made in vain."""
    declared = b"reach-outcome" in response.index
    if not declared and (call.sends == 1 or (failed.result == "server_error" and not repeatable)):
        return response
    extra: dict[str, object] = {"answer": await _quoted(response, call.deadline)}
    who = call.target
    if failed.result == "failure":
        raise Problem("agent_failure", f"{who} says that it failed; its answer says why.", executed="yes", extra=extra)
    if failed.result == "invalid_request":
        raise Problem("agent_invalid_request", f"{who} says that the request is not valid; its answer says why.",
                      executed="yes", extra=extra)
    tries = "1 attempt" if call.sends == 1 else f"{call.sends} attempts"
    raise Problem("retries_exhausted", f"{tries} failed, and there are no more. Last {who}: {failed.detail}.",
                  executed=call.executed, extra=extra)


async def _quoted(response: Response, deadline: float) -> dict[str, object]:
    """Status and body of the agent's answer: JSON as it is, everything else as text, null where it is too long."""
    body = response.body
    raw: bytes | None = None
    try:
        async with asyncio.timeout_at(deadline):
            raw = body if isinstance(body, bytes) else await body.collect(MOST_ANSWER_BYTES)
    except (BodyError, BodyTooLarge, TimeoutError):
        _abandon(body)
    except BaseException:  # the caller went away
        _abandon(body)
        raise
    finally:
        response.sent(len(raw or b""), None)
    quoted: object = raw.decode("utf-8", "replace") if raw is not None else None
    if raw and is_json(response.index.get(b"content-type")):
        try:
            quoted = orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass
    return {"status": response.status, "body": quoted}


def _abandon(body: bytes | Body) -> None:
    if isinstance(body, Body):
        body.abandon()


def problem_of(call: Call, last: AttemptFailed, *, repeatable: bool, exhausted: bool = False,
               out_of_time: bool = False) -> Problem:
    """What the attempts add up to; `exhausted`: there was nobody left to try, `out_of_time`: nor time to."""
    executed = call.executed
    said = f"{call.target}: {last.detail}."
    doubtful = next((one.agent for one in reversed(call.attempts) if one.executed == "unknown"), call.target)
    if last.result == "not_allowed":
        return Problem("not_allowed", said, executed=executed)
    if executed == "no" and last.result == "connect_failed" and out_of_time:
        return Problem("deadline_exceeded", f"The call's time was over before its agent could be reached. {said}",
                       executed="no")
    if executed == "unknown" and repeatable and len(call.results) > 1:
        return Problem("retries_exhausted", f"{len(call.results)} attempts failed. Last {said}", executed=executed)
    if executed == "unknown":
        if last.result == "timeout":
            return Problem("deadline_exceeded", f"{said} {doubtful} may still have done the work.")
        code = "bad_agent_response" if last.result == "bad_answer" else "outcome_unknown"
        return Problem(code, f"{said} {doubtful} may have done the work: ask it, or repeat with the same "
                       "Idempotency-Key only if twice does no harm.")
    if all(result == "busy" for result in call.results):
        return Problem("backpressure", f"All agents that were asked are busy. Last {said}")
    if all(result == "store_unavailable" for result in call.results):
        return Problem("store_unavailable", f"The agents that were asked cannot note the call. Last {said}")
    if exhausted or len(call.results) < MAX_ATTEMPTS:
        tried = "; ".join(f"{attempt.agent}: {attempt.result}" for attempt in call.attempts)
        return Problem("no_agent_available", f"No agent could take the call ({tried}). Last {said}")
    return Problem("retries_exhausted", f"{len(call.results)} attempts failed. Last {said}", executed=executed)
