"""Requests, responses and fields as values."""

import orjson

from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import REASONS, Request, Response, field, find

HEADERS = [field("X-A", "1"), field("x-a", "2"), field("Host", b"a.reach")]


def test_a_field_keeps_its_name_as_written() -> None:
    assert field("X-Case", "Kept") == (b"x-case", b"X-Case", b"Kept")
    assert field("A", b"\xff")[2] == b"\xff"
    assert field("A", "ü")[2] == "ü".encode()


def test_the_first_value_is_found() -> None:
    assert find(HEADERS, b"x-a") == b"1"
    assert find(HEADERS, b"host") == b"a.reach"
    assert find(HEADERS, b"X-A") is None


def test_a_request_looks_its_fields_up_the_same_way() -> None:
    request = Request(b"GET", b"/", 11, HEADERS, Body.whole(b""))
    assert (request.header(b"x-a"), request.header(b"host"), request.header(b"no")) == (b"1", b"a.reach", None)
    assert request.headers is HEADERS


def test_a_response_knows_its_length_and_reason() -> None:
    response = Response(404, HEADERS, b"gone")
    assert (response.reason, response.length, response.header(b"x-a")) == (b"Not Found", 4, b"1")
    assert Response(200, [], Body()).length is None
    assert Response(200, [], Body(), length=7).length == 7
    assert Response(599, []).reason == b""
    assert Response(200, [], reason=b"").reason == b""
    assert REASONS[503] == b"Service Unavailable"


def test_json() -> None:
    response = Response.json(201, {"a": [1]}, field("X-B", "2"))
    assert isinstance(response.body, bytes)
    assert orjson.loads(response.body) == {"a": [1]}
    assert response.headers == [field("Content-Type", "application/json"), field("X-B", "2")]
    assert Response.json(400, {}, content_type="application/problem+json").header(b"content-type") == (
        b"application/problem+json")


def test_who_waits_for_the_sending_is_told_once_the_last_added_first() -> None:
    told: list[tuple[str, int, object]] = []
    response = Response(200, [])
    response.when_sent(lambda size, error: told.append(("first", size, error)))
    response.when_sent(lambda size, error: told.append(("last", size, error)))
    response.sent(5, None)
    response.sent(9, ValueError())
    assert told == [("last", 5, None), ("first", 5, None)]
