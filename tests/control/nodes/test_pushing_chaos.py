"""Three whole control nodes, killed and started again in any order, while agents come, renew and go: nobody who left
comes back, in the end all tables are the same and true, and nobody who renews is ever suspect, unless the machine is late.
"""

import asyncio
import json
import os
import random
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from harness.control_nodes import Node, until

from reach_control.config import LeaseConfig
from reach_core.problem import Problem

LEASE = LeaseConfig(heartbeat=0.5, ttl=3.0, down=6.0, forget=12.0, cooldown=0.5)
STEPS = 6
LATE_S = 0.3


class Owners:
    """Agents, each renewed at whichever node runs."""

    def __init__(self, nodes: list[Node], chance: random.Random) -> None:
        self.nodes = nodes
        self.chance = chance
        self.alive: set[str] = set()
        self.left: set[str] = set()
        self.made = 0

    def node(self) -> Node | None:
        running = [node for node in self.nodes if node.control is not None and node.control._is_ready]
        return self.chance.choice(running) if running else None

    def come(self, node: Node) -> None:
        name = f"a-{self.made}"
        self.made += 1
        node.register(name, instance=name)
        self.alive.add(name)

    def go(self, node: Node) -> None:
        name = self.chance.choice(sorted(self.alive))
        if node.get(name) is None:
            return  # not heard of there yet: its leave would be no news there
        self.alive.discard(name)
        self.left.add(name)
        node.leave(name, instance=name)

    async def renew(self) -> None:
        while True:
            for name in sorted(self.alive):
                node = self.node()
                if node is None:
                    continue
                try:
                    node.heartbeat(name, instance=name)
                except Problem as problem:
                    assert problem.code == "register_again", problem
                    with suppress(Problem):
                        node.register(name, instance=name)
            await asyncio.sleep(LEASE.heartbeat)


class Lag:
    """How late this machine itself was, at worst: what a node does not get to do in time is not its mistake."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + 0.02
            await asyncio.sleep(0.02)
            self.worst_s = max(self.worst_s, loop.time() - due_s)


def suspected(node: Node) -> list[str]:
    lines = [json.loads(line) for line in node.out.getvalue().splitlines()]
    return [line["agent"] for line in lines if line["event"] == "status" and line["level"] == "warn"]


@pytest.mark.parametrize("seed", [int(os.environ.get("SEED", "1"))])
async def test_any_order_of_deaths(cluster: Any, seed: int) -> None:
    print(f"SEED={seed}")
    chance = random.Random(seed)
    nodes: list[Node] = await cluster(3, started=0)
    for node in nodes:
        node.config = msgspec.structs.replace(node.config, lease=LEASE)
        await node.start()
    owners = Owners(nodes, chance)
    for n in range(20):
        owners.come(nodes[n % 3])
    renewing, lag = asyncio.create_task(owners.renew()), Lag()
    watching = asyncio.create_task(lag.watch())
    try:
        for _ in range(STEPS):
            victim = chance.choice(nodes)
            await victim.stop()
            for _ in range(chance.randrange(6)):
                node = owners.node()
                if node is not None:
                    chance.choice((owners.come, owners.go))(node)
            await asyncio.sleep(chance.uniform(0.1, 1.5))
            await victim.start()
            await asyncio.sleep(chance.uniform(0.0, 0.7))
        assert not renewing.done(), renewing.exception()

        def is_true() -> bool:
            for node in nodes:
                found = {entry.agent_id: entry.rank.label for entry in node.table.entries(tombstones=True)}
                if any(found.get(name) != "up" for name in owners.alive):
                    return False
                if any(found.get(name) not in ("left", None) for name in owners.left):
                    return False
            return len({node.table.hash for node in nodes}) == 1

        await until(is_true, 40)
        if lag.worst_s < LATE_S:
            assert [suspected(node) for node in nodes] == [[], [], []]
    finally:
        renewing.cancel()
        watching.cancel()
        await asyncio.gather(renewing, watching, return_exceptions=True)
