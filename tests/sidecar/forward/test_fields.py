"""What passes, what is added, what stops: from one agent through two sidecars to another, and back."""

import pytest
from harness.sidecars import Mesh, ok

from reach_core.headers import HOP_BY_HOP, MESH_ANSWER, SIDECAR_ONLY, TARGETING
from reach_sidecar.forward import fields
from reach_sidecar.forward.call import Timing
from reach_sidecar.http1.message import Field, field

SIDECARS_OWN = ["Reach-Caller", "Reach-Attempt", "Reach-Agent", "Reach-Journal", "Reach-Load", "Reach-Refused",
                "Reach-Trace-Id", "Reach-Attempts", "Reach-Matched", "Reach-Fault", "Reach-Scope"]


def made(*lines: str) -> list[Field]:
    return [field(*line.split(": ", 1)) for line in lines]


def shown(headers: list[Field]) -> list[str]:
    return [f"{name.decode()}: {value.decode()}" for _, name, value in headers]


def test_order_case_and_repetitions_are_kept() -> None:
    lines = ["accept: a", "X-Thing: 1", "x-thing: 2", "COOKIE: a=b", "X-Thing: ", "Cookie: c=d"]
    for pass_on in (fields.passing, fields.agent_answer, fields.mesh_answer):
        assert shown(pass_on(made(*lines))) == lines
    assert shown(fields.entering(made(*lines), "")) == lines
    assert shown(fields.delivering(made(*lines), "")) == lines


@pytest.mark.parametrize("name", sorted(name.decode() for name in HOP_BY_HOP))
def test_connection_management_ends_at_each_hop(name: str) -> None:
    headers = made("A: 1", f"{name.title()}: x", "B: 2")
    for pass_on in (fields.passing, fields.agent_answer, fields.mesh_answer,
                    lambda one: fields.entering(one, ""), lambda one: fields.delivering(one, "")):
        assert shown(pass_on(headers)) == ["A: 1", "B: 2"]


def test_what_connection_names_ends_too_wherever_it_stands() -> None:
    headers = made("X-One: 1", "Connection: close, x-ONE", "X-Two: 2", "Connection: X-Two ,, keep-alive", "X-Three: 3")
    assert shown(fields.passing(headers)) == ["X-Three: 3"]


@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded",
                                  "Idempotency-Key"])
def test_connection_cannot_talk_away_what_the_way_needs(name: str) -> None:
    """Else a client could hide where it comes from, or have its key arrive as none."""
    headers = made(f"{name}: x", f"Connection: {name}")
    assert shown(fields.entering(headers, ""))== [f"{name}: x"]
    assert shown(fields.delivering(headers, "")) == [f"{name}: x"]


def test_forwarded_for_is_appended() -> None:
    assert shown(fields.entering([], "127.0.0.1")) == ["X-Forwarded-For: 127.0.0.1"]
    given = made("x-forwarded-for: 10.0.0.1", "A: 1", "X-FORWARDED-FOR: 10.0.0.2, 10.0.0.3")
    assert shown(fields.delivering(given, "::1")) == [
        "x-forwarded-for: 10.0.0.1", "A: 1", "X-FORWARDED-FOR: 10.0.0.2, 10.0.0.3, ::1"]
    assert shown(fields.entering(made("X-Forwarded-For: "), "127.0.0.1")) == ["X-Forwarded-For: 127.0.0.1"]
    assert shown(given)[0] == "x-forwarded-for: 10.0.0.1", "what came in is not changed"


@pytest.mark.parametrize("name", sorted(name.decode() for name in SIDECAR_ONLY | TARGETING))
def test_what_an_agent_may_not_say(name: str) -> None:
    assert fields.entering(made(f"{name.title()}: x"), "") == []


@pytest.mark.parametrize("name", sorted(name.decode() for name in SIDECAR_ONLY | MESH_ANSWER))
def test_what_an_agents_answer_may_not_say(name: str) -> None:
    assert fields.agent_answer(made(f"{name.title()}: x")) == []


