"""The request's body as a whole, for those who have to look at it before it goes on."""

import asyncio

from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.policy.dedup import FINGERPRINT_AT_MOST


async def whole_body(call: Call) -> bytes | None:
    """It is still to be read by the next layer. None where it is too long, or its length is not known ahead: such a
    body streams. Raises Problem where it breaks off or takes too long; nothing has run then."""
    request = call.request
    body = request.body
    if body.complete:
        return body.peek() if body.size <= FINGERPRINT_AT_MOST else None
    length = request.header(b"content-length")
    if length is None or int(length) > FINGERPRINT_AT_MOST:
        return None
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
