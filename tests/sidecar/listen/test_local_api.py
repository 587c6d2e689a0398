import asyncio

import pytest

from reach_core.problem import Problem
from reach_sidecar.listen import local_api


@pytest.mark.parametrize("path", ["/", "/process", "/v2/agents", "/agentsx", "/internal/other", "/to/echo/x", "/v1"])
async def test_other_paths_are_not_ours(stand, path):
    assert await stand.ask("GET", path) is None


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/agents/", 404, "not_found"),
        ("GET", "/v1/agents/a/b", 404, "not_found"),
        ("GET", "/agents", 404, "not_found"),
        ("POST", "/tasks/async", 404, "not_found"),
        ("POST", "/v1/agents", 405, "method_not_allowed"),
        ("GET", "/agents/register", 405, "method_not_allowed"),
        ("DELETE", "/agents/a", 405, "method_not_allowed"),
        ("OPTIONS", "/tasks/run", 405, "method_not_allowed"),
        ("GET", "/v1/agents/nobody", 404, "no_such_agent"),
        ("GET", "/agents/nobody", 404, "no_such_agent"),
        ("GET", "/v1/agents?require==", 400, "bad_request"),
        ("GET", "/v1/agents?capability=%ff", 400, "bad_request"),
        ("GET", "/v1/agents?" + "&".join(f"a{n}=1" for n in range(30)), 400, "bad_request"),
        ("GET", "/v1/wait?timeout=soon", 400, "bad_request"),
        ("POST", "/agents/register", 400, "bad_request"),
        ("POST", "/tasks/run", 400, "bad_request"),
    ],
)
async def test_errors_are_problems_with_a_sentence(stand, method, path, status, code):
    response = await stand.ask(method, path, traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01")
    assert response.status == status
    assert response.header(b"content-type") == b"application/problem+json"
    assert response.header(b"proxy-status").startswith(b"gateway; error=")
    assert response.header(b"reach-trace-id") == b"1" * 32
    got = await stand.json(method, path)
    assert got[1]["type"] == f"urn:reach:{code}"
    assert got[1]["detail"].endswith((".", "?"))
    assert got[1]["executed"] == "no"
    if status == 405:
        assert response.header(b"allow") in (b"GET, HEAD", b"POST")


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"{", "truncated"),
        (b"[1]", "Expected `object`"),
        (b"\xff", "JSON"),
        (b"[" * 100_000, "bytes here|recursion|nested|Expected"),
        ({"agent_id": "a b"}, "agent_id"),
        ({"agent_id": "a"}, "address is missing"),
        ({"agent_id": "a", "address": "ftp://x"}, "address is"),
        ({"agent_id": "a", "address": "http://127.0.0.1:1", "capabilities": ["a\nb"]}, "capabilities"),
        ({"agent_id": "a", "address": "http://127.0.0.1:1", "max_concurrency": 0}, "max_concurrency"),
        (b'{"agent_id": "' + b"a" * 300_000 + b'"}', "262144 bytes"),
    ],
)
async def test_a_body_that_cannot_be_read_says_why(stand, document, reason):
    response = await stand.ask("POST", "/agents/register", document)
    assert response.status in (400, 413)
    status, problem = await stand.json("POST", "/agents/register", document)
    assert status == response.status
    assert any(part in problem["detail"] for part in reason.split("|")), problem["detail"]
    assert stand.local.is_gateway


async def test_an_agent_of_the_articles_registers_itself(stand):
    status, answer = await stand.json("POST", "/agents/register", {
        "agent_id": "writer", "address": "http://127.0.0.1:9002", "health_path": "/health", "max_concurrency": 3,
        "capabilities": ["write", {"name": "edit", "attributes": {"language": "python3", "gpu": True, "v": [1, 2]},
                                   "timeout": "60s", "idempotent": True, "description": "ignored"}],
        "something_else": 1})
    assert (status, answer) == (200, {"status": "registered", "agent_id": "writer", "lease_ttl": 30})
    edit = stand.local.capabilities["edit"]
    assert edit.attributes == {"language": ["python3"], "gpu": ["true"], "v": ["1", "2"]}
    assert (edit.timeout_s, edit.idempotent) == (60.0, True)
    assert stand.local.limits.max_concurrency == 3

    status, shown = await stand.json("GET", "/agents/writer")
    assert status == 200
    assert (shown["status"], shown["current_load"], shown["max_concurrency"]) == ("joining", 0, 3)

    status, problem = await stand.json("POST", "/agents/register", {"agent_id": "b", "address": "http://127.0.0.1:1"})
    assert (status, problem["type"]) == (409, "urn:reach:agent_id_conflict")
    assert "second sidecar" in problem["detail"]


async def test_what_is_too_much_for_the_table_is_refused_and_costs_nothing(agent_stand):
    status, problem = await agent_stand.json("POST", "/agents/register", {
        "agent_id": "a", "capabilities": [f"capability.{number}" * 8 for number in range(100)]})
    assert (status, problem["type"]) == (400, "urn:reach:bad_request")
    assert "declare fewer" in problem["detail"]
    assert list(agent_stand.local.capabilities) == ["echo"]


TAKEN = Problem("agent_id_conflict", "Another process is registered as a.", agent="a")


