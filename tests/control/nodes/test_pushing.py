"""Whole control nodes with real sockets in one process: equals that tell each other everything."""

import asyncio
import os
import random
import time
from typing import Any

import aiohttp
import pytest
from harness.control_nodes import FAST, Node, until

from reach_control.membership.client import Unanswered
from reach_core.keyring import Signer
from reach_core.messages import MeshInfo, NodePush, decode, encode
from reach_core.peer import Entry, Rank, pack_entry


def same(*nodes: Node) -> bool:
    return len({node.table.hash for node in nodes}) == 1


async def post(node: Node, push: NodePush) -> tuple[int, bytes]:
    async with aiohttp.ClientSession() as session, session.post(f"{node.url}/v1/nodes", data=encode(push)) as answer:
        return answer.status, await answer.read()


async def keep(agent_ids: list[str], where: Any) -> None:
    """Renew these agents' leases at the node that `where()` gives, until cancelled."""
    while True:
        for agent_id in agent_ids:
            where().heartbeat(agent_id)
        await asyncio.sleep(FAST.heartbeat)


async def test_what_one_decides_all_know_within_a_second(cluster: Any) -> None:
    nodes = await cluster(3)
    nodes[0].register("a")
    took_s = await until(lambda: all(node.rank("a") == "up" for node in nodes))
    assert took_s < 3.0, "the first meeting included"
    nodes[1].register("b")
    assert await until(lambda: all(node.rank("b") == "up" for node in nodes)) < 1.0
    nodes[2].leave("a")
    assert await until(lambda: all(node.rank("a") == "left" for node in nodes)) < 1.0
    await until(lambda: same(*nodes))


async def test_they_share_one_secret_and_know_each_others_keys(cluster: Any) -> None:
    nodes = await cluster(3)
    await until(lambda: len({node.running._keys.secret for node in nodes}) == 1)
    await until(lambda: len({node.running._keys.keyring.publics for node in nodes}) == 1)
    assert len(nodes[0].running._keys.keyring.publics) == 3
    infos = [decode(MeshInfo, node.running._info.encoded) for node in nodes]
    assert len({tuple(info.keys) for info in infos}) == len({tuple(info.mesh_keys.items()) for info in infos}) == 1
    before = nodes[1].running._keys.secret
    await nodes[1].stop()
    await nodes[1].start()
    assert nodes[1].running._keys.secret == before, "it is on disk"
    assert len(nodes[1].running._keys.keyring.publics) == 3


async def test_a_heartbeat_at_one_counts_at_all_and_a_dead_node_costs_no_agent(cluster: Any) -> None:
    nodes = await cluster(2)
    agent_ids = [f"a-{n}" for n in range(5)]
    for agent_id in agent_ids:
        nodes[0].register(agent_id)
    await until(lambda: same(*nodes) and len(nodes[1].table) == 5)
    at = nodes[0]
    keeping = asyncio.create_task(keep(agent_ids, lambda: at))
    try:
        await asyncio.sleep(2.5 * FAST.ttl)
        assert [nodes[1].rank(agent_id) for agent_id in agent_ids] == ["up"] * 5
        assert "status" not in nodes[1].events()
        at = nodes[1]
        await nodes[0].stop()
        await asyncio.sleep(2.5 * FAST.ttl)
        assert [nodes[1].rank(agent_id) for agent_id in agent_ids] == ["up"] * 5
        assert nodes[1].status()["nodes"][0]["reachable"] is False
        await nodes[0].start()
        await until(lambda: same(*nodes) and nodes[1].status()["nodes"][0]["reachable"])
        assert [nodes[0].rank(agent_id) for agent_id in agent_ids] == ["up"] * 5
        assert nodes[1].events().count("node_lost") == 1
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_what_happened_while_one_was_away_it_learns(cluster: Any) -> None:
    nodes = await cluster(2)
    for n in range(30):
        nodes[0].register(f"a-{n}")
    await until(lambda: len(nodes[1].table) == 30 and same(*nodes))
    await nodes[1].stop()
    for n in range(10):
        nodes[0].leave(f"a-{n}")
    for n in range(300):
        nodes[0].register(f"b-{n}")
    await nodes[1].start()
    assert len(nodes[1].table) == 30, "it serves what it knew at once"
    await until(lambda: same(*nodes))
    assert nodes[1].rank("a-1") == "left"
    assert nodes[1].rank("b-299") == "up"


