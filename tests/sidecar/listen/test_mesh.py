"""The mesh door: calls from other sidecars, and nothing else."""

import pytest
from harness.sidecars import Mesh, ok, request


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
    assert not b.agent.asked


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD"])
async def test_a_running_call_can_only_be_deleted(inner: Mesh, method: str) -> None:
    b = await inner.node("b", ok(), "summarize")
    assert (await inner.raw(b, request("/v1/calls/k", method=method), method=method, door="mesh")).status == 405


@pytest.mark.parametrize("key", ["", "k", "%00", "%ff", "a/b?c", "%", "k" * 10_000])
async def test_deleting_what_does_not_run(inner: Mesh, key: str) -> None:
    b = await inner.node("b", ok(), "summarize")
    answer = await inner.raw(b, request(f"/v1/calls/{key}", method="DELETE"), door="mesh")
    assert (answer.status, answer.code) == (404, "not_found")


async def test_no_tunnels(inner: Mesh) -> None:
    """Neither through the agent nor anywhere else."""
    b = await inner.node("b", ok(), "summarize")
    for fields in ([], ["Reach-Target: summarize", "Reach-Agent: b", "Reach-Caller: a"]):
        client = await inner.connect(b, "mesh")
        await client.send(request("summarize.reach:80", *fields, method="CONNECT"))
        answer = await client.final()
        assert answer.status in (404, 405)
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