async def test_control_s_refusal_reaches_the_registering_agent(stand):
    stand.membership.connected = True
    status, _ = await stand.json("POST", "/agents/register", {"agent_id": "a", "address": "http://127.0.0.1:9002"})
    assert status == 200
    stand.verdict = TAKEN
    status, problem = await stand.json("POST", "/agents/register", {"agent_id": "a"})
    assert (status, problem["detail"]) == (409, "Another process is registered as a.")


async def test_an_agent_whose_id_is_taken_may_come_back_under_another(stand):
    stand.membership.connected = True
    stand.membership.registered.set()  # of the gateway, or under the id that was made up
    stand.verdict = TAKEN
    status, _ = await stand.json("POST", "/agents/register", {"agent_id": "a", "address": "http://127.0.0.1:9002"})
    assert status == 409
    stand.verdict = None
    status, _ = await stand.json("POST", "/agents/register", {"agent_id": "a2"})
    assert (status, stand.local.agent_id) == (200, "a2")
    status, _ = await stand.json("POST", "/agents/register", {"agent_id": "a3"})
    assert status == 409


async def test_what_control_said_of_a_former_id_is_not_said_of_this_one(stand, monkeypatch):
    monkeypatch.setattr(local_api, "REGISTER_WAIT_S", 0.0)  # control does not answer in time
    stand.membership.connected = True
    stand.membership.refusal = TAKEN
    for agent_id, expected in (("a2", 200), ("a", 409)):
        stand.local.provisional = True
        register = {"agent_id": agent_id, "address": "http://127.0.0.1:9002"}
        assert (await stand.json("POST", "/agents/register", register))[0] == expected


async def test_registering_does_not_wait_for_a_control_node_that_is_gone(stand, monkeypatch):
    monkeypatch.setattr(local_api, "REGISTER_WAIT_S", 3600.0)
    async with asyncio.timeout(10):
        await stand.json("POST", "/agents/register", {"agent_id": "a", "address": "http://127.0.0.1:9002"})


async def test_heartbeats_of_the_articles(agent_stand, stand):
    beat = {"agent_id": "a", "current_load": 0.5}
    assert await agent_stand.json("POST", "/agents/heartbeat", beat) == (200, {"status": "ok"})
    for one, agent_id in ((agent_stand, "b"), (stand, "gateway")):
        status, problem = await one.json("POST", "/agents/heartbeat", {"agent_id": agent_id})
        assert (status, problem["type"]) == (404, "urn:reach:register_again")


async def test_health(agent_stand):
    agent_stand.put("b", "echo")
    assert await agent_stand.json("GET", "/internal/health") == (
        200, {"status": "ok", "agent_id": "a", "registered": False, "connected": False, "agents": 1})


async def test_head_is_answered_where_get_is(stand):
    for path in ("/v1/agents", "/v1/self", "/v1/watch"):
        assert (await stand.ask("HEAD", path)).status == 200


async def test_wait_blocks_until_there_is_a_table_and_a_registration(agent_stand):
    waiting = asyncio.create_task(agent_stand.json("GET", "/v1/wait?timeout=5s"))
    await asyncio.sleep(0.01)
    agent_stand.membership.synced.set()
    await asyncio.sleep(0.01)
    assert not waiting.done()
    agent_stand.membership.registered.set()
    status, answer = await asyncio.wait_for(waiting, 1)
    assert (status, answer["ready"], answer["agents"]) == (200, True, 0)
    assert 0.01 < answer["waited_s"] < 1


@pytest.mark.parametrize(("is_synced", "missing"), [(False, "no table"), (True, "the agent a is not registered")])
async def test_waiting_in_vain_says_what_is_missing(agent_stand, is_synced, missing):
    if is_synced:
        agent_stand.membership.synced.set()
    agent_stand.membership.problem = "Control cannot be reached."
    status, problem = await agent_stand.json("GET", "/v1/wait?timeout=20ms")
    assert (status, problem["type"], problem["executed"]) == (504, "urn:reach:deadline_exceeded", "no")
    assert missing in problem["detail"]
    assert "Control cannot be reached." in problem["detail"]


async def test_self_may_be_told_by_the_sidecar(agent_stand):
    status, about = await agent_stand.json("GET", "/v1/self")
    assert (status, about["agent_id"], about["agent_address"]) == (200, "a", "http://127.0.0.1:9001")


async def test_running_a_task_goes_through_the_path_of_a_call(stand):
    status, answer = await stand.json("POST", "/tasks/run", {"capability": "echo", "task": {"a": 1}, "timeout": 2})
    assert (status, answer) == (200, {"done": True})
    assert stand.calls[0].header(b"reach-target") == b"echo"


async def test_a_task_that_cannot_be_sent_is_a_bad_request(stand):
    status, problem = await stand.json("POST", "/tasks/run", {"capability": "echo", "task": 1, "timeout": "1x"})
    assert (status, problem["type"]) == (400, "urn:reach:bad_request")
    assert stand.calls == []


async def test_the_description_is_served(stand):
    status, document = await stand.json("GET", "/v1/openapi.json")
    assert (status, document["openapi"]) == (200, "3.1.0")
