"""A whole control node in this process, on free ports, with a client for each listener."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from reach_control.app import Control
from reach_control.config import ControlConfig, ControlListenConfig


class Answer(NamedTuple):
    status: int
    json: Any
    headers: dict[str, str]


class Node:
    """`api` and `admin` are base URLs; `call` sends anything anywhere."""

    def __init__(self, control: Control, addresses: dict[str, str], session: aiohttp.ClientSession) -> None:
        self.control = control
        self.addresses = addresses
        self.api = f"http://{addresses['api']}"
        self.admin = f"http://{addresses['admin']}"
        self._session = session

    async def call(self, method: str, url: str, body: object = None, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.request(method, url, data=data, headers=sent) as answer:
            raw = await answer.read()
            document = json.loads(raw) if "json" in answer.content_type else raw.decode()
            return Answer(answer.status, document, dict(answer.headers))

    async def register(self, agent_id: str = "a", instance: str = "i", **fields: object) -> Answer:
        body = {"agent_id": agent_id, "instance": instance, "address": "127.0.0.1:7071", "healthy": True} | fields
        return await self.call("POST", f"{self.api}/v1/register", body)

    async def heartbeat(self, agent_id: str = "a", instance: str = "i", **fields: object) -> Answer:
        body = {"agent_id": agent_id, "instance": instance, "healthy": True} | fields
        return await self.call("POST", f"{self.api}/v1/heartbeat", body)

    async def table(self, query: str = "") -> Answer:
        return await self.call("GET", f"{self.api}/v1/table{query}")


Start = Callable[..., Awaitable[Node]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a node; keyword arguments change its configuration, `token` is its API token."""
    started: list[Control] = []
    async with aiohttp.ClientSession() as session:

        async def start(token: str | None = None, **fields: Any) -> Node:
            listen = ControlListenConfig(**({"api": "127.0.0.1:0", "admin": "127.0.0.1:0"} | fields.pop("listen", {})))
            config = ControlConfig(listen=listen, state_dir=str(tmp_path / "state"), **fields)
            control = Control(config, token)
            addresses = await control.start()
            started.append(control)
            return Node(control, addresses, session)

        yield start
        for control in started:
            await control.stop()


@pytest.fixture
async def node(start: Start) -> Node:
    return await start()
