"""What sidecars and control nodes ask at the mesh door besides calls, over real sockets."""

import asyncio

import msgspec
import pytest
from harness.sidecars import Mesh, Node, closed_port, ok, request, says, until

from reach_core.messages import Hello, LookAnswer, LookRequest, ProbeAnswer, decode, encode
from reach_core.peer import owner_of
from reach_sidecar.listen import mesh_questions
from reach_sidecar.listen.mesh_questions import look


def mesh_address(node: Node) -> str:
    return node.sidecar.addresses["mesh"]


async def test_hello_says_whose_sidecar_this_is(inner: Mesh) -> None:
    b = await inner.node("b", ok(), "summarize")
    answer = await inner.raw(b, request("/v1/hello"), door="mesh")
    hello = decode(Hello, answer.body)
    assert (answer.status, hello.agent_id, hello.owner) == (200, "b", owner_of(b.sidecar.membership.instance))


async def test_a_look_sees_an_agent_where_it_is(inner: Mesh) -> None:
    a, b = await inner.node("a", ok()), await inner.node("b", ok(), "summarize")
    body = encode(LookRequest(agent_id="b", address=mesh_address(b)))
    answer = await inner.raw(a, request("/v1/look", method="POST", body=body), door="mesh")
    assert (answer.status, decode(LookAnswer, answer.body)) == (200, LookAnswer(alive=True))


async def test_a_look_takes_no_other_for_it(inner: Mesh) -> None:
    b = await inner.node("b", ok(), "summarize")
    found = await look(LookRequest(agent_id="another", address=mesh_address(b)))
    assert found == LookAnswer(alive=False, detail=f"b is at {mesh_address(b)} now")


@pytest.mark.parametrize("what", ["nobody", "a stopped one", "no sidecar", "no address"])
async def test_a_look_sees_when_nobody_is_there(inner: Mesh, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh_questions, "LOOK_TIMEOUT_S", 0.2)
    address = f"127.0.0.1:{closed_port()}"
    if what == "no sidecar":
        node = await inner.node("x", says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), "summarize")
        address = node.agent.url.removeprefix("http://")
    elif what == "a stopped one":
        server = await asyncio.start_server(lambda reader, writer: asyncio.sleep(30), "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    elif what == "no address":
        address = "nonsense"
    found = await look(LookRequest(agent_id="b", address=address))
    assert isinstance(found, LookAnswer)
    assert not found.alive
    assert found.detail


async def test_a_probe_finds_the_agent_fit_or_makes_it_unfit_at_once(inner: Mesh) -> None:
    b = await inner.node("b", ok(), "summarize")
    answer = await inner.raw(b, request("/v1/probe", method="POST", body=b""), door="mesh")
    assert (answer.status, decode(ProbeAnswer, answer.body)) == (200, ProbeAnswer(fit=True))
    assert not b.sidecar.local.unfit
    await b.agent.close()
    b.sidecar.health._asked_for = None  # as after a while
    answer = await inner.raw(b, request("/v1/probe", method="POST", body=b""), door="mesh")
    assert decode(ProbeAnswer, answer.body) == ProbeAnswer(fit=False)
    assert b.sidecar.local.unfit


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (request("/v1/hello", method="POST", body=b"x"), 405, "method_not_allowed"),
        (request("/v1/look"), 405, "method_not_allowed"),
        (request("/v1/look", method="POST", body=b"{}"), 400, "bad_request"),
        (request("/v1/look", method="POST", body=b"\xff" * 100), 400, "bad_request"),
        (request("/v1/look", method="POST", body=b"x" * 20_000), 413, "body_too_large"),
        (request("/v1/gossip", method="POST", body=b"nonsense"), 400, "bad_request"),
        (request("/v1/gossip", method="POST", body=b""), 400, "bad_request"),
    ],
    ids=["hello", "look", "empty look", "broken look", "long look", "broken gossip", "empty gossip"],
)
async def test_questions_that_make_no_sense(inner: Mesh, raw: bytes, status: int, code: str) -> None:
    b = await inner.node("b", ok(), "summarize")
    answer = await inner.raw(b, raw, door="mesh")
    assert (answer.status, answer.code) == (status, code)
    assert not b.agent.asked


async def test_only_so_many_are_answered_at_once(inner: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mesh_questions.MOST_AT_ONCE, b"/v1/gossip", 2)
    b = await inner.node("b", ok(), "summarize")
    slow = [await inner.connect(b, "mesh") for _ in range(2)]
    for client in slow:
        await client.send(b"POST /v1/gossip HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")
    questions = b.sidecar.questions
    await until(lambda: questions._under_way[b"/v1/gossip"] == 2)
    hello = await inner.raw(b, request("/v1/hello"), door="mesh")
    assert hello.status == 200, "questions of another kind are not in its way"
    answer = await inner.raw(b, request("/v1/gossip", method="POST", body=b"x"), door="mesh")
    assert (answer.status, answer.code) == (503, "backpressure")
    assert msgspec.json.decode(answer.body)["executed"] == "no"
