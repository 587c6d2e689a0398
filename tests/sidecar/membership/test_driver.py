import asyncio
import time

from reach_core.keyring import Signer
from reach_core.messages import MeshInfo
from reach_core.peer import Capability, Entry, Rank
from reach_core.table import PeerTable
from reach_sidecar.membership.driver import Membership
from reach_sidecar.membership.local import LocalAgent


def member(log, state_dir, *urls, local=None, on_changes=lambda changes: None):
    if local is None:
        local = LocalAgent("a", address="http://127.0.0.1:9001", declared=(Capability(name="echo"),))
    return Membership(urls, local, PeerTable(), lambda: "127.0.0.1:7071", on_changes, log, state_dir)


async def test_from_start_to_leave(control, log, tmp_path, until):
    membership = member(log, tmp_path, control.url)
    assert membership.table_age_s(time.monotonic()) is None
    await membership.start()
    await asyncio.wait_for(membership.registered.wait(), 5)
    await asyncio.wait_for(membership.synced.wait(), 5)
    assert membership.connected
    assert membership.control_url == control.url
    assert membership.problem is None
    assert membership.lease_ttl_s == control.ttl_s
    await until(lambda: membership._table.get("a"))
    await until(lambda: membership.table_age_s(time.monotonic()) < 0.2)
    await membership.stop()
    assert control.left == ["a"]
    assert [task for task in asyncio.all_tasks() if task.get_name() in ("registrar", "table sync")] == []


async def test_a_restarted_sidecar_routes_before_control_answers(control, log, tmp_path, until):
    control.put("other")
    first = member(log, tmp_path, control.url)
    await first.start()
    await until(lambda: first._table.get("a") and first._table.get("other"))
    await first.stop(leave=False)
    await control.stop()

    changes = []
    second = member(log, tmp_path, control.url, on_changes=changes.extend)
    await second.start()
    assert second.synced.is_set()
    assert {change.after.agent_id for change in changes} == {"a", "other"}
    assert 0 <= second.table_age_s(time.monotonic()) < 10
    await until(lambda: second.problem)
    assert "cannot be reached" in second.problem
    await control.start()
    await asyncio.wait_for(second.registered.wait(), 10)
    assert second.problem is None
    assert len({one.instance for one in control.registrations}) == 1, "the same sidecar came back"
    await until(lambda: control.polls[-1][1] == "first")
    await second.stop()


async def test_the_table_is_saved_while_running(control, log, tmp_path, until, monkeypatch):
    monkeypatch.setattr("reach_sidecar.membership.saving.SAVE_AFTER_S", 0.01)
    membership = member(log, tmp_path, control.url)
    await membership.start()
    await until(lambda: (tmp_path / "table.json").exists())
    await membership.stop(leave=False)


async def test_a_directory_that_cannot_be_written_costs_only_the_cache(control, log, tmp_path):
    (tmp_path / "file").write_text("in the way")
    membership = member(log, tmp_path / "file", control.url)
    await membership.start()
    await asyncio.wait_for(membership.registered.wait(), 5)
    await asyncio.wait_for(membership.synced.wait(), 5)
    await membership.stop()
    assert "not_saved" in log.statuses("table")


async def test_stopping_is_quick_while_control_is_gone(log, tmp_path):
    membership = member(log, tmp_path, "http://127.0.0.1:1")
    await membership.start()
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await membership.stop()
    assert time.monotonic() - began < 1.5


async def test_without_control_nodes_there_is_nothing_to_wait_for(log, tmp_path):
    membership = member(log, tmp_path)
    await membership.start()
    assert membership.synced.is_set()
    assert membership.registered.is_set()
    assert membership.control_url is None
    await membership.stop()


async def test_aliases_and_their_changes_survive_a_restart_without_control(control, log, tmp_path, until):
    control.aliases = {"email.send": ["notify.email"]}
    first, told = member(log, tmp_path, control.url), []
    first.on_aliases = told.append
    await first.start()
    await until(lambda: told == [control.aliases])
    control.epoch, control.aliases = "second", {"email.send": ["mail.send"]}
    control.put("x")
    await until(lambda: len(told) == 2)
    await first.stop(leave=False)
    await control.stop()

    second, told = member(log, tmp_path, control.url), []
    second.on_aliases = told.append
    await second.start()
    assert told == [{"email.send": ["mail.send"]}]
    await second.stop(leave=False)


async def test_from_cache_until_control_confirms_it(control, log, tmp_path, until):
    first = member(log, tmp_path, control.url)
    assert not first.from_cache
    await first.start()
    await until(lambda: first._table.get("a"))
    assert not first.from_cache
    await first.stop(leave=False)
    await control.stop()

    second = member(log, tmp_path, control.url)
    await second.start()
    assert second.from_cache
    await control.start()
    await until(lambda: not second.from_cache)
    await second.stop()


async def test_what_is_said_while_there_is_no_table(control, log, tmp_path, until):
    await control.stop()
    membership = member(log, tmp_path, control.url)
    await membership.start()
    assert membership.missing_table == (
        f"This sidecar has no table of agents: the control node at {control.url} has not been reached. Start it with "
        "`reach control`, or correct `control:` in the configuration.")
    await until(lambda: membership.problem)
    assert f"{control.url} has not been reached. The control node {control.url} cannot be reached: " in (
        membership.missing_table)
    control.refuse["/v1/table"] = (403, "not_allowed")
    await control.start()
    await until(lambda: membership.connected and membership._sync.trouble)
    assert membership.missing_table.endswith("has not sent it yet. not_allowed it is.")
    await membership.stop()


async def test_a_defect_of_a_listener_does_not_end_the_table_sync(control, log, tmp_path, until, monkeypatch):
    monkeypatch.setattr("reach_sidecar.membership.supervise.PAUSE_S", 0.0)
    seen = []

    def listener(changes):
        seen.extend(change.after.agent_id for change in changes)
        if len(seen) == 1:
            raise KeyError("a defect")

    control.put("other")
    membership = member(log, tmp_path, control.url, on_changes=listener)
    await membership.start()
    try:
        await asyncio.wait_for(membership.synced.wait(), 10)
        control.put("later")
        await until(lambda: "later" in seen)
    finally:
        await membership.stop()


async def test_a_gateway_reads_the_table_again_once_it_knows_whose_signatures_count(control, log, tmp_path, until):
    """It was away while control was replaced: what it has on disk names another key."""
    old, new = Signer(b"1" * 32), Signer(b"2" * 32)
    control.info = MeshInfo(version=1, keys=[old.public], mesh_keys={1: b"k" * 32}, mesh_key=1)
    gateway = member(log, tmp_path, control.url, local=LocalAgent("gateway"))
    await gateway.start()
    await until(lambda: gateway.facts.is_known)
    await gateway.stop()
    control.epoch, control.table = "second", PeerTable()
    control.merge(new.sign(Entry(agent_id="late", gen=time.time_ns() // 1_000_000, ver=1, rank=Rank.UP, address="h:1")))
    control.info = MeshInfo(version=2, keys=[new.public], mesh_keys={1: b"k" * 32}, mesh_key=1)
    again = member(log, tmp_path, control.url, local=LocalAgent("gateway"))
    await again.start()
    await until(lambda: again._table.get("late"))
    await again.stop()
