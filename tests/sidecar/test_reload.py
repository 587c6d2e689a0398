"""What a changed `sidecar.yaml` changes in a sidecar that runs, and what it does not."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from harness.sidecars import Mesh, Node, ok, until

from reach_core.settings.show import show
from reach_sidecar.reload import reread

Changes = dict[str, Any]


async def reload(node: Node, file: Path, agent: Changes | None = None, **sections: Any) -> list[tuple[str, str]]:
    """Write what is in force with these changes, read it again; status and detail of each line logged."""
    before = len(await node.log(event="reload"))
    config = {key: value for key, value in show(node.sidecar.config).items() if value is not None}
    config["agent"] = {**config["agent"], **(agent or {})}
    config["agent"] = {key: value for key, value in config["agent"].items() if value is not None}
    for one in config["agent"]["capabilities"]:
        for name in [name for name, value in one.items() if value is None]:
            del one[name]
    config["agent"]["health"].pop("path", None)
    config["listen"].pop("probe", None)
    await asyncio.to_thread(file.write_text, json.dumps({**config, **sections}))
    await reread(node.sidecar, file)
    return [(line["status"], line["detail"]) for line in (await node.log(event="reload"))[before:]]


@pytest.fixture
async def b(inner: Mesh) -> Node:
    return await inner.node("b", ok(), "work")


async def test_what_the_agent_is_worth_and_can_do(b: Node, tmp_path: Path) -> None:
    await until(lambda: b.sidecar.local.confirmed)
    told: list[int] = []
    b.sidecar.local.changed.append(lambda: told.append(1))
    lines = await reload(b, tmp_path / "b.yaml", {"weight": 3, "max_concurrency": 2, "queue": 1, "version": "2",
                                                  "health": {"interval": "5m"}, "capabilities": [{"name": "rest"}]})
    local = b.sidecar.local
    assert (local.limits.weight, local.limits.max_concurrency, local.limits.queue) == (3.0, 2, 1)
    assert (local.version, local.health.interval_s, [*local.capabilities]) == ("2", 300.0, ["rest"])
    assert told == [1], "the mesh hears of it, once"
    [(status, detail)] = lines
    assert status == "changed"
    assert all(name in detail for name in ("agent.weight", "agent.queue", "agent.capabilities", "agent.health"))


async def test_what_the_agent_declared_itself_stays(b: Node, tmp_path: Path) -> None:
    b.sidecar.local.declare("b", max_concurrency=7, capabilities=["own"])
    await reload(b, tmp_path / "b.yaml", {"weight": 3})
    local = b.sidecar.local
    assert (local.limits.max_concurrency, local.limits.weight, [*local.capabilities]) == (7, 3.0, ["own"])


async def test_log_level_and_doors(inner: Mesh, b: Node, tmp_path: Path) -> None:
    assert (await inner.ask(b, "/v1/self", host="box.example")).status == 421
    await reload(b, tmp_path / "b.yaml", log={"level": "info"}, allowed_hosts=["box.example"])
    assert b.sidecar.log.level == "info"
    assert (await inner.ask(b, "/v1/self", host="box.example")).status == 200


async def test_what_needs_a_restart_is_named_and_changes_nothing(b: Node, tmp_path: Path) -> None:
    before = b.sidecar.config
    lines = await reload(b, tmp_path / "b.yaml", {"id": "c"}, default_timeout="3s", allowed_hosts=[])
    assert [status for status, _ in lines] == ["unchanged", "needs_restart"]
    assert "agent.id, default_timeout cannot change while running" in lines[1][1]
    assert b.sidecar.config == before


@pytest.mark.parametrize("agent", [{"weight": "heavy"}, {"weight": -1, "queue": 1}, {"adress": "http://127.0.0.1:1"}])
async def test_a_mistake_changes_nothing_and_says_where(b: Node, tmp_path: Path, agent: Changes) -> None:
    before, limits = b.sidecar.config, b.sidecar.local.limits
    [(status, detail)] = await reload(b, tmp_path / "b.yaml", agent, allowed_hosts=["box.example"])
    assert status == "refused"
    assert detail.startswith(f"{tmp_path / 'b.yaml'}:1:")
    assert "stays in force" in detail
    assert (b.sidecar.config, b.sidecar.local.limits) == (before, limits)


async def test_a_file_that_is_gone_or_never_was(b: Node, tmp_path: Path) -> None:
    before = b.sidecar.config
    await reread(b.sidecar, tmp_path / "absent.yaml")
    await reread(b.sidecar, None)
    assert [line["status"] for line in await b.log(event="reload")] == ["refused", "unchanged"]
    assert b.sidecar.config == before
