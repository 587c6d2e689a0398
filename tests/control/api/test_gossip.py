"""Comparisons and pushes at the API's door: bounded in size and number, and only for those who may come in."""

import asyncio
import io
import random
from typing import Any

import aiohttp
import pytest

from reach_control.api import gossip as gossip_module
from reach_control.membership.client import GOSSIP
from reach_core.gossip.compare import Differences, Transfer, Transferred, decode, encode, opening, transfer
from reach_core.messages import MeshInfo, NodeAnswer, NodePush, unpack_entries
from reach_core.messages import decode as decode_message
from reach_core.messages import encode as encode_message
from reach_core.peer import Entry
from reach_core.table import PeerTable


async def post(node: Any, path: str, data: object, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{node.api}{path}", data=data, headers={"Content-Type": GOSSIP} | sent) as answer,
    ):
        return answer.status, await answer.read(), dict(answer.headers)


async def ask(node: Any, data: bytes) -> bytes:
    status, body, headers = await post(node, "/v1/gossip", data)
    assert (status, headers["Content-Type"]) == (200, GOSSIP), body
    return body


async def differences(node: Any, table: PeerTable) -> Differences:
    return decode(Differences, await ask(node, encode(opening(table, "me"))))


async def test_an_empty_table_is_filled_by_one_comparison(node: Any) -> None:
    for name in ("a", "b", "c"):
        await node.register(name)
    table = PeerTable()
    found = await differences(node, table)
    assert found.differing
    wanted = transfer(table, found, "me", random.Random(1))
    got = decode(Transferred, await ask(node, encode(wanted)))
    entries, unreadable = unpack_entries(got.entries)
    assert unreadable == 0
    assert sorted(one.agent_id for one in entries) == ["a", "b", "c"]
    assert all(node.control._keys.keyring.verify(one) for one in entries)
    table.merge(entries, entries[0].gen)
    assert (await differences(node, table)).same


@pytest.mark.parametrize("data", [b"", b"\x00", b"{}", b"\x93\xa7opening\x01\xa0", bytes(2000)])
async def test_what_is_no_question_is_refused(node: Any, data: bytes) -> None:
    status, body, _ = await post(node, "/v1/gossip", data)
    assert status == 400, body
    status, body, _ = await post(node, "/v1/nodes", data)
    assert status in (400, 403), body


async def test_entries_of_nobody_s_key_are_not_taken(node: Any) -> None:
    made_up = Entry(agent_id="evil", gen=1, ver=1, rank=1, address="127.0.0.1:1")
    packed = bytes(72) + made_up.encoded
    forged = random.Random(1).randbytes(72) + made_up.encoded
    await ask(node, encode(Transfer(sender="me", entries=(packed, forged))))
    assert (await node.table()).json.get("entries", []) == []


async def test_an_altered_entry_is_named_in_the_log(node: Any) -> None:
    said = node.control.log._out = io.StringIO()
    await node.register("a")
    entry = node.control._service.registry.table.get("a")
    altered = Entry(agent_id="a", gen=entry.gen, ver=9, rank=entry.rank, address="127.0.0.1:666")
    await ask(node, encode(Transfer(sender="liar", entries=(entry.signature + altered.encoded,))))
    assert node.control._service.registry.table.get("a") == entry
    assert node.control._tables.counts["entries_forged"] == 1
    assert '"event":"forged"' in said.getvalue()
    assert "liar" in said.getvalue()


async def test_too_much_is_not_read(node: Any) -> None:
    status, _, _ = await post(node, "/v1/gossip", bytes(1024 * 1024 + 1))
    assert status == 413
    status, _, _ = await post(node, "/v1/register", bytes(20_000))
    assert status == 413, "the others have their own bound"


async def test_only_so_many_at_once(node: Any) -> None:
    """Eight slow ones; the ninth is told when to come again, and afterwards there is room."""
    released = asyncio.Event()

    async def slowly() -> Any:
        yield b"\x93"
        await released.wait()

    slow = [asyncio.create_task(post(node, "/v1/gossip", slowly())) for _ in range(gossip_module.MOST_AT_ONCE)]
    empty = encode(opening(PeerTable(), "me"))
    async with asyncio.timeout(10):
        while True:
            status, _, headers = await post(node, "/v1/gossip", empty)
            if status == 503:
                break
            await asyncio.sleep(0.01)
    assert int(headers["Retry-After"]) >= 1
    assert (await node.heartbeat()).status == 404, "heartbeats never wait for it"
    released.set()
    assert {status for status, _, _ in await asyncio.gather(*slow)} == {400}
    await ask(node, empty)


async def test_who_goes_away_makes_room(node: Any) -> None:
    released = asyncio.Event()

    async def slowly() -> Any:
        yield b"\x93"
        await released.wait()

    for _ in range(2 * gossip_module.MOST_AT_ONCE):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(post(node, "/v1/gossip", slowly()), 0.05)
    async with asyncio.timeout(10):
        while (await post(node, "/v1/gossip", encode(opening(PeerTable(), "me"))))[0] != 200:
            await asyncio.sleep(0.02)


async def test_a_body_that_does_not_come_is_not_waited_for(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gossip_module, "READ_S", 0.1)

    async def never() -> Any:
        yield b"x"
        await asyncio.sleep(30)

    status, _, _ = await asyncio.wait_for(post(node, "/v1/gossip", never()), 10)
    assert status == 408


async def test_comparisons_leave_room_for_control_nodes(start: Any) -> None:
    node = await start(peers=["http://127.0.0.1:1"])
    released = asyncio.Event()

    async def slowly() -> Any:
        yield b"x"
        await released.wait()

    slow = [asyncio.create_task(post(node, "/v1/gossip", slowly())) for _ in range(gossip_module.MOST_AT_ONCE)]
    async with asyncio.timeout(10):
        while (await post(node, "/v1/gossip", b""))[0] != 503:
            await asyncio.sleep(0.01)
    assert (await post(node, "/v1/nodes", encode_message(NodePush(node="control-2"))))[0] == 200
    released.set()
    await asyncio.gather(*slow)


async def test_the_token_is_asked_for(start: Any) -> None:
    node = await start(token="secret")
    for path, data in (("/v1/gossip", encode(opening(PeerTable(), "me"))),
                       ("/v1/nodes", encode_message(NodePush(node="control-2")))):
        assert (await post(node, path, data))[0] == 403
    assert (await node.call("GET", f"{node.api}/v1/mesh")).status == 403
    assert (await post(node, "/v1/gossip", encode(opening(PeerTable(), "me")), Reach_Api_Token="secret"))[0] == 200


async def test_another_node_is_told_who_answers(start: Any) -> None:
    node = await start(peers=["http://127.0.0.1:1"])
    status, body, _ = await post(node, "/v1/nodes", encode_message(NodePush(node="control-2", epoch="e")))
    assert status == 200, body
    answer = decode_message(NodeAnswer, body)
    assert answer.node == node.control._keys.node
    assert answer.epoch == node.control.feed.epoch


async def test_what_holds_mesh_wide_is_told(node: Any) -> None:
    answer = await node.call("GET", f"{node.api}/v1/mesh")
    info = decode_message(MeshInfo, node.control._info.encoded)
    assert answer.json["version"] == info.version > 0
    assert (await node.register()).json["info"] == info.version
    assert (await node.heartbeat()).json["info"] == info.version
