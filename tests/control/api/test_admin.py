import asyncio

from reach_control.api.admin import peer_document
from reach_core.peer import Entry, Rank


async def test_peers_are_shown_with_load_and_why_they_are_excluded(node) -> None:
    capability = {"name": "summarize", "aliases": ["text.summarize"], "attributes": {"language": ["zh"]}}
    await node.register("b", capabilities=[capability], load={"running": 1, "queued": 2, "limit": 4})
    await node.register("a", healthy=False)
    await node.register("c", flags=["draining"])
    document = (await node.call("GET", f"{node.admin}/v1/peers")).json
    a, b, c = document["agents"]
    assert (a["agent_id"], a["status"], a["excluded"]["reason"], a["load"]) == ("a", "joining", "agent_down", None)
    assert b["capabilities"] == [capability]
    assert b["excluded"] is None
    assert (b["load"]["running"], b["load"]["queued"], b["load"]["limit"]) == (1, 2, 4)
    assert c["excluded"]["reason"] == "draining"
    assert document["table"]["entries"] == 3
    assert document["table"]["hash"] == (await node.table()).json["hash"]


async def test_the_state_of_the_node(node) -> None:
    await node.register()
    status = (await node.call("GET", f"{node.admin}/v1/status")).json
    assert status["agents"] == {"up": 1}
    assert status["cluster"] == "local"
    assert status["ready"] is True
    assert status["lease"]["ttl"] == 30.0
    assert status["snapshot"]["problem"] is None
    assert status["node"] == {"id": node.control._keys.node, "url": node.api}
    assert status["nodes"] == []
    assert status["frozen"] is None


async def test_other_nodes_are_shown_with_what_is_wrong(start) -> None:
    node = await start(peers=["http://127.0.0.1:1"])
    async with asyncio.timeout(10):
        while not (nodes := (await node.call("GET", f"{node.admin}/v1/status")).json["nodes"])[0]["trouble"]:
            await asyncio.sleep(0.05)
    assert nodes[0]["url"] == "http://127.0.0.1:1"
    assert nodes[0]["reachable"] is False
    metrics = (await node.call("GET", f"{node.admin}/metrics")).json
    assert 'reach_control_node_reachable{node="http://127.0.0.1:1"} 0.0' in metrics


def test_unfit_agents_are_excluded() -> None:
    entry = Entry(agent_id="a", gen=1, ver=1, rank=Rank.UP, flags=("draining", "unfit"))
    assert peer_document(entry)["excluded"]["reason"] == "agent_unfit"
