"""Gossip between real sidecars: sealed datagrams over UDP, comparisons over the mesh door, forged and foreign bytes."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from harness.sidecars import Mesh, Node, closed_port, ok, until

from reach_core.gossip.compare import CompareError, opening
from reach_core.gossip.compare import encode as encode_step
from reach_core.gossip.datagram import Datagram, encode, pack
from reach_core.gossip.seal import MeshKeys, derive
from reach_core.keyring import Signer
from reach_core.messages import MeshInfo
from reach_core.peer import Entry, Rank, with_signature
from reach_sidecar.membership import spread as spread_file

SIGNER, STRANGER = Signer(b"1" * 32), Signer(b"2" * 32)
SECRET = b"s" * 32
NOW_MS = spread_file.wall_ms()


class World:
    """Sidecars that hold each other's signed entries and the keys of one mesh."""

    def __init__(self, inner: Mesh) -> None:
        self.inner = inner
        self.nodes: dict[str, Node] = {}

    async def add(self, *names: str) -> list[Node]:
        for name in names:
            node = self.nodes[name] = await self.inner.node(name, ok(), "summarize")
            node.sidecar.membership.facts.take("http://control", self.info(), 0.0)
            await node.sidecar.membership.spread.start(node.sidecar._datagrams)
        for node in self.nodes.values():
            for other in self.nodes.values():
                self.tell(node, self.entry(other))
        return [self.nodes[name] for name in names]

    def info(self, version: int = 1) -> MeshInfo:
        return MeshInfo(version=version, keys=[SIGNER.public], mesh_keys={7: derive(SECRET, 7)}, mesh_key=7)

    def entry(self, node: Node, **changes: object) -> Entry:
        return SIGNER.sign(node.entry(**changes))

    def tell(self, node: Node, *entries: Entry) -> None:
        membership = node.sidecar.membership
        membership._changes(membership._table.merge(entries, NOW_MS))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    inner = Mesh(tmp_path)
    yield World(inner)
    await inner.stop()


def known(node: Node, agent_id: str) -> Entry | None:
    return node.sidecar.table.get(agent_id)


def other(agent_id: str = "new", signer: Signer = SIGNER, **changes: object) -> Entry:
    entry = Entry(agent_id=agent_id, gen=NOW_MS, ver=1, rank=Rank.UP, address="127.0.0.1:9")
    return signer.sign(msgspec.structs.replace(entry, **changes))


def learn(node: Node, *entries: Entry) -> None:
    node.sidecar.membership.spread.machine.learn(entries, "control", "control", asyncio.get_running_loop().time(), NOW_MS)


async def test_what_one_learns_the_others_hear(world: World) -> None:
    a, b, c = await world.add("a", "b", "c")
    learn(a, other())
    await until(lambda: known(b, "new") and known(c, "new"))
    assert known(b, "new") == other()
    assert known(b, "new").signature == other().signature  # type: ignore[union-attr]


async def test_what_is_too_large_for_a_datagram_is_fetched(world: World) -> None:
    a, b = await world.add("a", "b")
    learn(a, other(version="x" * 3000))
    await until(lambda: known(b, "new"))


@pytest.mark.parametrize("over", ["udp", "tcp"])
async def test_an_entry_that_was_altered_is_ignored_counted_and_named(world: World, over: str) -> None:
    a, b = await world.add("a", "b")
    forged = with_signature(msgspec.structs.replace(other(), address="6.6.6.6:6"), other().signature)
    spread = b.sidecar.membership.spread
    if over == "udp":
        a.sidecar.membership.spread.send(b.sidecar.addresses["mesh"], pack([forged], "a", 0)[0])
    else:
        world.tell(a, forged)
        await a.sidecar.membership.spread._compare(b.sidecar.addresses["mesh"])
    await until(lambda: spread.machine.counts["entries_forged"] == 1)
    assert known(b, "new") is None
    lines = await b.log(event="forged")
    assert [line["target"] for line in lines] == ["new"]
    assert "altered or made up" in lines[0]["detail"]


async def test_who_signs_with_a_key_that_control_does_not_name_is_not_believed(world: World) -> None:
    a, b = await world.add("a", "b")
    a.sidecar.membership.spread.send(b.sidecar.addresses["mesh"], pack([other(signer=STRANGER)], "a", 0)[0])
    await until(lambda: b.sidecar.membership.spread.machine.counts["entries_unknown_key"] == 1)
    assert known(b, "new") is None


def sealed(datagram: Datagram, secret: bytes = SECRET) -> bytes:
    return MeshKeys({7: derive(secret, 7)}, 7).seal(encode(datagram), os.urandom(12))


