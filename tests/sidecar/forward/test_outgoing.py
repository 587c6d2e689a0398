"""What frames a request at each hop."""

import pytest

from reach_sidecar.forward.outgoing import frame, switch
from reach_sidecar.forward.replay import ReplayedBody
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Field, Request, field


def made(method: bytes, body: Body, *headers: Field) -> Request:
    return Request(method, b"/", 11, list(headers), body)


def framed(request: Request) -> tuple[list[str], bool]:
    headers: list[Field] = []
    chunked = frame(headers, ReplayedBody(request.body).for_attempt(), request)
    return [f"{name.decode()}: {value.decode()}" for _, name, value in headers], chunked


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"PATCH"])
def test_an_empty_body_is_announced_where_one_is_usual(method: bytes) -> None:
    assert framed(made(method, Body.whole(b""))) == (["Content-Length: 0"], False)


@pytest.mark.parametrize("method", [b"GET", b"DELETE", b"HEAD"])
def test_and_not_elsewhere(method: bytes) -> None:
    assert framed(made(method, Body.whole(b""))) == ([], False)


def test_a_length_that_was_said_is_in_its_place_already() -> None:
    assert framed(made(b"POST", Body.whole(b"abc"), field("content-length", "3"))) == ([], False)


def test_a_body_at_hand_has_its_length() -> None:
    assert framed(made(b"POST", Body.whole(b"abc"))) == (["Content-Length: 3"], False)


def test_a_body_that_is_coming_keeps_its_framing() -> None:
    assert framed(made(b"POST", Body(), field("Content-Length", "9"))) == ([], False)
    assert framed(made(b"POST", Body())) == (["Transfer-Encoding: chunked"], True)


def test_an_upgrade_is_asked_for_anew() -> None:
    request = made(b"GET", Body.whole(b""))
    request.upgrade = b"websocket"
    assert framed(request) == (["Connection: Upgrade", "Upgrade: websocket"], False)
    granted: list[Field] = []
    switch(granted, request)
    assert [value for _, _, value in granted] == [b"Upgrade", b"websocket"]
