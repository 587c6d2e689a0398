"""The mesh door: calls from other sidecars for the local agent, and what sidecars ask of each other.

A request that names a target is a call. Everything else is the sidecars' own: `DELETE /v1/calls/{key}` and what
`mesh_questions` answers. Every answer to a call carries `Reach-Load`: by that the calling side knows that a sidecar
answers.
"""

from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from reach_core.problem import Problem
from reach_sidecar.forward.chain import Chains
from reach_sidecar.forward.observe import Observe
from reach_sidecar.forward.running import RunningCalls
from reach_sidecar.http1.message import Field, Request, Response
from reach_sidecar.http1.problem import render, trace_of
from reach_sidecar.listen.mesh_questions import MeshQuestions

_CALLS = b"/v1/calls/"


class Mesh:
    """`mark` gives the fields that tell the sidecar's words from the agent's, `load` the `Reach-Load` of the moment."""

    def __init__(self, *, call: Observe, running: RunningCalls, proxy: Callable[[], str],
                 mark: Callable[[Problem], list[Field]], load: Callable[[], Field], chains: Chains,
                 questions: MeshQuestions) -> None:
        self._call = call
        self._running = running
        self._proxy = proxy
        self._mark = mark
        self._load = load
        self._chains = chains
        self._questions = questions

    async def __call__(self, request: Request) -> Response:
        if request.header(b"reach-target") is not None and request.method != b"CONNECT":
            response = await self._call(request)
            response.headers.append(self._chains.left_after(request))
            return response
        if request.target.startswith(_CALLS):
            return self._cancel(request)
        if self._questions.knows(request.target):
            try:
                return await self._questions(request)
            except Problem as problem:
                return self._render(request, problem)
        return self._problem(request, "not_found", "This is the mesh listener of a sidecar: only sidecars call here. "
                             "Agents call the outbound listener.")

    def _cancel(self, request: Request) -> Response:
        if request.method != b"DELETE":
            return self._problem(request, "method_not_allowed", "A running call can only be deleted.")
        caller = (request.header(b"reach-caller") or b"").decode("latin-1")
        if self._running.cancel(caller, unquote_to_bytes(request.target[len(_CALLS):])):
            return Response(204, [self._load()])
        return self._problem(request, "not_found", "That call is not running here, or others wait for it.")

    def _problem(self, request: Request, code: str, detail: str) -> Response:
        return self._render(request, Problem(code, detail))

    def _render(self, request: Request, problem: Problem) -> Response:
        response = render(problem, trace_of(request), self._proxy())
        response.headers += self._mark(problem)
        return response
