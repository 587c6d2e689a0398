"""What each path of the admin door answers, and to whom."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from reach_core.door import Door
from reach_core.problem import Problem
from reach_sidecar.listen.admin_ready import Readiness
from reach_sidecar.listen.admin_routes import Routes
from reach_sidecar.listen.admin_sources import Sources
from reach_sidecar.telemetry.line import Line
from reach_sidecar.telemetry.log import LogWriter
from reach_sidecar.telemetry.metrics import Metrics
from reach_sidecar.telemetry.stderr import StderrSink


class Quiet(StderrSink):
    def write(self, batch: list[Line]) -> None:
        """Nowhere."""


class World:
    def __init__(self) -> None:
        self.readiness = Readiness(True, [])
        self.drained = 0
        self.fail = False
        self.log = LogWriter("a", sink=Quiet())
        self.metrics = Metrics()
        self.base = ""

    def peers(self, query: Mapping[str, str]) -> dict[str, Any]:
        if self.fail:
            raise RuntimeError("broken inside")
        if query.get("capability") == "none":
            raise Problem("bad_request", "No.")
        return {"agents": [{"agent_id": "b"}], "table": {"entries": 1}, "query": dict(query)}

    def drain(self) -> None:
        self.drained += 1

    async def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with aiohttp.ClientSession() as client, client.request(
            method, self.base + path, headers=named
        ) as answer:
            text = await answer.text()
            return answer.status, answer.content_type, await answer.json(content_type=None) if text[:1] == "{" else text


async def serve(world: World, token: str | None = None) -> AsyncIterator[World]:
    sources = Sources(
        log=world.log, metrics=world.metrics, ready=lambda: world.readiness, peers=world.peers,
        about=lambda: {"agent_id": "a"}, config=lambda: {"join": {"token": "(hidden)"}}, drain=world.drain,
        version="0.1.0",
    )  # fmt: skip
    server = TestServer(Routes(sources, Door(), token).application())
    await server.start_server()
    world.base = str(server.make_url("")).rstrip("/")
    yield world
    await server.close()
    world.log.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async for served in serve(World()):
        yield served


@pytest.fixture
async def locked() -> AsyncIterator[World]:
    async for served in serve(World(), "s3cret"):
        yield served


async def test_health(world: World) -> None:
    assert await world.get("/livez") == (200, "text/plain", "alive\n")
    assert await world.get("/readyz") == (200, "application/json", {"ready": True, "reasons": []})
    world.readiness = Readiness(False, ["draining"])
    assert await world.get("/readyz") == (503, "application/json", {"ready": False, "reasons": ["draining"]})
    assert await world.get("/readyz", Accept="text/plain") == (503, "text/plain", "not ready\ndraining\n")


async def test_documents(world: World) -> None:
    for path in ("/v1/peers", "/v1/agents"):
        status, _, document = await world.get(f"{path}?capability=x&require=a%3Db")
        assert (status, document["query"]) == (200, {"capability": "x", "require": "a=b"})
    assert (await world.get("/v1/self"))[2] == {"agent_id": "a"}
    assert (await world.get("/v1/config"))[2] == {"join": {"token": "(hidden)"}}


async def test_metrics(world: World) -> None:
    world.metrics.observe_call("out", "summarize", 200, "success", 0.1)
    status, content_type, text = await world.get("/metrics")
    assert (status, content_type) == (200, "text/plain")
    assert 'reach_calls_total{capability="summarize",outcome="success",side="out",status="2xx"} 1.0' in text
    assert 'reach_log_lines_lost_total{sink="store"} 0.0' in text


async def test_drain_only_by_post(world: World) -> None:
    assert (await world.get("/v1/drain"))[0] == 405
    assert world.drained == 0
    assert await world.get("/v1/drain", "POST") == (202, "application/json", {"status": "draining"})
    assert world.drained == 1


async def test_errors_are_problems(world: World) -> None:
    for path, status, code in [("/nowhere", 404, "not_found"), ("/v1/logs?x=1", 400, "bad_request")]:
        answer = await world.get(path)
        assert answer[:2] == (status, "application/problem+json")
        assert answer[2]["type"] == f"urn:reach:{code}"
    assert (await world.get("/v1/peers?capability=none"))[2]["detail"] == "No."
    world.fail = True
    status, _, problem = await world.get("/v1/peers")
    assert (status, problem["type"]) == (500, "urn:reach:internal_error")
    assert "broken inside" not in str(problem)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Host": "evil.example"}, 421, "bad_host"),
        ({"Origin": "https://evil.example"}, 403, "not_allowed"),
        ({"Sec_Fetch_Site": "cross-site"}, 403, "not_allowed"),
    ],
)
async def test_web_pages_stay_out(world: World, headers: dict[str, str], status: int, code: str) -> None:
    for path, method in (("/livez", "GET"), ("/v1/drain", "POST"), ("/nowhere", "GET")):
        answer = await world.get(path, method, **headers)
        assert (answer[0], answer[2]["type"]) == (status, f"urn:reach:{code}")
    assert world.drained == 0


async def test_a_token_is_asked_for_where_it_is_set(locked: World) -> None:
    assert (await locked.get("/livez"))[0] == (await locked.get("/readyz"))[0] == 200
    for wrong in ({}, {"Reach_Api_Token": "guess"}, {"Reach_Api_Token": "\xe9"}, {"Authorization": "Bearer x"}):
        status, _, problem = await locked.get("/v1/peers", **wrong)
        assert (status, problem["type"]) == (403, "urn:reach:not_allowed")
    assert (await locked.get("/v1/peers", Reach_Api_Token="s3cret"))[0] == 200
    assert (await locked.get("/metrics", Authorization="Bearer s3cret"))[0] == 200
