"""The mesh door: calls from other sidecars for the local agent, and what sidecars ask of each other.

A request that names a target is a call. Everything else is the sidecars' own: `DELETE /v1/calls/{key}`.
"""

from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from reach_core.problem import Problem
from reach_sidecar.forward.cancel import RunningCalls
from reach_sidecar.forward.observe import Observe
from reach_sidecar.http1.message import Request, Response
from reach_sidecar.http1.problem import render

_CALLS = b"/v1/calls/"


class Mesh:
    def __init__(self, *, call: Observe, running: RunningCalls, proxy: Callable[[], str]) -> None:
        self._call = call
        self._running = running
        self._proxy = proxy

    async def __call__(self, request: Request) -> Response:
        if request.header(b"reach-target") is not None and request.method != b"CONNECT":
            return await self._call(request)
        if request.target.startswith(_CALLS):
            return self._cancel(request)
        return render(Problem("not_found", "This is the mesh listener of a sidecar: only sidecars call here. "
                              "Agents call the outbound listener."), proxy=self._proxy())

    def _cancel(self, request: Request) -> Response:
        if request.method != b"DELETE":
            return render(Problem("method_not_allowed", "A running call can only be deleted."), proxy=self._proxy())
        caller = (request.header(b"reach-caller") or b"").decode("latin-1")
        if self._running.cancel(caller, unquote_to_bytes(request.target[len(_CALLS):])):
            return Response(204, [])
        return render(Problem("not_found", "That call is not running here."), proxy=self._proxy())