async def test_one_that_lost_everything_gets_it_back(cluster: Any) -> None:
    nodes = await cluster(2)
    for n in range(50):
        nodes[0].register(f"a-{n}")
        nodes[1].register(f"b-{n}")
    await until(lambda: len(nodes[1].table) == 100 and same(*nodes))
    await nodes[1].stop()
    for file in nodes[1].folder.iterdir():
        file.unlink()
    await nodes[1].start()
    await until(lambda: len(nodes[1].table) == 100 and same(*nodes))
    verify = nodes[1].running._keys.keyring.verify
    mine = [entry for entry in nodes[1].table if not verify(entry)]
    assert mine == [], "what its former key signed counts while the others name that key"


async def test_a_forged_push_changes_nothing(cluster: Any) -> None:
    nodes = await cluster(2)
    nodes[0].register("a")
    await until(lambda: same(*nodes) and len(nodes[1].table) == 1)
    evil = Signer(random.Random(1).randbytes(32))
    real = nodes[0].get("a")
    assert real is not None
    down = Entry(agent_id="a", gen=real.gen + 1, ver=1, rank=Rank.DOWN, address="127.0.0.1:666")
    altered = Entry(agent_id="a", gen=real.gen + 2, ver=1, rank=Rank.UP, address="127.0.0.1:666")
    altered.__dict__["signature"] = real.signature
    entries = [pack_entry(evil.sign(down)), pack_entry(altered), pack_entry(down), b"", b"nonsense" * 20]
    before, secret = nodes[1].running._keys.keyring.publics, nodes[1].running._keys.secret
    for name in ("control-evil", nodes[0].running._keys.node):
        push = NodePush(node=name, url=nodes[0].url, epoch="e", since=0, seq=5, entries=entries, keys=[evil.public],
                        secret=b"e" * 32, made_ms=1)
        status, _ = await post(nodes[1], push)
        assert status == 200
    assert nodes[1].get("a") == real
    assert nodes[1].running._keys.keyring.publics == before
    assert nodes[1].running._keys.secret == secret
    assert {"node_unconfirmed", "forged"} <= set(nodes[1].events())
    nodes[0].register("b")
    await until(lambda: nodes[1].rank("b") == "up" and same(*nodes))


async def test_a_node_without_peers_takes_nothing(cluster: Any) -> None:
    (node,) = await cluster(1)
    status, body = await post(node, NodePush(node="control-2"))
    assert status == 403
    assert b"`peers`" in body


async def test_a_node_that_is_not_in_their_list_is_told_so(cluster: Any) -> None:
    nodes = await cluster(2, started=1)
    lonely = nodes[1]
    nodes[0].running._nodes._urls = []
    await lonely.start()
    await until(lambda: "403" in lonely.status()["nodes"][0]["trouble"])
    assert "`peers`" in lonely.status()["nodes"][0]["trouble"]


async def test_the_token_is_brought_and_asked_for(cluster: Any) -> None:
    nodes = await cluster(2, token="secret")
    nodes[0].register("a")
    await until(lambda: nodes[1].rank("a") == "up")
    assert (await post(nodes[1], NodePush(node="control-2")))[0] == 403
    nodes[1].token = "other"
    await nodes[1].stop()
    await nodes[1].start()
    await until(lambda: "REACH_API_TOKEN" in nodes[0].status()["nodes"][0]["trouble"])


async def test_its_own_address_in_the_list_is_found_out(cluster: Any) -> None:
    (node,) = await cluster(1, started=0)
    node.config = type(node.config)(listen=node.config.listen, peers=[node.url], state_dir=node.config.state_dir)
    await node.start()
    await until(lambda: "this node itself" in node.status()["nodes"][0]["trouble"])


