import asyncio
import contextlib
import time

from reach_core.peer import Rank
from reach_core.table import PeerTable
from reach_sidecar.membership.controls import Controls
from reach_sidecar.membership.sync import CHUNK, TableSync


@contextlib.asynccontextmanager
async def syncing(log, *urls, ttl_s=30.0, table=None, on_changes=lambda changes: None):
    controls = Controls(urls, log)
    table = PeerTable() if table is None else table

    def merge(entries):
        if changes := table.merge(entries, time.time_ns() // 1_000_000):
            on_changes(changes)

    sync = TableSync(controls, table, lambda entries, url: merge(entries), merge, lambda: ttl_s, log)
    task = asyncio.create_task(sync.run())
    try:
        yield sync
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await controls.close()


async def test_the_whole_table_then_what_changes(control, log, until):
    control.put("a")
    table, seen = PeerTable(), []
    async with syncing(log, control.url, table=table, on_changes=seen.extend) as sync:
        await asyncio.wait_for(sync.synced.wait(), 5)
        assert table.hash == control.table.hash
        control.put("b")
        await until(lambda: table.get("b"), 1)
        control.put("b", ver=1, rank=Rank.DOWN)
        await until(lambda: table.get("b").rank == Rank.DOWN, 1)
        assert table.hash == control.table.hash
        await until(lambda: len(control.polls) == 4)
    assert [change.after.agent_id for change in seen] == ["a", "b", "b"]
    assert control.polls[0] == (0, "")
    assert control.polls[1:] == [(1, "first"), (2, "first"), (3, "first")]


async def test_a_large_table_lets_others_have_their_turn(control, log, until):
    for number in range(3 * CHUNK):
        control.put(f"a{number}")
    table = PeerTable()
    async with syncing(log, control.url, table=table) as sync:
        await asyncio.wait_for(sync.synced.wait(), 10)
        assert table.hash == control.table.hash


async def test_goes_on_after_control_was_away(control, log, until):
    table = PeerTable()
    async with syncing(log, control.url, table=table) as sync:
        await asyncio.wait_for(sync.synced.wait(), 5)
        await control.stop()
        control.put("late")
        await control.start()
        await until(lambda: table.get("late"))
        assert control.polls[-1][1] == "first"


async def test_another_node_is_asked_at_once(control, other_control, log, until):
    other_control.epoch = "other"
    other_control.put("b")
    table = PeerTable()
    async with syncing(log, control.url, other_control.url, table=table) as sync:
        await asyncio.wait_for(sync.synced.wait(), 5)
        await until(lambda: len(control.polls) == 2)
        sync._controls.move_on(control.url)  # as a failed heartbeat does, while the poll still hangs there
        await until(lambda: table.get("b"), 1)


async def test_what_control_forgot_is_kept_for_two_leases_and_then_dropped(control, log, until):
    control.put("kept", gen=5)
    control.put("gone", gen=5)
    table, new_epochs = PeerTable(), []
    async with syncing(log, control.url, table=table, ttl_s=0.2) as sync:
        sync.on_new_epoch = lambda: new_epochs.append(1)
        await asyncio.wait_for(sync.synced.wait(), 5)
        control.table, control.epoch = PeerTable(), "second"
        control.put("kept", gen=6)
        await until(lambda: len(new_epochs) == 2)
        began = time.monotonic()
        while time.monotonic() - began < 0.3:
            assert not table.get("gone").is_tombstone
            control.put("kept", gen=6, ver=int((time.monotonic() - began) * 1000))
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        control.put("kept", gen=7)
        await until(lambda: table.get("gone").is_tombstone, 1)
        assert [entry.agent_id for entry in table] == ["kept"]


async def test_a_heartbeat_that_names_our_place_makes_the_table_fresh(control, log):
    async with syncing(log, control.url) as sync:
        await asyncio.wait_for(sync.synced.wait(), 5)
        sync.fresh_at = 0.0
        sync.seen("first", 99, "another hash")
        assert sync.fresh_at == 0.0
        sync.seen(*sync.place, "")
        assert sync.fresh_at > 0


async def test_a_heartbeat_that_has_the_same_table_makes_it_fresh_wherever_it_stands(control, log):
    control.put("a")
    async with syncing(log, control.url) as sync:
        await asyncio.wait_for(sync.synced.wait(), 5)
        sync.fresh_at = 0.0
        sync.seen("another", 99, control.table.hash)
        assert sync.fresh_at > 0


async def test_while_gossip_brings_the_changes_nobody_polls(control, log, until):
    async with syncing(log, control.url) as sync:
        sync.rest(True)  # before the first table: that is asked for all the same
        await asyncio.wait_for(sync.synced.wait(), 5)
        await until(lambda: control.polls)
        await asyncio.sleep(0.05)
        polls = len(control.polls)
        control.put("unheard")
        await asyncio.sleep(0.1)
        assert (len(control.polls), sync._table.get("unheard")) == (polls, None)
        sync.rest(False)
        await until(lambda: sync._table.get("unheard"), 1)
        await until(lambda: len(control.polls) == polls + 2)  # the next one hangs
        sync.rest(True)
        await asyncio.sleep(0.05)
        control.put("unheard.too")
        await asyncio.sleep(0.05)
        assert sync._table.get("unheard.too") is None


async def test_a_table_that_is_no_good_is_asked_for_anew(control, log, until):
    control.put("a")
    wholes = []
    async with syncing(log, control.url) as sync:
        sync.on_whole = lambda: wholes.append(1)
        sync.rest(True)
        await asyncio.wait_for(sync.synced.wait(), 5)
        sync._table.clear()
        sync.begin_again()
        await until(lambda: sync._table.get("a"), 1)
        assert len(wholes) == 2
        assert sync._table.get("a")


async def test_control_may_come_late(control, log, until):
    await control.stop()
    async with syncing(log, control.url) as sync:
        await until(lambda: log.events)
        assert not sync.synced.is_set()
        await control.start()
        await asyncio.wait_for(sync.synced.wait(), 5)


async def test_why_control_refuses_is_said_once(control, log, until):
    control.refuse["/v1/table"] = (403, "not_allowed")
    async with syncing(log, control.url) as sync:
        await until(lambda: sync.trouble)
        assert sync.trouble == "not_allowed it is."
        await until(lambda: len(control.polls) >= 3)
        assert log.statuses("table") == ["not_allowed"]
        control.refuse.clear()
        await asyncio.wait_for(sync.synced.wait(), 5)
        assert sync.trouble is None


async def test_aliases_come_with_a_whole_table_and_go_with_the_next(control, log, until):
    control.aliases = {"email.send": ["notify.email"]}
    control.put("a")
    told = []
    async with syncing(log, control.url) as sync:
        sync.on_aliases = told.append
        await until(lambda: told == [{"email.send": ["notify.email"]}])
        control.put("b")  # a delta says nothing of aliases: they stay
        await until(lambda: len(sync._table) == 2)
        assert len(told) == 1
        control.epoch, control.aliases = "second", {}
        control.put("c")
        await until(lambda: told == [{"email.send": ["notify.email"]}, {}])
