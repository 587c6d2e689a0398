"""Whatever went wrong becomes an answer, in one place."""

import asyncio
from typing import Any

import orjson
import pytest

from reach_core.problem import KINDS, Attempt, Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.failure import Refusal, mesh_mark
from reach_sidecar.forward.rescue import Rescue
from reach_sidecar.http1.body import Body, BodyError, BodyTooLarge
from reach_sidecar.http1.message import Request, Response


class Log:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, object]]] = []

    def event(self, level: str, event: str, **fields: object) -> None:
        self.events.append((level, event, fields))


def call() -> Call:
    return Call(Request(b"GET", b"/", 11, [], Body()), 0.0, 0.0)


async def rescued(error: BaseException | None, made: Call | None = None, log: Log | None = None,
                  **more: Any) -> tuple[Response, dict[str, Any]]:
    async def inner(_: Call) -> Response:
        if error is not None:
            raise error
        return Response(200, [], b"{}")

    response = await Rescue(inner, proxy=lambda: "a", log=log or Log(), **more)(made or call())
    assert isinstance(response.body, bytes)
    return response, orjson.loads(response.body)


async def test_an_answer_passes() -> None:
    response, _ = await rescued(None)
    assert (response.status, response.headers) == (200, [])


@pytest.mark.parametrize("code", sorted(KINDS))
async def test_every_problem_is_a_document(code: str) -> None:
    made = call()
    response, document = await rescued(Problem(code, "Do this."), made)
    kind = KINDS[code]
    assert response.status == document["status"] == kind.status
    assert document["type"] == f"urn:reach:{code}"
    assert (document["title"], document["detail"], document["executed"]) == (kind.title, "Do this.", kind.executed)
    assert document["trace_id"] == made.trace.trace_id
    assert document["attempts"] == []
    assert response.header(b"content-type") == b"application/problem+json"
    assert response.header(b"reach-trace-id") == made.trace.trace_id.encode()
    assert response.header(b"proxy-status") == f'a; error={kind.proxy_error}; details="{code}"'.encode()
    assert (response.header(b"retry-after") is not None) == (kind.status == 503)
    assert made.outcome == code


async def test_attempts_are_told() -> None:
    made = call()
    made.target = "b"
    made.attempts = [Attempt("c", "busy", 1.26, "no"), Attempt("b", "broken", 2.0, "unknown")]
    made.sends = 2
    response, document = await rescued(Problem("outcome_unknown", "Ask."), made)
    assert document["agent"] == "b"
    assert document["attempts"] == [{"agent": "c", "result": "busy", "ms": 1.3},
                                    {"agent": "b", "result": "broken", "ms": 2.0}]
    assert response.header(b"reach-attempts") == b"2"


@pytest.mark.parametrize(("error", "status", "code"), [
    (BodyError("cut"), 400, "bad_request"), (BodyTooLarge("over"), 413, "body_too_large"),
    (ValueError("defect"), 500, "internal_error"), (KeyError("x"), 500, "internal_error"),
])
async def test_other_errors(error: Exception, status: int, code: str) -> None:
    log = Log()
    response, document = await rescued(error, log=log)
    assert (response.status, document["type"]) == (status, f"urn:reach:{code}")
    assert bool(log.events) == (code == "internal_error")
    assert "defect" not in str(document) or code == "internal_error"


async def test_a_defect_is_logged_with_its_place_and_not_shown() -> None:
    log = Log()
    _, document = await rescued(RuntimeError("inside-only"), log=log)
    [(level, event, fields)] = log.events
    assert (level, event) == ("error", "defect")
    assert "test_rescue.py" in str(fields["detail"])
    assert "inside-only" in str(fields["detail"])
    assert "inside-only" not in str(document)


async def test_cancelling_passes() -> None:
    with pytest.raises(asyncio.CancelledError):
        await rescued(asyncio.CancelledError())


async def test_marks_on_the_mesh() -> None:
    response, _ = await rescued(Refusal("busy", "Full."), mark=mesh_mark)
    assert response.header(b"reach-refused") == b"busy"
    response, _ = await rescued(Problem("deadline_exceeded", "Late."), mark=mesh_mark)
    assert (response.header(b"reach-refused"), response.header(b"reach-fault")) == (None, b"deadline_exceeded")


def test_a_sidecar_whose_name_is_no_token_is_quoted() -> None:
    assert Problem("not_found", "x").proxy_status("3b").startswith('"3b"; error=')
    assert Problem("not_found", "x").proxy_status("b:3~x_y.z-1").startswith("b:3~x_y.z-1; error=")
