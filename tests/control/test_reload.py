"""What a changed `control.yaml` changes in a node that runs, and what it does not."""

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from reach_control.app import Control
from reach_control.config import load_control
from reach_control.reload import reread
from reach_control.telemetry.log import ControlLog
from reach_core.messages import MeshInfo, TableAnswer, decode


class Node:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "control.yaml"
        self.known = {"listen": {"api": "127.0.0.1:0", "admin": "127.0.0.1:0"}, "state_dir": str(folder / "state")}
        self.write()
        self.control = Control(load_control(self.file))
        self.out = io.StringIO()
        self.control.log = ControlLog(out=self.out)

    def write(self, **sections: Any) -> None:
        self.file.write_text(json.dumps(self.known | sections))

    async def reload(self, **sections: Any) -> list[dict[str, Any]]:
        self.write(**sections)
        self.out.truncate(self.out.seek(0))
        await reread(self.control, self.file)
        return [json.loads(line) for line in self.out.getvalue().splitlines()]

    async def aliases(self) -> dict[str, list[str]] | None:
        feed = self.control.feed
        return decode(TableAnswer, await feed.answer(feed.visible, "", 0.0)).aliases


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    one = Node(tmp_path)
    await one.control.start()
    yield one
    await one.control.stop()


async def test_aliases_and_log_level(node: Node) -> None:
    lines = await node.reload(aliases={"email.send": ["notify.email"]}, log={"level": "debug"})
    assert [(line["event"], line["level"]) for line in lines] == [("reload", "info")]
    assert "aliases, log.level changed" in lines[0]["detail"]
    assert await node.aliases() == {"email.send": ["notify.email"]}
    assert node.control.log.level == "debug"


async def test_sidecars_are_told_of_other_aliases_at_once(node: Node) -> None:
    version = node.control._info.version
    await node.reload(aliases={"email.send": ["notify.email"]})
    info = decode(MeshInfo, node.control._info.encoded)
    assert info.aliases == {"email.send": ["notify.email"]}
    assert info.version > version
    assert node.control._seeding.seeds.notice == node.control.feed.info == info.version
    await node.reload(aliases={"email.send": ["notify.email"]})
    assert node.control._info.version == info.version, "nothing new"


async def test_what_needs_a_restart_is_named(node: Node) -> None:
    lines = await node.reload(cluster="other")
    assert "cluster cannot change while running" in lines[-1]["detail"]
    assert node.control.config.cluster == "local"


async def test_a_mistake_changes_nothing_and_says_where(node: Node) -> None:
    before = node.control.config
    lines = await node.reload(aliases={"email.send": ["notify.email"]}, lease={"ttl": "1s"})
    assert lines
    assert all(line["level"] == "error" and f"{node.file}:1:" in line["detail"] for line in lines)
    assert all("stays in force" in line["detail"] for line in lines)
    assert node.control.config == before
    assert not await node.aliases()


async def test_without_a_file(node: Node) -> None:
    await reread(node.control, None)
    assert "without a file" in node.out.getvalue()
