"""Whole control nodes that were away for long: suspended, or with a disk that fails."""

import asyncio
from typing import Any

import pytest
from harness.control_nodes import Node, until

from reach_control import app as app_module
from reach_control.journal.snapshot import Snapshot, SnapshotError
from reach_control.membership.client import Unanswered
from reach_core.gossip.absence import MAX_AWAY_S


def is_quiet(*nodes: Node) -> bool:
    """All have the same, and nothing of it is under way."""
    told = all(link.sent is None and link.acked == node.table.seq
               for node in nodes for link in node.running._nodes.exchange._links.values())
    comparing = any(node.running._nodes._comparing for node in nodes)
    return told and not comparing and len({node.table.hash for node in nodes}) == 1


async def test_one_that_slept_for_half_a_day_forgets_before_it_tells(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A laptop with its lid closed: the process goes on where it was, the others have forgotten what they removed."""
    nodes = await cluster(2)
    for name in "abc":
        nodes[0].register(name)
    awake, asleep = nodes
    await until(lambda: is_quiet(awake, asleep))
    epoch = asleep.running.feed.epoch
    asleep.running._absence._heard_s -= MAX_AWAY_S + 1
    awake.leave("a")
    registry = awake.running._service.registry
    registry.table._remove(registry.table.get("a"))  # as after a day
    await until(lambda: "stale" in asleep.events())
    await until(lambda: awake.table.hash == asleep.table.hash and asleep.rank("b") == "up")
    assert awake.rank("a") is None
    assert asleep.rank("a") is None
    assert asleep.running.feed.epoch != epoch, "gateways load the whole table again"
    assert asleep.events().count("stale") == 1
    await asleep.stop()
    await asleep.start()
    assert asleep.rank("a") is None, "not even from the disk"


async def test_it_forgets_too_where_the_others_cannot_reach_it(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = await cluster(2)
    nodes[0].register("a")
    awake, asleep = nodes
    await until(lambda: is_quiet(awake, asleep))

    async def unreachable(*_: object) -> None:
        raise Unanswered("the way there is closed")

    awake.running._client.push = awake.running._client.compare = unreachable
    asleep.running._absence._heard_s -= MAX_AWAY_S + 1
    registry = awake.running._service.registry
    registry.table._remove(registry.table.get("a"))
    registry.begin_anew()
    await until(lambda: "stale" in asleep.events())
    assert asleep.rank("a") is None
    await asyncio.sleep(0.5)
    assert awake.rank("a") is None


async def test_a_lonely_node_keeps_what_it_has(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (node,) = await cluster(1)
    node.register("a")
    node.running._absence._heard_s -= MAX_AWAY_S + 1
    node.running._heard()
    assert node.rank("a") == "up"


async def test_a_disk_that_fails_does_not_keep_changes_from_spreading(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = await cluster(2)
    nodes[0].register("a")
    await until(lambda: nodes[1].rank("a") == "up")
    right = Snapshot.save

    async def broken(self: Snapshot, *_: object) -> None:
        raise SnapshotError(f"{self.path} is full.")

    monkeypatch.setattr(Snapshot, "save", broken)
    nodes[0].register("b")
    assert await until(lambda: nodes[1].rank("b") == "up") < 1.5
    assert "is full" in nodes[0].status()["snapshot"]["problem"]
    assert nodes[0].running._why_not_ready() is None
    assert nodes[0].events().count("snapshot") == 1
    monkeypatch.setattr(Snapshot, "save", right)
    monkeypatch.setattr("reach_control.membership.keeper.RETRY_S", 0.05)
    nodes[0].register("c")
    await until(lambda: nodes[0].status()["snapshot"]["problem"] is None)
    await nodes[0].stop()
    await nodes[0].start()
    assert [nodes[0].rank(name) for name in "abc"] == ["up"] * 3


async def test_a_task_that_ends_makes_the_node_unready(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (node,) = await cluster(1)
    assert node.running._why_not_ready() is None
    for task in node.running._tasks:
        if task.get_name() == "seeds":
            task.cancel()
    await asyncio.sleep(0.01)
    assert "'seeds'" in str(node.running._why_not_ready())


def test_the_time_of_the_machine_asleep_counts() -> None:
    assert app_module._boot_s() > 0