async def test_datagrams_of_strangers_are_dropped(world: World) -> None:
    (b,) = await world.add("b")
    news = pack([other()], "a", 0)[0]
    good = sealed(news)
    bad = [b"", b"\0", os.urandom(64), os.urandom(1200), encode(news), sealed(news, b"x" * 32), good[:-1], good + b"x",
           good[:20] + bytes([good[20] ^ 1]) + good[21:], MeshKeys({7: derive(SECRET, 7)}, 7).seal(b"\x93junk", os.urandom(12))]
    host, port = b.sidecar.addresses["mesh"].split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for data in bad:
            stranger.sendto(data, (host, int(port)))
        counts = b.sidecar.membership.spread.counts
        await until(lambda: counts["datagrams_unreadable"] == len(bad))
        assert known(b, "new") is None
        stranger.sendto(good, (host, int(port)))
        await until(lambda: known(b, "new"))
        stranger.sendto(good, (host, int(port)))  # again: nothing happens
        await until(lambda: b.sidecar.membership.spread.machine.counts["entries_known"] == 1)


async def test_a_numbered_datagram_is_acknowledged(world: World) -> None:
    (b,) = await world.add("b")
    host, port = b.sidecar.addresses["mesh"].split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        control.bind(("127.0.0.1", 0))
        control.setblocking(False)
        control.sendto(sealed(pack([other()], "control-1", 0, number=41)[0]), (host, int(port)))
        data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(control, 2000), 5)
    opened = MeshKeys({7: derive(SECRET, 7)}, 7).open(data)
    assert opened is not None
    assert msgspec.msgpack.decode(opened)[:3] == [1, "b", 41]


async def test_a_comparison_gives_both_what_either_lacked(world: World) -> None:
    a, b = await world.add("a", "b")
    for n in range(700):  # more than one exchange carries
        world.tell(a, other(f"of-a-{n}"))
        world.tell(b, other(f"of-b-{n}"))
    for node in (a, b):
        machine = node.sidecar.membership.spread.machine
        machine._for_asked = machine._for_unasked = _Generous()
    for _ in range(2):
        await a.sidecar.membership.spread._compare(b.sidecar.addresses["mesh"])
    assert a.sidecar.table.hash == b.sidecar.table.hash
    assert len(a.sidecar.table) == 1402


class _Generous:
    def take(self, source: str, now_s: float, count: int = 1) -> int:
        return count


async def test_one_source_gets_only_so_many_verified(world: World) -> None:
    a, b = await world.add("a", "b")
    world.tell(a, *(other(f"of-a-{n}") for n in range(900)))
    await a.sidecar.membership.spread._compare(b.sidecar.addresses["mesh"])
    assert len(b.sidecar.table) < 500
    assert b.sidecar.membership.spread.machine.counts["entries_unverified"]


async def test_a_peer_that_is_gone_costs_a_count_and_nothing_else(world: World) -> None:
    (a,) = await world.add("a")
    spread = a.sidecar.membership.spread
    spread.compare(f"127.0.0.1:{closed_port()}")
    await until(lambda: spread.counts["exchanges_failed"] == 1)
    for n in range(20):
        spread.compare(f"127.0.0.1:{closed_port() + n}")
    assert len(spread._under_way) <= spread_file.MAX_UNDER_WAY
    await until(lambda: not spread._under_way)


async def test_who_was_away_too_long_tells_nothing_and_loads_its_table_anew(world: World) -> None:
    a, b = await world.add("a", "b")
    world.tell(a, other("dead"))
    spread = a.sidecar.membership.spread
    spread.absence._heard_s -= 13 * 3600
    learn(b, other("news"))  # which is told to a, and says nothing of what was removed long ago
    with pytest.raises(CompareError):
        await spread.answer(encode_step(opening(b.sidecar.table, "b")), "b")
    assert known(a, "news") is None
    assert known(a, "dead") == other("dead"), "until control answers it goes on with what it has"
    spread.hear_control()
    await until(lambda: known(a, "dead") is None)
    assert len(a.sidecar.table) == 0
    assert [line["status"] for line in await a.log(event="table")] == ["stale"]
    await a.sidecar.membership.spread._compare(b.sidecar.addresses["mesh"])
    assert known(b, "dead") is None
    assert len(a.sidecar.table) == 0, "nothing is taken before the whole table has come"


async def test_news_of_what_holds_mesh_wide_come_with_any_datagram(world: World) -> None:
    a, b = await world.add("a", "b")
    heard: list[int] = []
    b.sidecar.membership.spread.machine._on_notice = heard.append
    a.sidecar.membership.spread.machine.receive(Datagram(0, "control", 0, 99), "control", 0.0, NOW_MS)
    await until(lambda: heard == [99])


async def test_what_happened_is_counted_for_the_metrics(world: World) -> None:
    a, b = await world.add("a", "b")
    learn(a, other())
    await until(lambda: known(b, "new"))
    await a.sidecar.membership.spread._counted(a.sidecar.membership.spread._compare(b.sidecar.addresses["mesh"]))
    spread = b.sidecar.membership.spread
    assert spread.datagrams()["received"] >= 1
    assert spread.entries()["new"] == 1
    assert a.sidecar.membership.spread.exchanges() == {"done": 1, "failed": 0, "skipped": 0}
