"""The request's body as a whole, for those who have to look at it before it goes on."""

import asyncio

from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.http1.message import Request
from reach_sidecar.policy.dedup import FINGERPRINT_AT_MOST


def is_short(request: Request) -> bool:
    """Will its body be looked at as a whole? Not one that is too long, or whose length is not known ahead."""
    if request.body.complete:
        return request.body.size <= FINGERPRINT_AT_MOST
    length = request.header(b"content-length")
    return length is not None and int(length) <= FINGERPRINT_AT_MOST


async def whole_body(call: Call) -> bytes | None:
    """It is still to be read by the next layer. None where it is not short: such a body streams. Raises Problem
    where it breaks off or takes too long; nothing has run then."""
    request = call.request
    body = request.body
    if not is_short(request):
        return None
    if body.complete:
        return body.peek()
    try:
        async with asyncio.timeout_at(call.deadline):
            data = await body.collect(FINGERPRINT_AT_MOST)
    except BodyError as error:
        raise Problem("bad_request", f"The request's body did not arrive whole: {error}.") from None
    except TimeoutError:
        raise Problem("deadline_exceeded", "The call's time was over before all of its body had come.",
                      executed="no") from None
    request.body = Body.whole(data)
    return data
