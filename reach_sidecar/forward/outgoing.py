"""A request on its way out of a hop, and a switch of protocols on its way back: what each hop frames anew."""

from reach_sidecar.forward.replay import Replay
from reach_sidecar.http1.message import Field, Request

_CHUNKED = (b"transfer-encoding", b"Transfer-Encoding", b"chunked")
_UPGRADE = (b"connection", b"Connection", b"Upgrade")
_WITH_BODY = frozenset({b"POST", b"PUT", b"PATCH"})


def frame(headers: list[Field], content: bytes | Replay, request: Request) -> bool:
    """Add the fields that frame the body of `request`, and its upgrade. Returns whether the body is chunked.

    A `Content-Length` that came with the request is already in its place.
    An empty body of a method that usually has one is announced too (RFC 9110 §8.6): some servers answer 411 else.
    """
    chunked = False
    if request.header(b"content-length") is not None:
        pass
    elif not isinstance(content, bytes):
        chunked = True
        headers.append(_CHUNKED)
    elif content or request.method in _WITH_BODY:
        headers.append((b"content-length", b"Content-Length", b"%d" % len(content)))
    if request.upgrade is not None:
        switch(headers, request)
    return chunked


def switch(headers: list[Field], request: Request) -> None:
    """Add the fields of an upgrade, asked for or granted: they end at each hop and are made anew."""
    headers += (_UPGRADE, (b"upgrade", b"Upgrade", request.upgrade or b"websocket"))
