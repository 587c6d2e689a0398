"""The layer that turns whatever went wrong into an answer. Nothing below it answers errors by itself."""

import traceback
from collections.abc import Callable
from typing import Protocol

from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.observe import Layer
from reach_sidecar.http1.body import BodyError, BodyTooLarge
from reach_sidecar.http1.message import Field, Response, field
from reach_sidecar.http1.problem import render


class EventLog(Protocol):
    def event(self, level: str, event: str, **fields: object) -> None: ...


class Rescue:
    """`mark` adds fields to a problem's answer: on the mesh they tell the calling sidecar whose words these are."""

    def __init__(self, inner: Layer, *, proxy: Callable[[], str], log: EventLog,
                 mark: Callable[[Problem], list[Field]] | None = None) -> None:
        self._inner = inner
        self._proxy = proxy
        self._log = log
        self._mark = mark

    async def __call__(self, call: Call) -> Response:
        try:
            return await self._inner(call)
        except Problem as problem:
            return self._answer(call, problem)
        except BodyTooLarge as error:
            return self._answer(call, Problem("body_too_large", f"The body is too large: {error}."))
        except BodyError as error:
            return self._answer(call, Problem("bad_request", f"The request's body did not arrive whole: {error}."))
        except Exception as error:
            self._log.event("error", "defect", trace_id=call.trace.trace_id,
                            detail="".join(traceback.format_exception(error))[-4000:])
            return self._answer(call, Problem("internal_error", "This is a defect; the sidecar's log says more."))

    def _answer(self, call: Call, problem: Problem) -> Response:
        call.outcome = problem.code
        if problem.agent is None and call.target:
            problem.agent = call.target
        if not problem.attempts:
            problem.attempts = tuple(call.attempts)
        response = render(problem, call.trace.trace_id, self._proxy())
        if call.sends:
            response.headers.append(field("Reach-Attempts", str(call.sends)))
        if self._mark is not None:
            response.headers += self._mark(problem)
        return response
