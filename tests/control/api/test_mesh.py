import asyncio
import json
import time

import pytest

from reach_control.api import mesh as mesh_module
from reach_control.membership import feed as feed_module
from reach_core.messages import RegisterRequest
from reach_core.peer import Capability


async def test_register_renew_leave(node) -> None:
    registered = await node.register(capabilities=[{"name": "summarize", "aliases": ["text.summarize"]}])
    assert registered.status == 200
    assert registered.json["status"] == "registered"
    assert registered.json["lease_ttl_s"] == 30.0
    renewed = await node.heartbeat(load={"running": 1, "queued": 0, "limit": 4})
    assert (renewed.status, renewed.json["status"]) == (200, "ok")
    table = (await node.table()).json
    assert table["full"] is True
    assert [entry[0] for entry in table["entries"]] == ["a"]
    left = await node.call("POST", f"{node.api}/v1/leave", {"agent_id": "a", "instance": "i"})
    assert left.json == {"status": "left", "agent_id": "a"}
    gone = await node.heartbeat()
    assert (gone.status, gone.json["type"]) == (404, "urn:reach:register_again")


async def test_a_second_process_is_refused(node) -> None:
    await node.register()
    second = await node.register(instance="other")
    assert (second.status, second.json["type"], second.json["agent"]) == (409, "urn:reach:agent_id_conflict", "a")
    assert "its lease of 30 s" in second.json["detail"]
    assert second.headers["Proxy-Status"].startswith("reach-control; error=")
    assert (await node.register(instance="other", takeover=True)).status == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/register", b"", 400, "RegisterRequest"),
        ("/v1/register", b"{", 400, "RegisterRequest"),
        ("/v1/register", b"[]", 400, "Expected `object`"),
        ("/v1/register", b"\xff\xfe", 400, "RegisterRequest"),
        ("/v1/register", {"agent_id": "a"}, 400, "instance"),
        ("/v1/register", {"agent_id": "a b", "instance": "i", "address": "h:1"}, 400, "not an agent id"),
        ("/v1/register", {"agent_id": "a", "instance": "i", "address": "h"}, 400, "not host:port"),
        ("/v1/register", {"agent_id": "a", "instance": "i", "address": "h:1", "protocol": 9}, 400, "upgrade the older"),
        ("/v1/register", b" " * 16_385, 413, "16 KiB"),
        ("/v1/heartbeat", {"agent_id": "a"}, 400, "HeartbeatRequest"),
        ("/v1/leave", {"agent_id": 7, "instance": "i"}, 400, "LeaveRequest"),
    ],
)
async def test_bad_messages_are_explained(node, path: str, body: object, status: int, says: str) -> None:
    answer = await node.call("POST", node.api + path, body)
    assert answer.status == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert says in answer.json["detail"]
    assert len(answer.json["trace_id"]) == 32


@pytest.mark.parametrize("query", ["?since=x", "?wait=25", "?wait=soon", "?since=1&wait=-1s"])
async def test_bad_queries_are_explained(node, query: str) -> None:
    answer = await node.table(query)
    assert answer.status == 400
    assert "/v1/table?since=42" in answer.json["detail"]


async def test_other_paths_and_methods(node) -> None:
    assert (await node.call("GET", f"{node.api}/v1/other")).json["type"] == "urn:reach:not_found"
    wrong = await node.call("GET", f"{node.api}/v1/register")
    assert (wrong.status, wrong.headers["Allow"]) == (405, "POST")
    assert (await node.call("GET", f"{node.api}/livez")).status == 200
    assert (await node.call("GET", f"{node.api}/readyz")).status == 200


