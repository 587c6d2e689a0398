"""What other daemons answer, or fail to: a sentence each time, and never another exception."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from harness.mesh_door import MeshDoor
from harness.ports import lasting_port

from reach_control.membership import client as client_module
from reach_control.membership.client import GOSSIP, Client, Unanswered
from reach_core.messages import LookRequest, NodeAnswer, NodePush, encode


@pytest.fixture
async def door() -> AsyncIterator[MeshDoor]:
    async with MeshDoor("a").open() as opened:
        yield opened


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    made = Client("secret token")
    yield made
    await made.close()
    await made.close()


Question = Callable[[Client, str], Awaitable[object]]
TO_SIDECARS: dict[str, Question] = {
    "hello": lambda client, address: client.hello(address),
    "look": lambda client, address: client.look(address, LookRequest(agent_id="b", address="127.0.0.1:1")),
    "probe": lambda client, address: client.probe(address, 1.0),
}


@pytest.mark.parametrize("name", TO_SIDECARS)
async def test_sidecars_are_asked(client: Client, door: MeshDoor, name: str) -> None:
    await TO_SIDECARS[name](client, door.address)
    assert door.asked == [f"/v1/{name}"]
    assert "Reach-Api-Token" not in door.headers[0], "the token is for control nodes"


@pytest.mark.parametrize("name", TO_SIDECARS)
@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff\xfe", b"{}" + b" " * 200_000])
async def test_what_is_no_answer_is_unanswered(client: Client, door: MeshDoor, name: str, raw: bytes) -> None:
    door.raw = raw
    with pytest.raises(Unanswered):
        await TO_SIDECARS[name](client, door.address)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:99999", "no such host:1", "[::1:1", "a\x00b:1", "é" * 80 + ":1", ""])
async def test_an_address_that_is_none_is_unanswered(client: Client, address: str) -> None:
    with pytest.raises(Unanswered):
        await client.hello(address)


async def test_nobody_there_is_unanswered(client: Client) -> None:
    with pytest.raises(Unanswered):
        await client.hello(f"127.0.0.1:{lasting_port()}")


async def test_one_that_hangs_is_left(client: Client, door: MeshDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "HELLO_S", 0.1)
    door.silent = True
    with pytest.raises(Unanswered, match=r"did not answer within 0\.1 s"):
        await asyncio.wait_for(client.hello(door.address), 3)


async def test_other_nodes_get_the_token(client: Client, door: MeshDoor) -> None:
    door.gossip = encode(NodeAnswer(node="control-2", epoch="e"))
    answer = await client.push(f"http://{door.address}", NodePush(node="control-1"))
    assert (answer.node, answer.epoch) == ("control-2", "e")
    assert door.headers[0]["Reach-Api-Token"] == "secret token"


async def test_a_refusal_is_told_as_it_is(client: Client, door: MeshDoor) -> None:
    door.status, door.gossip = 403, b'{"detail":"Send the value of REACH_API_TOKEN."}'
    with pytest.raises(Unanswered, match=r"403.*REACH_API_TOKEN"):
        await client.push(f"http://{door.address}", NodePush(node="control-1"))


async def test_gossip_has_its_own_content_type(client: Client, door: MeshDoor) -> None:
    door.gossip = b"answer"
    assert await client.compare(f"http://{door.address}", b"question") == b"answer"
    assert door.bodies == [b"question"]
    assert door.headers[0]["Content-Type"] == GOSSIP
    assert await client.tell(door.address, b"news") == b"answer"
    assert "Reach-Api-Token" not in door.headers[1]
    assert door.headers[1]["Connection"] == "close"


async def test_too_long_an_answer_is_not_read(client: Client, door: MeshDoor) -> None:
    door.gossip = bytes(2 * 1024 * 1024)
    with pytest.raises(Unanswered, match="more than"):
        await client.compare(f"http://{door.address}", b"question")


async def test_redirects_lead_nowhere(client: Client, door: MeshDoor) -> None:
    door.status = 302
    with pytest.raises(Unanswered, match="302"):
        await client.compare(f"http://{door.address}", b"question")