def test_load_there_and_back() -> None:
    lower, _, value = fields.load_field(3, 1, 64, 1.239, 20.5)
    assert (lower, value) == (b"reach-load", b"3 1 64 1239 20500")
    assert fields.read_load(value) == (3, 1, 64, 1239, 20500)


@pytest.mark.parametrize("value", [None, b"", b"1", b"1 2 3 4", b"1 2 3 4 5 6", b"a b c d e", b"1.5 0 1 0 0",
                                   b"-1 0 64 0 0", b"0 -64 64 0 0", b"0 0 64 nan 0", b"0 0 64 0 inf", b"\xff 0 0 0 0",
                                   b"9" * 5000 + b" 0 1 0 0"])
def test_a_load_that_makes_no_sense_is_none(value: bytes | None) -> None:
    assert fields.read_load(value) is None


def test_server_timing() -> None:
    assert fields.server_timing(Timing(1.25, 0.04, 10, 0.0))[2] == b"queue;dur=1.2, agent;dur=0.0, mesh;dur=10.0"


def test_server_timing_tells_what_went_before_the_answered_attempt() -> None:
    assert fields.server_timing(Timing(0.0, 2.0, 1.0, 512.34))[2] == (
        b"queue;dur=0.0, agent;dur=2.0, mesh;dur=1.0, retry;dur=512.3")


def test_what_sidecars_say_to_each_other_stops_before_the_agent() -> None:
    headers = made("Reach-Journal: 1a2b", "Reach-Scope: 3c", "Reach-Caller: a", "X-Own: 1")
    assert shown(fields.delivering(headers, "")) == ["Reach-Caller: a", "X-Own: 1"]


# -- through two sidecars

async def test_a_request_arrives_as_it_was_sent(inner: Mesh) -> None:
    a, b = await inner.pair()
    await inner.ask(a, "/to/summarize/process?a=1", "accept: text/x", "X-Thing: 1", "x-thing: 2", "COOKIE: a=b",
                    "X-Latin: caf\xe9 \xff", "Cookie: c=d", "Content-Type: application/json", "X-Empty: ", body=b"{}")
    got = b.agent.last
    assert (got.method, got.target, got.body) == ("POST", "/process?a=1", b"{}")
    own = {"accept", "x-thing", "cookie", "x-latin", "content-type", "x-empty"}
    assert [line for line in got.headers if line[0].lower() in own] == [
        ("accept", "text/x"), ("X-Thing", "1"), ("x-thing", "2"), ("COOKIE", "a=b"), ("X-Latin", "caf\xe9 \xff"),
        ("Cookie", "c=d"), ("Content-Type", "application/json"), ("X-Empty", "")]


async def test_nothing_that_names_the_target_arrives(inner: Mesh) -> None:
    a, b = await inner.pair()
    for data in ("/to/summarize/x", "http://summarize.reach/x", "/x"):
        host = "summarize.reach" if data == "/x" else None
        answer = await inner.ask(a, data, "Reach-Prefer: cost=low", host=host)
        assert answer.status == 200
    await inner.ask(a, "/x", "Reach-Target: summarize", "Reach-Require: version!=9", "Reach-Agent: c")
    assert len(b.agent.asked) == 4
    for got in b.agent.asked:
        assert got.target == "/x"
        assert got.one("Host") == f"127.0.0.1:{b.agent.port}"
        text = repr(got.headers).lower()
        assert "summarize" not in text
        assert not any(name.lower() in ("reach-target", "reach-agent", "reach-require", "reach-prefer")
                       for name, _ in got.headers)


async def test_what_only_a_sidecar_may_say_is_the_sidecars(inner: Mesh) -> None:
    a, b = await inner.pair(ok(b"", *(f"{name}: forged".encode() for name in SIDECARS_OWN)))
    answer = await inner.ask(a, "/to/summarize/x", *(f"{name}: forged" for name in SIDECARS_OWN))
    assert answer.status == 200, "an agent that says Reach-Refused has not refused"
    assert "forged" not in repr(b.agent.last.headers)
    assert "forged" not in repr(answer.headers)
    assert b.agent.last.one("Reach-Caller") == "a"
    assert b.agent.last.one("Reach-Attempt") == "1"
    assert answer.header("Reach-Agent") == "b"
    assert not any(name.lower() in ("reach-load", "reach-refused", "reach-fault", "reach-journal")
                   for name, _ in answer.headers)


