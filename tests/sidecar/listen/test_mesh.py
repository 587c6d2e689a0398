"""The mesh door: calls from other sidecars, and nothing else."""

import pytest
from harness.sidecars import Mesh, hangs, ok, request, until
from sidecar.http1.raw import Answer


def marked(answer: Answer) -> str | None:
    """The fault it names. Every answer tells the load: by that a caller knows a sidecar."""
    assert str(answer.header("Reach-Load")).endswith(" 0 64 0 0")
    return answer.header("Reach-Fault")


async def test_a_call(inner: Mesh) -> None:
    b = await inner.node("b", ok(b"done"), "summarize")
    answer = await inner.raw(b, request("/x?y", "Reach-Target: summarize", "Reach-Agent: b", "Reach-Caller: a"),
                             door="mesh")
    assert (answer.status, answer.body) == (200, b"done")
    assert b.agent.last.target == "/x?y"
    assert answer.header("Reach-Load") is not None, "for the calling sidecar"


@pytest.mark.parametrize("raw", [
    request("/"), request("/v1/agents"), request("/v1/self"), request("/to/summarize/x"), request("/v1/calls"),
    request("/x", host="summarize.reach"), request("http://summarize.reach/x"), request("*", method="OPTIONS"),
    request("http://127.0.0.1:9/x"), request("/agents/register", method="POST", body=b"{}"),
    request("/x", "Reach-Agent: b", "Reach-Caller: a"), request("/v1/drain", method="POST", body=b""),
], ids=lambda raw: raw.split(b"\r\n")[0].decode())
async def test_it_is_no_other_door(inner: Mesh, raw: bytes) -> None:
    b = await inner.node("b", ok(), "summarize")
    inner.share()
    answer = await inner.raw(b, raw, door="mesh")
    assert (answer.status, answer.code, answer.json["executed"]) == (404, "not_found", "no")
    assert marked(answer) == "not_found"
    assert not b.agent.asked


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD"])
async def test_a_running_call_can_only_be_deleted(inner: Mesh, method: str) -> None:
    b = await inner.node("b", ok(), "summarize")
    answer = await inner.raw(b, request("/v1/calls/k", method=method), method=method, door="mesh")
    assert (answer.status, marked(answer)) == (405, "method_not_allowed")


@pytest.mark.parametrize("key", ["", "k", "%00", "%ff", "a/b?c", "%", "k" * 10_000])
async def test_deleting_what_does_not_run(inner: Mesh, key: str) -> None:
    b = await inner.node("b", ok(), "summarize")
    answer = await inner.raw(b, request(f"/v1/calls/{key}", method="DELETE"), door="mesh")
    assert (answer.status, answer.code, marked(answer)) == (404, "not_found", "not_found")


async def test_deleting_what_runs(inner: Mesh) -> None:
    b = await inner.node("b", hangs, "summarize")
    client = await inner.connect(b, "mesh")
    await client.send(inner.delivery(b, method="POST", body=b"work"))
    await until(lambda: b.agent.asked)
    key = b.agent.last.one("Idempotency-Key")
    answer = await inner.raw(b, request(f"/v1/calls/{key}", "Reach-Caller: a", method="DELETE"), method="DELETE",
                             door="mesh")
    assert (answer.status, marked(answer)) == (204, None)
    await inner.idle()


async def test_deleting_what_is_still_of_use(inner: Mesh) -> None:
    """The agent that called gave the key itself, and may come back for the answer."""
    b = await inner.node("b", hangs, "summarize")
    client = await inner.connect(b, "mesh")
    await client.send(inner.delivery(b, key="order-7", method="POST", body=b"work"))
    await until(lambda: b.agent.asked)
    answer = await inner.raw(b, request("/v1/calls/order-7", "Reach-Caller: a", method="DELETE"), method="DELETE",
                             door="mesh")
    assert (answer.status, answer.code, answer.header("Reach-Fault")) == (404, "not_found", "not_found")
    assert "others wait for it" in answer.json["detail"]
    assert b.agent.gone == 0


@pytest.mark.parametrize(("raw", "code"), [
    (b"GET / HTTP/1.1\r\n\r\n", "bad_request"), (b"\x16\x03\x01", "bad_request"), (b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n",
                                                                            "not_implemented"),
    (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n", "uri_too_long"),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 80_000, "header_too_large"),
])
async def test_what_is_refused_unread_is_marked(inner: Mesh, raw: bytes, code: str) -> None:
    b = await inner.node("b", ok(), "summarize")
    answer = await inner.raw(b, raw, door="mesh")
    assert (answer.code, marked(answer)) == (code, code)
    plain = await inner.raw(b, raw)
    assert plain.header("Reach-Fault") is None, "between sidecars only"
    assert plain.header("Reach-Load") is None


async def test_no_tunnels(inner: Mesh) -> None:
    """Neither through the agent nor anywhere else."""
    b = await inner.node("b", ok(), "summarize")
    for fields in ([], ["Reach-Target: summarize", "Reach-Agent: b", "Reach-Caller: a"]):
        client = await inner.connect(b, "mesh")
        await client.send(request("summarize.reach:80", *fields, method="CONNECT"))
        answer = await client.final()
        assert answer.status in (404, 405)
        assert marked(answer) == answer.code
        assert answer.json["executed"] == "no"
    assert not b.agent.asked
    await inner.idle()


async def test_an_agent_that_is_called_by_the_mesh_directly_has_no_caller(inner: Mesh) -> None:
    """Whoever reaches the port may call; what it leaves out is empty and not made up."""
    b = await inner.node("b", ok(), "summarize")
    answer = await inner.raw(b, request("/x", "Reach-Target: @b", "Reach-Agent: b"), door="mesh")
    assert answer.status == 200
    [line] = await b.log(event="deliver")
    assert (line["caller"], line["key"], line["attempt"], line["capability"]) == ("", "", 0, "")
    await inner.idle()
