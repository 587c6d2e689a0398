"""Keys and secrets that pushes bring count only as far as the nodes of the configuration say the same."""

import asyncio
import io
from pathlib import Path

import pytest

from reach_control.identity.keys import NodeKeys
from reach_control.membership.client import Client, Unanswered
from reach_control.nodes.confirm import SAY_EVERY_S, Confirmation
from reach_control.telemetry.log import ControlLog
from reach_core.messages import MeshInfo, NodePush

NOW_MS = 1_700_000_000_000
URL = "http://two"


class Nodes(Client):
    """Other control nodes by URL, and how often they were asked."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, NodeKeys] = {}
        self.asked = 0
        self.hangs = False

    async def info(self, url: str) -> MeshInfo:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if url not in self.keys:
            raise Unanswered(f"{url} is gone")
        return self.info_of(self.keys[url])

    @staticmethod
    def info_of(keys: NodeKeys) -> MeshInfo:
        mesh_keys, current = keys.mesh_keys(NOW_MS)
        return MeshInfo(version=1, keys=list(keys.keyring.publics), mesh_keys=mesh_keys, mesh_key=current)


class Bench:
    """`mine` is of the node that is told, `theirs` of the one in its `peers`, `evil` of somebody else."""

    def __init__(self, folder: Path) -> None:
        self.mine, self.theirs, self.evil = (
            NodeKeys(folder / name, NOW_MS + offset)
            for name, offset in (("mine.json", 0), ("theirs.json", -5000), ("evil.json", -9000))
        )
        self.nodes = Nodes()
        self.nodes.keys[URL] = self.theirs
        self.out = io.StringIO()
        self.confirmation = Confirmation([URL], self.mine, self.nodes, ControlLog(out=self.out))

    def knows(self, other: NodeKeys) -> bool:
        return set(other.own_publics()) <= self.mine.keyring.publics

    async def learn(self, other: NodeKeys, with_secret: bool = True) -> bool:
        secret, made_ms = other.secret if with_secret else (b"", 0)
        push = NodePush(node=other.node, keys=other.own_publics(), secret=secret, made_ms=made_ms)
        return await self.confirmation.learn(push, NOW_MS)


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_what_a_node_of_the_configuration_says_counts(bench: Bench) -> None:
    assert await bench.learn(bench.theirs)
    assert bench.knows(bench.theirs)
    assert bench.mine.secret == bench.theirs.secret
    assert '"event":"secret"' in bench.out.getvalue()
    assert not await bench.learn(bench.theirs), "nothing new"
    assert bench.nodes.asked == 1, "and nothing to ask"


async def test_a_push_of_anybody_else_brings_nothing_in(bench: Bench) -> None:
    before = bench.mine.secret
    await bench.learn(bench.evil)
    assert not bench.knows(bench.evil)
    assert bench.mine.secret == before
    assert "node_unconfirmed" in bench.out.getvalue()
    assert "write its URL into `peers`" in bench.out.getvalue()


async def test_a_stranger_under_the_name_of_a_known_node_is_one_all_the_same(bench: Bench) -> None:
    await bench.learn(bench.theirs)
    secret, made_ms = bench.evil.secret
    keys = [*bench.theirs.own_publics(), *bench.evil.own_publics()]
    push = NodePush(node=bench.theirs.node, url=URL, keys=keys, secret=secret, made_ms=made_ms)
    assert not await bench.confirmation.learn(push, NOW_MS)
    assert not bench.knows(bench.evil)
    assert bench.mine.secret == bench.theirs.secret


async def test_the_keys_of_one_and_the_secret_of_another_are_two_things(bench: Bench) -> None:
    secret, made_ms = bench.evil.secret
    push = NodePush(node="x", keys=bench.theirs.own_publics(), secret=secret, made_ms=made_ms)
    before = bench.mine.secret
    assert await bench.confirmation.learn(push, NOW_MS)
    assert bench.knows(bench.theirs)
    assert bench.mine.secret == before


async def test_keys_of_nodes_that_are_gone_come_along(bench: Bench, tmp_path: Path) -> None:
    gone = NodeKeys(tmp_path / "gone.json", NOW_MS)
    bench.theirs.learn(gone.own_publics(), NOW_MS)
    await bench.learn(bench.theirs)
    assert bench.knows(gone)


async def test_a_younger_secret_is_not_even_asked_about(bench: Bench) -> None:
    await bench.learn(bench.theirs)
    assert not await bench.confirmation.learn(NodePush(node="x", secret=b"y" * 32, made_ms=NOW_MS), NOW_MS)
    assert bench.nodes.asked == 1


async def test_while_nobody_answers_nothing_is_learned_and_later_it_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    del bench.nodes.keys[URL]
    monkeypatch.setattr("reach_control.nodes.confirm.RECENT_S", 0.0)
    assert not await bench.learn(bench.theirs)
    bench.nodes.hangs = True
    monkeypatch.setattr("reach_control.nodes.confirm.ASK_S", 0.02)
    assert not await asyncio.wait_for(bench.learn(bench.theirs), 2)
    bench.nodes.keys[URL], bench.nodes.hangs = bench.theirs, False
    assert await bench.learn(bench.theirs)
    assert bench.knows(bench.theirs)


async def test_a_flood_of_pushes_is_not_one_of_questions_nor_of_log_lines(bench: Bench) -> None:
    await asyncio.gather(*(bench.learn(bench.evil) for _ in range(200)))
    assert bench.nodes.asked == 1
    assert bench.out.getvalue().count("node_unconfirmed") == 1
    assert SAY_EVERY_S >= 10


async def test_mesh_keys_that_no_secret_gives_confirm_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for mesh_keys in ({}, {-1: b"k" * 32}, {1: b"k" * 32}):
        info = MeshInfo(version=1, mesh_keys=mesh_keys)
        monkeypatch.setattr(Nodes, "info_of", staticmethod(lambda keys, info=info: info))
        monkeypatch.setattr("reach_control.nodes.confirm.RECENT_S", 0.0)
        before = bench.mine.secret
        assert not await bench.learn(bench.theirs)
        assert bench.mine.secret == before
