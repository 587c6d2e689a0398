"""The body is looked at as a whole, and is still there for whoever sends it on."""

import asyncio

import pytest

from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.whole_body import is_short, whole_body
from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.http1.message import Request, field
from reach_sidecar.policy.dedup import FINGERPRINT_AT_MOST


def call_with(body: Body, length: int | None = None, seconds: float = 5.0) -> Call:
    headers = [] if length is None else [field("Content-Length", str(length))]
    call = Call(Request(b"POST", b"/x", 11, headers, body), 0.0)
    call.deadline = asyncio.get_running_loop().time() + seconds
    return call


@pytest.mark.parametrize("data", [b"", b"x", b"x" * FINGERPRINT_AT_MOST])
async def test_one_that_is_all_here_is_not_taken(data: bytes) -> None:
    call = call_with(Body.whole(data))
    assert await whole_body(call) == data
    assert await whole_body(call) == data, "and can be looked at twice"
    assert call.request.body.taken == 0
    assert await call.request.body.collect(FINGERPRINT_AT_MOST) == data


async def test_one_that_is_still_coming_is_waited_for() -> None:
    body = Body()
    call = call_with(body, length=6)
    asked: list[None] = []
    body.on_first_read = lambda: asked.append(None)
    assert is_short(call.request)
    waiting = asyncio.ensure_future(whole_body(call))
    for piece in (b"abc", b"def"):
        await asyncio.sleep(0)
        body.feed(piece)
    body.finish()
    assert await waiting == b"abcdef"
    assert asked == [None], "the client was told to go on"
    assert await call.request.body.collect(100) == b"abcdef"


@pytest.mark.parametrize("length", [None, FINGERPRINT_AT_MOST + 1])
async def test_one_that_is_long_or_of_unknown_length_streams(length: int | None) -> None:
    body = Body()
    body.feed(b"begun")
    call = call_with(body, length)
    assert not is_short(call.request)
    assert await whole_body(call) is None
    assert call.request.body is body
    assert body.take() == b"begun", "none of it is lost"


async def test_one_that_is_here_and_long_is_none_to_compare() -> None:
    call = call_with(Body.whole(b"x" * (FINGERPRINT_AT_MOST + 1)))
    assert await whole_body(call) is None
    assert call.request.body.size == FINGERPRINT_AT_MOST + 1


async def test_one_that_breaks_off_has_not_run() -> None:
    body = Body()
    body.feed(b"ab")
    call = call_with(body, length=6)
    waiting = asyncio.ensure_future(whole_body(call))
    await asyncio.sleep(0)
    body.fail(BodyError("cut"))
    with pytest.raises(Problem) as problem:
        await waiting
    assert (problem.value.code, problem.value.executed) == ("bad_request", "no")


async def test_one_that_does_not_come_in_time_has_not_run() -> None:
    with pytest.raises(Problem) as problem:
        await whole_body(call_with(Body(), length=6, seconds=0.02))
    assert (problem.value.code, problem.value.executed) == ("deadline_exceeded", "no")
