"""Keys of whole control nodes: changed while they run, lost, and not to be written."""

import asyncio
import os
import stat
import time
from contextlib import suppress
from typing import Any

import pytest
from harness.control_nodes import FAST, Node, until

from reach_control.app import Control
from reach_control.config import ControlConfig, ControlListenConfig
from reach_control.identity import keys as keys_module
from reach_control.identity.keyfile import KeyFileError
from reach_control.membership import tending
from reach_core.keyring import KEY_ID_BYTES, Keyring, key_id
from reach_core.messages import MeshInfo, decode
from reach_core.peer import Entry
from reach_core.problem import Problem


async def keep(node: Node, agent_ids: list[str]) -> None:
    """Renew their leases until cancelled."""
    while True:
        for agent_id in agent_ids:
            with suppress(Problem):  # not heard of here yet
                node.heartbeat(agent_id)
        await asyncio.sleep(FAST.heartbeat)


def info(node: Node) -> MeshInfo:
    return decode(MeshInfo, node.running._info.encoded)


def entries(node: Node) -> list[Entry]:
    return list(node.table.entries(tombstones=True))


def unverifiable(node: Node, reader: Node) -> list[str]:
    """Agents whose entry at `node` a sidecar of `reader` would not take."""
    keyring = Keyring(info(reader).keys)
    return [entry.agent_id for entry in entries(node) if not keyring.verify(entry)]


async def test_a_key_is_changed_while_everything_goes_on(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "ANNOUNCE_MS", 1000)
    monkeypatch.setattr(tending, "EVERY_S", 0.05)
    monkeypatch.setattr(tending, "MOST_SIGNED_ANEW", 20)
    nodes = await cluster(2)
    one = nodes[0]
    for n in range(40):
        one.register(f"a-{n}")
    one.leave("a-0")
    nodes[1].register("b")
    keeping = asyncio.create_task(keep(one, [f"a-{n}" for n in range(1, 40)] + ["b"]))
    await until(lambda: nodes[0].table.hash == nodes[1].table.hash and len(nodes[1].table) == 40)
    keys = one.running._keys
    (old,) = keys.own_publics()
    vers = {entry.agent_id: entry.ver for entry in entries(one)}
    version = info(one).version
    keys.rotate(time.time_ns() // 1_000_000, after_ms=0)
    (_, new) = keys.own_publics()
    await until(lambda: new in info(one).keys)
    assert old in info(one).keys
    signed = {entry.signature[:KEY_ID_BYTES] for entry in entries(one)}
    assert key_id(new) not in signed, "announced, and nothing is signed with it yet"
    await until(lambda: new in info(nodes[1]).keys)

    while {entry.signature[:KEY_ID_BYTES] for entry in entries(one)} & {key_id(old)}:
        for node in nodes:
            for reader in nodes:
                assert unverifiable(node, reader) == []
        await asyncio.sleep(0.02)
    for name in ("a-1", "a-39"):
        assert one.get(name).ver == vers[name] + 1
        assert one.rank(name) == "up"
    await until(lambda: old not in info(one).keys)
    assert info(one).version > version
    await until(lambda: nodes[0].table.hash == nodes[1].table.hash)
    assert unverifiable(nodes[1], one) == []
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await one.stop()
    await one.start()
    assert one.running._keys.own_publics() == [new]
    assert unverifiable(one, one) == []


async def test_what_was_signed_with_a_lost_key_is_signed_anew(cluster: Any) -> None:
    """The identity is gone and the table is still there: nobody else can vouch for it."""
    (node,) = await cluster(1)
    node.register("a")
    node.register("b")
    node.leave("b")
    await until(lambda: node.status()["snapshot"]["batches"] > 0)
    before = node.running._keys.own_publics()
    await node.stop()
    (node.folder / "identity.json").unlink()
    await node.start()
    assert node.running._keys.own_publics() != before
    assert unverifiable(node, node) == []
    assert (node.rank("a"), node.rank("b"), node.get("a").ver) == ("up", "left", 2)
    await asyncio.sleep(0.1)
    await node.stop()
    await node.start()
    assert node.get("a").ver == 2, "signed anew once"


async def test_its_files_are_for_its_owner_only(cluster: Any) -> None:
    (node,) = await cluster(1)
    assert stat.S_IMODE((node.folder / "identity.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(node.folder.stat().st_mode) == 0o700


async def test_a_node_that_cannot_read_its_identity_does_not_start_with_another(cluster: Any) -> None:
    (node,) = await cluster(1)
    await node.stop()
    (node.folder / "identity.json").write_text("{}")
    with pytest.raises(KeyFileError, match="is damaged"):
        await node.start()
    node.control = None
    (node.folder / "identity.json").unlink()
    await node.start()  # everything was given back


async def test_keys_that_cannot_be_written_are_said_and_used_all_the_same(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = await cluster(1)
    monkeypatch.setattr(keys_module, "save", broken)
    node.running.rename({"email.send": ["notify.email"]})
    node.running._tending.changed()
    assert info(node).aliases == {"email.send": ["notify.email"]}
    assert "identity" in node.events()
    node.register("a")
    assert unverifiable(node, node) == []


def broken(*_: object) -> None:
    raise KeyFileError("The disk is full.")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_state_directory_that_cannot_be_written_says_so(tmp_path: Any) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o500)
    (folder / "lock").touch()
    listen = ControlListenConfig(api="127.0.0.1:0", admin="127.0.0.1:0")
    with pytest.raises(Exception, match=r"Make it writable|disk has space"):
        await Control(ControlConfig(listen=listen, state_dir=str(folder))).start()