async def test_hop_by_hop_goes_neither_way(inner: Mesh) -> None:
    answer = ok(b"", b"Connection: X-Private, close", b"X-Private: 1", b"Keep-Alive: timeout=5", b"X-Public: 2",
                b"Proxy-Authenticate: Basic")
    a, b = await inner.pair(answer)
    got = await inner.ask(a, "/to/summarize/x", "Connection: x-mine, TE", "X-Mine: 1", "TE: trailers",
                          "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive", "Proxy-Authorization: Basic eDp5",
                          "X-Passes: 3", "Authorization: Bearer kept")
    names = {name.lower() for name, _ in b.agent.last.headers}
    assert not names & {"connection", "te", "keep-alive", "x-mine", "proxy-connection", "proxy-authorization"}
    assert b.agent.last.one("Authorization") == "Bearer kept"
    assert b.agent.last.one("X-Passes") == "3"
    assert got.header("X-Public") == "2"
    assert not {name.lower() for name, _ in got.headers} & {"x-private", "keep-alive", "proxy-authenticate"}


async def test_repeated_fields_of_an_answer_are_kept_apart(inner: Mesh) -> None:
    a, _ = await inner.pair(ok(b"", b"Set-Cookie: a=1", b"set-cookie: b=2", b"X-Latin: caf\xe9",
                               b"Server-Timing: db;dur=3", b"Set-Cookie: a=1"))
    answer = await inner.ask(a, "/to/summarize/x")
    kept = [line for line in answer.headers if line[0].lower() in ("set-cookie", "x-latin", "server-timing")]
    assert kept[:5] == [("Set-Cookie", "a=1"), ("set-cookie", "b=2"), ("X-Latin", "caf\xe9"),
                        ("Server-Timing", "db;dur=3"), ("Set-Cookie", "a=1")]


async def test_a_length_keeps_its_place_and_case_both_ways(inner: Mesh) -> None:
    a, b = await inner.pair(b"HTTP/1.1 200 OK\r\nx-a: 1\r\ncontent-LENGTH: 2\r\nX-B: 2\r\n\r\nhi")
    raw = b"POST /to/summarize/x HTTP/1.1\r\nHost: localhost\r\nX-1: a\r\nconTent-length: 3\r\nX-2: b\r\n\r\nabc"
    answer = await inner.raw(a, raw, method="POST")
    assert [name for name, _ in answer.headers[:3]] == ["x-a", "content-LENGTH", "X-B"]
    seen = [name for name, _ in b.agent.last.headers]
    assert seen[1:4] == ["X-1", "conTent-length", "X-2"]
    assert b.agent.last.one("Content-Length") == "3"


async def test_forwarded_for_through_both(inner: Mesh) -> None:
    a, b = await inner.pair()
    await inner.ask(a, "/to/summarize/x", "X-Forwarded-For: 10.0.0.1", "X-Forwarded-Proto: https",
                    "Connection: X-Forwarded-For")
    assert b.agent.last.one("X-Forwarded-For") == "10.0.0.1, 127.0.0.1, 127.0.0.1"
    assert b.agent.last.one("X-Forwarded-Proto") == "https"


@pytest.mark.parametrize("path", ["/", "/a//b/./../c", "/%2F%2f%20%zz", "/~!$&'()*+,;=:@", "/a?", "/?a=b&&c=%26?/#"[:-1],
                                  "/x?y=[1]{2}|\\^`\"<>", "//host/x", "/" + "a" * 8000])
async def test_odd_paths_are_kept_byte_by_byte(inner: Mesh, path: str) -> None:
    a, b = await inner.pair()
    for target, extra in ((f"/to/summarize{path}", ()), (path, ("Reach-Target: summarize",))):
        assert (await inner.ask(a, target, *extra)).status == 200
        assert b.agent.last.target == path