async def test_an_address_that_is_in_the_list_twice_is_told_once(cluster: Any) -> None:
    nodes = await cluster(2, started=1)
    twice = nodes[1]
    url = nodes[0].url
    twice.config = type(twice.config)(listen=twice.config.listen, peers=[url, f"{url}/"],
                                      state_dir=twice.config.state_dir)
    await twice.start()
    assert [one["url"] for one in twice.status()["nodes"]] == [url]
    await until(lambda: twice.status()["nodes"][0]["reachable"])


async def test_an_agent_lives_where_it_is_heard(cluster: Any) -> None:
    """Two nodes that lose each other: each keeps its own agent, and both are whole when they meet again."""
    nodes = await cluster(2)
    nodes[0].register("a")
    nodes[1].register("b")
    await until(lambda: same(*nodes) and len(nodes[0].table) == 2)
    keeping = [asyncio.create_task(keep([name], lambda node=node: node)) for name, node in zip("ab", nodes, strict=True)]
    try:
        for node in nodes:
            node.running._nodes._client.push = unreachable
        await until(lambda: nodes[0].rank("b") in ("suspect", "down"))
        await until(lambda: nodes[1].rank("a") in ("suspect", "down"))
        assert (nodes[0].rank("a"), nodes[1].rank("b")) == ("up", "up")
        for node in nodes:
            del node.running._nodes._client.push
        await until(lambda: same(*nodes) and {node.rank(name) for node in nodes for name in "ab"} == {"up"})
    finally:
        for task in keeping:
            task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)


async def unreachable(*_: object) -> None:
    raise Unanswered("the network is cut")


async def test_a_mistake_in_one_loop_is_logged_and_does_not_end_it(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = await cluster(2)
    await until(lambda: nodes[0].status()["nodes"][0]["reachable"])
    exchange = nodes[0].running._nodes.exchange
    monkeypatch.setattr("reach_control.nodes.pushing.PAUSE_S", 0.01)
    right = exchange.push
    exchange.push = lambda *_: 1 / 0
    await until(lambda: "internal" in nodes[0].events())
    exchange.push = right
    nodes[0].register("a")
    await until(lambda: nodes[1].rank("a") == "up")
    assert nodes[0].running._why_not_ready() is None


async def test_a_stop_is_clean_while_everything_is_under_way(cluster: Any) -> None:
    nodes = await cluster(3)
    for n in range(100):
        nodes[n % 3].register(f"a-{n}")
    await asyncio.wait_for(nodes[0].stop(), 5)
    await asyncio.wait_for(asyncio.gather(nodes[1].stop(), nodes[2].stop()), 8)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []


async def test_one_that_was_away_for_half_a_day_forgets_before_it_tells(cluster: Any) -> None:
    """What was removed meanwhile, and forgotten, must not come back through it."""
    nodes = await cluster(2)
    for name in "abc":
        nodes[0].register(name)
    await until(lambda: same(*nodes) and len(nodes[1].table) == 3)
    await nodes[1].stop()
    long_ago = time.time() - 13 * 3600
    for file in nodes[1].folder.glob("table.sqlite*"):
        os.utime(file, (long_ago, long_ago))
    nodes[0].leave("a")
    registry = nodes[0].running._service.registry
    registry.table._remove(registry.table.get("a"))  # as after a day
    await nodes[1].start()
    assert nodes[1].rank("a") is None
    await until(lambda: same(*nodes) and nodes[1].rank("b") == "up")
    assert nodes[0].rank("a") is None
    await nodes[1].stop()
    await nodes[1].start()
    assert nodes[1].rank("a") is None, "not even from the disk"


async def test_one_that_was_away_and_reaches_nobody_serves_what_it_has(cluster: Any) -> None:
    nodes = await cluster(2)
    nodes[1].register("a")
    await until(lambda: same(*nodes) and nodes[0].rank("a") == "up")
    for node in nodes:
        await node.stop()
    long_ago = time.time() - 13 * 3600
    for file in nodes[1].folder.glob("table.sqlite*"):
        os.utime(file, (long_ago, long_ago))
    await nodes[1].start()
    assert nodes[1].rank("a") == "up"
