"""How answers are framed, by what their client speaks."""

import pytest

from reach_sidecar.http1.answer import is_bodiless, stream_head, whole_answer
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Request, Response, field


def request(method: bytes = b"GET", version: int = 11) -> Request:
    return Request(method, b"/", version, [], Body.whole(b""))


@pytest.mark.parametrize(("method", "status", "bodiless"), [
    (b"GET", 200, False), (b"HEAD", 200, True), (b"GET", 204, True), (b"GET", 304, True), (b"POST", 404, False),
])  # fmt: skip
def test_bodiless(method: bytes, status: int, bodiless: bool) -> None:
    assert is_bodiless(request(method), Response(status, [])) is bodiless


@pytest.mark.parametrize(("version", "keep_alive", "connection"), [
    (11, True, b""), (11, False, b"Connection: close\r\n"), (10, True, b"Connection: keep-alive\r\n"),
    (10, False, b"Connection: close\r\n"),
])  # fmt: skip
def test_whole(version: int, keep_alive: bool, connection: bytes) -> None:
    data, sent = whole_answer(request(version=version), Response(200, [field("A", "1")], b"abc"), keep_alive)
    assert data == b"HTTP/1.1 200 OK\r\nA: 1\r\n" + connection + b"Content-Length: 3\r\n\r\nabc"
    assert sent == 3


def test_an_answer_to_head_keeps_its_length_and_204_has_none() -> None:
    data, sent = whole_answer(request(b"HEAD"), Response(200, [], b"abc"), keep_alive=True)
    assert (data, sent) == (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 0)
    assert whole_answer(request(), Response(204, []), keep_alive=True)[0] == b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize(("version", "length", "framing", "chunked", "keep_alive"), [
    (11, None, b"Transfer-Encoding: chunked\r\n", True, True),
    (11, 7, b"Content-Length: 7\r\n", False, True),
    (10, None, b"Connection: close\r\n", False, False),
    (10, 7, b"Content-Length: 7\r\nConnection: keep-alive\r\n", False, True),
])  # fmt: skip
def test_stream(version: int, length: int | None, framing: bytes, chunked: bool, keep_alive: bool) -> None:
    response = Response(200, [], Body(), length=length)
    head = b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n"
    assert stream_head(request(version=version), response, keep_alive=True) == (head, chunked, keep_alive)
