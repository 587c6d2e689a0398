"""A whole control node and sidecars that live, hang, or are gone: who is suspect when."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from harness.control_nodes import FAST, Node, until
from harness.mesh_door import MeshDoor
from harness.ports import lasting_port


class Mesh:
    """Three agents with open doors, of which those in `renewing` send heartbeats."""

    def __init__(self, node: Node, doors: list[MeshDoor], stacks: list[AsyncExitStack]) -> None:
        self.node = node
        self.doors = doors
        self.stacks = stacks
        self.renewing = [door.name for door in doors]
        self.failures: dict[str, int] = {}
        for door in doors:
            node.register(door.name, address=door.address)

    async def keep(self) -> None:
        while True:
            for name in self.renewing:
                self.node.heartbeat(name, failures=self.failures)
            await asyncio.sleep(FAST.heartbeat)

    async def kill(self, number: int) -> None:
        """No heartbeats, and nobody at the door."""
        self.renewing.remove(self.doors[number].name)
        await self.stacks[number].aclose()


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    port = lasting_port()
    node = Node(tmp_path, 0, [f"http://127.0.0.1:{port}"], [port], None)
    await node.start()
    stacks = [AsyncExitStack() for _ in range(3)]
    doors = [await stack.enter_async_context(MeshDoor(f"agent-{n}").open()) for n, stack in enumerate(stacks)]
    made = Mesh(node, doors, stacks)
    keeping = asyncio.create_task(made.keep())
    await asyncio.sleep(0)
    yield made
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    for stack in stacks:
        await stack.aclose()
    await node.stop()


async def test_one_of_three_that_is_killed_is_seen_within_a_lease_and_three_seconds(mesh: Mesh) -> None:
    for door in mesh.doors:
        door.sees = False
    await mesh.kill(1)
    took_s = await until(lambda: mesh.node.rank("agent-1") == "suspect")
    assert FAST.ttl - FAST.heartbeat - 0.1 <= took_s <= FAST.ttl + 3.0
    assert mesh.node.running._looks.counts == {"dead": 1}
    assert [door.looked_at[0].agent_id for door in (mesh.doors[0], mesh.doors[2])] == ["agent-1", "agent-1"]
    assert [mesh.node.rank(name) for name in mesh.renewing] == ["up", "up"]
    await until(lambda: mesh.node.rank("agent-1") == "down")
    await until(lambda: mesh.node.rank("agent-1") == "left")


async def test_one_that_cannot_reach_control_but_is_there_stays_up(mesh: Mesh) -> None:
    mesh.renewing.remove("agent-1")
    await asyncio.sleep(2.5 * FAST.ttl)
    assert mesh.node.rank("agent-1") == "up"
    assert mesh.node.running._looks.counts["alive"] >= 2
    assert set(mesh.node.running._looks.counts) == {"alive"}


async def test_one_that_hangs_is_given_its_second_and_no_more(mesh: Mesh) -> None:
    for door in mesh.doors:
        door.sees = False
    mesh.doors[1].silent = True
    mesh.renewing.remove("agent-1")
    began = time.monotonic()
    await until(lambda: mesh.node.rank("agent-1") == "suspect")
    assert time.monotonic() - began <= FAST.ttl + 3.0


async def test_a_silent_agent_whose_address_another_has_now_is_suspect(mesh: Mesh) -> None:
    for door in mesh.doors:
        door.sees = False
    mesh.renewing.remove("agent-1")
    mesh.doors[1].name = "another"
    await until(lambda: mesh.node.rank("agent-1") == "suspect")


async def test_one_that_comes_back_is_up_at_once(mesh: Mesh) -> None:
    for door in mesh.doors:
        door.sees = False
    await mesh.kill(1)
    await until(lambda: mesh.node.rank("agent-1") == "suspect")
    mesh.node.heartbeat("agent-1")
    assert mesh.node.rank("agent-1") == "up"


async def test_callers_whose_calls_fail_have_the_agent_checked_by_its_own_sidecar(mesh: Mesh) -> None:
    mesh.doors[2].is_fit = False
    mesh.failures = {"agent-2": 3}  # of two callers: the agent itself says it, too, and does not count
    await until(lambda: "/v1/probe" in mesh.doors[2].asked)
    await until(lambda: mesh.node.running._looks.counts == {"unfit": 1})
    assert mesh.node.rank("agent-2") == "up", "its own sidecar says so, control does not"
    await asyncio.sleep(3 * FAST.heartbeat)
    assert mesh.doors[2].asked.count("/v1/probe") == 1
