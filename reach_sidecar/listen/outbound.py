"""The outbound door: what the local agent calls on 127.0.0.1:7070.

Decides what a request is for (policy/naming) and hands it to one of three: the path of a call, the local API,
or egress. Nothing else happens here.
"""

import base64
import binascii
import hmac
from collections.abc import Callable
from typing import Protocol

from reach_core.door import Door
from reach_core.problem import Problem
from reach_sidecar.forward.egress import Egress
from reach_sidecar.forward.observe import Observe
from reach_sidecar.http1.message import Request, Response
from reach_sidecar.http1.problem import render, trace_of
from reach_sidecar.policy.naming import Destination, NamingError, destination

_TLS_PORT = b":443"


class LocalApiHandler(Protocol):
    async def handle(self, request: Request, path: str, query: str) -> Response | None: ...


class Outbound:
    """`api_token`: asked for in every request where it is set (REACH_API_TOKEN)."""

    def __init__(self, *, call: Observe, local_api: LocalApiHandler, egress: Egress, door: Door,
                 proxy: Callable[[], str], is_own: Callable[[str], bool], api_token: str | None) -> None:
        self._call = call
        self._local_api = local_api
        self._egress = egress
        self._door = door
        self._proxy = proxy
        self._is_own = is_own
        self._api_token = api_token.encode() if api_token else None

    async def __call__(self, request: Request) -> Response:
        try:
            target = self._admit(request)
            if target.kind == "capability" or target.kind == "agent":
                if request.method == b"CONNECT":
                    return _inside(request)
                return await self._call(request, destination=target)
            return await self._elsewhere(request, target)
        except Problem as problem:
            return render(problem, trace_of(request), self._proxy())

    async def call(self, request: Request) -> Response:
        """For the local API's own calls: `request` names its target by `Reach-Target`."""
        target = destination(request.target, None, request.header(b"reach-target"))
        return await self._call(request, destination=target)

    def _admit(self, request: Request) -> Destination:
        """Is this one of ours, and for whom? Raises Problem."""
        get = request.index.get
        host, named = get(b"host"), get(b"reach-target")
        if self._api_token is not None and request.connect_host is None:  # inside a CONNECT it was given with that
            self._check_token(get(b"reach-api-token"), get(b"proxy-authorization"))
        target = request.target
        if request.method == b"CONNECT":
            target = b"http://" + target
        try:
            found = destination(target, host, named, request.connect_host)
        except NamingError as error:
            raise Problem("bad_request", str(error)) from None
        if found.kind == "outside" and self._is_own(found.name) and request.method != b"CONNECT":
            # a client that sends even loopback through its proxy
            found = destination(found.path or b"/", None, named)
            host = b"localhost"
        if found.kind == "outside":  # a page in the agent's own browser may call whom it likes out there
            return found
        origin_form = target.startswith(b"/") and request.connect_host is None
        door_host = host if origin_form or found.kind == "here" else b"localhost"
        verdict = self._door.check(door_host, get(b"origin"), get(b"sec-fetch-site"))
        if verdict == "bad_host":
            raise Problem(verdict, f"This door answers for loopback names and *.reach, not for the host "
                          f"{(host or b'').decode('latin-1')!r}. Call http://127.0.0.1 or add the name to "
                          "`allowed_hosts`.")
        if verdict is not None:
            raise Problem(verdict, "Web pages of other origins may not call this sidecar. "
                          "List the page's origin in `allowed_origins` if it should.")
        return found

    def _check_token(self, token: bytes | None, proxy_token: bytes | None) -> None:
        given = [token] if token is not None else _credentials(proxy_token or b"")
        expected = self._api_token or b""
        if not any(hmac.compare_digest(one, expected) for one in given):
            raise Problem("not_allowed", "This sidecar asks for a token: send it as Reach-Api-Token "
                          "(or as Proxy-Authorization: Bearer …).")

    async def _elsewhere(self, request: Request, target: Destination) -> Response:
        if target.kind == "outside":
            return await self._egress(request, target)
        path, _, query = (target.path or b"/").decode("latin-1").partition("?")
        response = await self._local_api.handle(request, path, query)
        if response is None:
            raise Problem("not_found", f"Nothing is served at {path}. Call a capability as /to/<capability>/…, with "
                          "the header Reach-Target, or as the host <capability>.reach; GET /v1/openapi.json "
                          "describes the rest.")
        return response


def _credentials(proxy_authorization: bytes) -> list[bytes]:
    """What may be the token: that of `Bearer`, or either half of `Basic`, as clients send `http://token@host`."""
    scheme, _, value = proxy_authorization.partition(b" ")
    if scheme.lower() == b"bearer":
        return [value.strip()]
    if scheme.lower() != b"basic":
        return []
    try:
        return base64.b64decode(value.strip(), validate=True).split(b":", 1)
    except binascii.Error:
        return []


def _inside(request: Request) -> Response:
    """A CONNECT to one of ours: 200, and what follows is read as HTTP for that name."""
    if request.target.endswith(_TLS_PORT):
        raise Problem("bad_request", "Calls into the mesh are plain HTTP on this machine: use http://, not https://.")
    response = Response(200, [], b"", reason=b"Connection established")
    response.length = None
    response.inner_host = request.target
    return response