async def test_two_hundred_who_wait_are_woken_by_one_change(node) -> None:
    await node.register("first")
    place = (await node.table()).json
    query = f"?since={place['seq']}&epoch={place['epoch']}&wait=25s"
    waiting = [asyncio.create_task(node.table(query)) for _ in range(80)]
    raw = [asyncio.create_task(_raw_poll(node.addresses["api"], query)) for _ in range(120)]
    while (await node.call("GET", f"{node.admin}/v1/status")).json["waiting"] < 200:
        await asyncio.sleep(0.02)
    changed = time.monotonic()
    await node.register("second")
    answers = [answer.json for answer in await asyncio.gather(*waiting)] + list(await asyncio.gather(*raw))
    assert time.monotonic() - changed < 3
    for answer in answers:
        assert "full" not in answer
        assert [entry[0] for entry in answer["entries"]] == ["second"]
    assert (await node.call("GET", f"{node.admin}/v1/status")).json["waiting"] == 0


async def test_a_reader_that_goes_away_stops_waiting(node) -> None:
    place = (await node.table()).json
    query = f"?since={place['seq']}&epoch={place['epoch']}&wait=25s"
    waiting = asyncio.create_task(_raw_poll(node.addresses["api"], query))
    while (await node.call("GET", f"{node.admin}/v1/status")).json["waiting"] < 1:
        await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    while (await node.call("GET", f"{node.admin}/v1/status")).json["waiting"]:
        await asyncio.sleep(0.01)


async def test_a_node_that_stops_answers_those_who_wait(node) -> None:
    place = (await node.table()).json
    query = f"?since={place['seq']}&epoch={place['epoch']}&wait=25s"
    waiting = asyncio.create_task(node.table(query))
    while (await node.call("GET", f"{node.admin}/v1/status")).json["waiting"] < 1:
        await asyncio.sleep(0.01)
    started = time.monotonic()
    await node.control.stop()
    assert (await waiting).status == 200
    assert time.monotonic() - started < 2.5


async def _raw_poll(address: str, query: str) -> dict[str, object]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET /v1/table{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
    finally:
        writer.close()
    return json.loads(answer.partition(b"\r\n\r\n")[2])


async def slow_reader(node, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Asks, and reads nothing of the answer."""
    host, _, port = node.addresses["api"].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {node.addresses['api']}\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


async def test_a_herd_that_wants_the_whole_table_takes_turns(node, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = node.control.feed
    feed._places = asyncio.Semaphore(2)
    monkeypatch.setattr(feed_module, "WHOLE_WAIT_S", 0.2)
    monkeypatch.setattr(mesh_module, "SEND_S", 1.0)
    attributes = {f"name-{n}": ["x" * 60] * 4 for n in range(8)}
    for n in range(2500):  # more than the buffers of a connection on loopback hold
        node.control._service.register(RegisterRequest(
            agent_id=f"a-{n}", instance="i", address="h:1", healthy=True,
            capabilities=(Capability(name="work", attributes=attributes),)))
    await asyncio.wait_for(node.table(), 10)
    slow = [await slow_reader(node, "/v1/table") for _ in range(2)]
    async with asyncio.timeout(10):
        while not feed._places.locked():
            await asyncio.sleep(0.01)
    refused = await node.table()
    assert (refused.status, refused.headers["Retry-After"]) == (503, "3")
    known = await node.table(f"?since={feed.visible}&epoch={feed.epoch}")
    assert (known.status, known.json.get("full", False)) == (200, False), "who has the table is not in the way"
    assert (await node.heartbeat("a-1")).status == 200
    async with asyncio.timeout(10):  # who does not read loses the connection
        while (await node.table()).status != 200:
            await asyncio.sleep(0.05)
    for _, writer in slow:
        writer.close()


async def test_those_who_read_all_get_it(node) -> None:
    for n in range(200):
        await node.register(f"a-{n}", capabilities=[{"name": "work", "attributes": {"x": ["y" * 2000]}}])
    answers = await asyncio.gather(*(node.table() for _ in range(100)))
    assert {answer.status for answer in answers} == {200}
    assert {len(answer.json["entries"]) for answer in answers} == {200}
