"""What sidecars and control nodes ask of each other at the mesh door, besides calls.

`POST /v1/gossip` compares tables, `GET /v1/hello` says whose sidecar this is (a first look), `POST /v1/look` looks at
another one for control (a second look), `POST /v1/probe` runs the agent's health check at once, because callers told
control of failures. Of each only so many are answered at a time: a node that asks too much gets 503, calls are not in
its way, and neither are questions of another kind.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from reach_core.gossip.compare import CompareError
from reach_core.messages import (
    Hello,
    LookAnswer,
    LookRequest,
    Message,
    MessageError,
    ProbeAnswer,
    decode,
    encode,
)
from reach_core.problem import Problem
from reach_sidecar.http1.body import BodyError, BodyTooLarge
from reach_sidecar.http1.message import Request, Response, field
from reach_sidecar.membership.ask import JSON, Unanswered, ask
from reach_sidecar.membership.controls import GOSSIP, GOSSIP_BYTES

LOOK_TIMEOUT_S = 1.0
BODY_TIMEOUT_S = 5.0
MOST_AT_ONCE = {b"/v1/gossip": 16, b"/v1/hello": 256, b"/v1/look": 32, b"/v1/probe": 4}

Answer = Callable[[bytes, str], Awaitable[bytes]]


class MeshQuestions:
    """`hello` is who we are now, `compare` answers one step of a comparison, `probe` runs the health check: is the
    agent fit?"""

    def __init__(self, *, hello: Callable[[], Hello], compare: Answer, probe: Callable[[], Awaitable[bool]]) -> None:
        self._hello = hello
        self._probe = probe
        self._under_way: Counter[bytes] = Counter()
        self._answers: dict[bytes, tuple[bytes, int, str, Answer]] = {
            b"/v1/gossip": (b"POST", GOSSIP_BYTES, GOSSIP, compare),
            b"/v1/hello": (b"GET", 0, JSON, self._say_hello),
            b"/v1/look": (b"POST", LookRequest.max_bytes, JSON, self._look),
            b"/v1/probe": (b"POST", 1024, JSON, self._run_probe),
        }

    def knows(self, target: bytes) -> bool:
        """Is this path a question?"""
        return target in self._answers

    async def __call__(self, request: Request) -> Response:
        """Raises Problem."""
        method, most_bytes, content_type, answer = self._answers[request.target]
        if request.method != method:
            raise Problem("method_not_allowed", f"Use {method.decode()} for {request.target.decode()}.")
        if self._under_way[request.target] >= MOST_AT_ONCE[request.target]:
            raise Problem("backpressure", "This sidecar answers many such questions already. Ask again in a moment.")
        self._under_way[request.target] += 1
        try:
            body = await _body(request, most_bytes)
            return Response(200, [field("Content-Type", content_type)], await answer(body, request.peer))
        except (MessageError, CompareError) as error:
            raise Problem("bad_request", f"The body cannot be used: {error}.") from None
        finally:
            self._under_way[request.target] -= 1

    async def _say_hello(self, body: bytes, source: str) -> bytes:
        return encode(self._hello())

    async def _look(self, body: bytes, source: str) -> bytes:
        return encode(await look(decode(LookRequest, body)))

    async def _run_probe(self, body: bytes, source: str) -> bytes:
        return encode(ProbeAnswer(fit=await self._probe()))


async def look(wanted: LookRequest) -> Message:
    """Is the sidecar of that agent at that address? Another agent's there does not count."""
    try:
        said = await ask(wanted.address, "GET", "/v1/hello", timeout_s=LOOK_TIMEOUT_S, most_bytes=Hello.max_bytes)
        found = decode(Hello, said)
    except (Unanswered, MessageError) as error:
        return LookAnswer(alive=False, detail=str(error))
    if found.agent_id != wanted.agent_id:
        return LookAnswer(alive=False, detail=f"{found.agent_id} is at {wanted.address} now")
    return LookAnswer(alive=True)


async def _body(request: Request, most_bytes: int) -> bytes:
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await request.body.collect(most_bytes)
    except BodyTooLarge:
        raise Problem("body_too_large", f"Such a message has {most_bytes} bytes at most.") from None
    except (BodyError, TimeoutError):
        raise Problem("bad_request", "The body did not arrive whole.") from None
