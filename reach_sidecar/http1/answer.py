"""An answer as bytes, framed as its client understands it.

The response is used up: fields that frame it are added to its own list.
"""

from reach_sidecar.http1.message import Request, Response, field
from reach_sidecar.http1.wire import response_head

_CLOSE = field("Connection", "close")
_KEEP_ALIVE = field("Connection", "keep-alive")
_CHUNKED = field("Transfer-Encoding", "chunked")


def is_bodiless(request: Request, response: Response) -> bool:
    """Does the answer end with its head, whatever it says of a length?"""
    return response.status in (204, 304) or request.method == b"HEAD"


def whole_answer(request: Request, response: Response, keep_alive: bool) -> tuple[bytes, int]:
    """An answer that is at hand, or has no body: all of it, and how many bytes of it are body."""
    headers = response.headers
    if not keep_alive:
        headers.append(_CLOSE)
    elif request.version == 10:
        headers.append(_KEEP_ALIVE)
    if response.length is not None and not response.sized and response.status != 204:
        headers.append((b"content-length", b"Content-Length", b"%d" % response.length))
    head = response_head(response.status, response.reason, headers)
    body = response.body
    if not isinstance(body, bytes) or is_bodiless(request, response):
        return head, 0
    return head + body, len(body)


def stream_head(request: Request, response: Response, keep_alive: bool) -> tuple[bytes, bool, bool]:
    """The head of an answer that streams, whether its body is chunked, and whether the connection can go on.

    To HTTP/1.0 a body of unknown length ends with the connection.
    """
    headers = response.headers
    chunked = False
    if response.length is not None:
        if not response.sized:
            headers.append((b"content-length", b"Content-Length", b"%d" % response.length))
    elif request.version == 11:
        chunked = True
        headers.append(_CHUNKED)
    else:
        keep_alive = False
    if not keep_alive:
        headers.append(_CLOSE)
    elif request.version == 10:
        headers.append(_KEEP_ALIVE)
    return response_head(response.status, response.reason, headers), chunked, keep_alive
