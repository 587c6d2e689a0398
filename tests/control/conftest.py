from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from harness.control_nodes import Node
from harness.ports import lasting_port

Cluster = Callable[..., Awaitable[list[Node]]]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """`await cluster(3, started=2)`: so many nodes, of which so many run."""
    nodes: list[Node] = []

    async def make(count: int, started: int | None = None, token: str | None = None) -> list[Node]:
        ports = [lasting_port() for _ in range(count)]
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        nodes.extend(Node(tmp_path, number, urls, ports, token) for number in range(count))
        for node in nodes[: count if started is None else started]:
            await node.start()
        return nodes

    yield make
    for node in nodes:
        await node.stop()
