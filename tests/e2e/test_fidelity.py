"""What passes through unchanged, what is taken out, and what the doors refuse."""

import json
import os
import socket

import pytest
from harness.wire import exchange
from harness.world import World


def test_order_case_and_repetition_of_headers(world: World) -> None:
    sent = [
        ("X-Zulu", "1"),
        ("x-alpha", "2"),
        ("X-ZULU", "3"),
        ("Accept", "a"),
        ("Cookie", "b=1; c=2"),
        ("ACCEPT", "d"),
    ]
    answer = exchange(f"{world.url}/to/echo/process", sent, b"x").json
    seen = [(name, value) for name, value in answer["headers"] if (name, value) in sent]
    assert seen == sent


def test_repeated_answer_headers_stay_apart(world: World) -> None:
    answer = exchange(f"{world.url}/to/echo/process", body=b"x")
    assert answer.all("x-seen") == ["1", "2"]


def test_hop_by_hop_headers_end_here(world: World) -> None:
    sent = [
        ("Connection", "keep-alive, X-Private"), ("X-Private", "1"), ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"), ("Proxy-Authorization", "Basic eDp5"), ("Upgrade", "h2c"),
    ]  # fmt: skip
    answer = exchange(f"{world.url}/to/echo/process", sent, b"x").json
    names = {name.lower() for name, _ in answer["headers"]}
    assert not names & {"x-private", "keep-alive", "proxy-authorization", "upgrade"}


def test_forwarded_is_appended_to(world: World) -> None:
    answer = exchange(f"{world.url}/to/echo/process", [("X-Forwarded-For", "192.0.2.7")], b"x").json
    values = [value for name, value in answer["headers"] if name.lower() == "x-forwarded-for"]
    assert ", ".join(values).startswith("192.0.2.7")


def test_query_and_escapes_are_not_touched(world: World) -> None:
    path = "/a%2Fb//c/../d?q=%20%zz&q=+&empty="
    assert exchange(world.url, body=b"x", target=f"/to/echo{path}").json["path"] == path


def test_a_caller_cannot_claim_to_be_another(world: World) -> None:
    answer = exchange(f"{world.url}/to/echo/process", [("Reach-Caller", "admin")], b"x").json
    assert [v for n, v in answer["headers"] if n.lower() == "reach-caller"] == ["caller-01"]


def test_bodies_of_many_sizes(world: World) -> None:
    for size in (0, 1, 1023, 65535, 65536, 65537, 262143, 262145, 1_000_003):
        body = os.urandom(size)
        answer = exchange(f"{world.url}/to/echo/process", body=body).json
        assert answer["body_bytes"] == size


def test_an_answer_that_was_cut_never_looks_complete(world: World) -> None:
    """Either a clear error or a body that visibly ends too early."""
    import http.client

    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        exchange(f"{world.url}/to/echo/cut", body=b"x")


def test_pipelined_requests_are_answered_in_order(world: World) -> None:
    with socket.create_connection(("127.0.0.1", world.caller.port), timeout=20) as connection:
        connection.sendall(
            b"".join(
                b"POST /to/echo/process?n=%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi" % number
                for number in range(5)
            )
        )
        received = b""
        while received.count(b'"path"') < 5:
            data = connection.recv(65536)
            assert data, received
            received += data
    order = [received.index(b"?n=%d" % number) for number in range(5)]
    assert order == sorted(order)


def test_unknown_methods_are_refused(world: World) -> None:
    answer = exchange(f"{world.url}/to/echo/process", method="BREW")
    assert answer.status == 501


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Host", "evil.example")], 421),
        ([("Host", "localhost"), ("Origin", "http://evil.example")], 403),
        ([("Host", "localhost"), ("Sec-Fetch-Site", "cross-site")], 403),
        ([("Host", "localhost")], 200),
    ],
)
def test_web_pages_cannot_use_the_door(world: World, headers: list[tuple[str, str]], status: int) -> None:
    answer = exchange(f"{world.url}/to/echo/process", headers, b"x")
    assert answer.status == status
    if status != 200:
        assert answer.problem in ("bad_host", "not_allowed")


def test_unknown_capability_names_the_near_ones(world: World) -> None:
    answer = exchange(f"{world.url}/to/ehco/process", body=b"x")
    assert answer.status == 404
    assert answer.problem == "no_such_capability"
    assert answer.json["executed"] == "no"
    assert "echo" in json.dumps(answer.json)
    words = exchange(f"{world.url}/to/echo.node/process", body=b"x")
    assert words.status == 404
    assert "node.echo" in json.dumps(words.json), "the same words in another order are pointed at"


def test_unknown_agent(world: World) -> None:
    answer = exchange(f"{world.url}/to/@nobody/process", body=b"x")
    assert (answer.status, answer.problem) == (404, "no_such_agent")


def test_bad_framing_closes_the_connection(world: World) -> None:
    """The table of malformed requests is tested below the engine; here that the real door is guarded by it."""
    with socket.create_connection(("127.0.0.1", world.caller.port), timeout=20) as connection:
        connection.sendall(
            b"POST /to/echo/process HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        received = b""
        while data := connection.recv(65536):
            received += data
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in received
