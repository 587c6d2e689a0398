import asyncio
import time

import pytest

from reach_control.membership import feed as feed_module
from reach_control.membership.feed import Feed
from reach_core.messages import TableAnswer, decode, read_entries
from reach_core.peer import Entry, Rank
from reach_core.table import PeerTable

NOW_MS = 1_700_000_000_000


def entry(agent_id: str, ver: int = 1) -> Entry:
    return Entry(agent_id=agent_id, gen=NOW_MS, ver=ver, rank=Rank.UP)


@pytest.fixture
def table() -> PeerTable:
    table = PeerTable()
    table.merge([entry("a"), entry("b")], NOW_MS)
    return table


@pytest.fixture
def feed(table: PeerTable) -> Feed:
    return Feed(table, "epoch", {"email.send": ["notify.email"]})


async def ask(feed: Feed, since: int = 0, epoch: str = "epoch", wait_s: float = 0.0) -> TableAnswer:
    return decode(TableAnswer, await feed.answer(since, epoch, wait_s))


def ids(answer: TableAnswer) -> list[str]:
    entries, unreadable = read_entries(answer.entries)
    assert unreadable == 0
    return [one.agent_id for one in entries]


async def test_a_stranger_gets_the_whole_table_and_the_aliases(feed: Feed, table: PeerTable) -> None:
    for since, epoch in ((0, ""), (1, "another"), (99, "epoch"), (-1, "epoch")):
        answer = await ask(feed, since, epoch, wait_s=10)
        assert (answer.full, ids(answer), answer.seq, answer.hash) == (True, ["a", "b"], 2, table.hash)
        assert answer.aliases == {"email.send": ["notify.email"]}


async def test_a_reader_gets_what_came_after(feed: Feed, table: PeerTable) -> None:
    table.merge([entry("c")], NOW_MS)
    feed.publish(table.seq)
    answer = await ask(feed, 2, wait_s=10)
    assert (answer.full, ids(answer), answer.seq, answer.aliases) == (False, ["c"], 3, None)


async def test_other_aliases_reach_those_who_wait_too(feed: Feed) -> None:
    waiting = asyncio.create_task(ask(feed, 2, wait_s=30))
    while not feed.waiting:
        await asyncio.sleep(0)
    feed.rename({"summarize": ["shorten"]}, "second")
    for answer in (await asyncio.wait_for(waiting, 10), await ask(feed, 2, wait_s=30)):
        assert (answer.epoch, answer.full, ids(answer)) == ("second", True, ["a", "b"])
        assert answer.aliases == {"summarize": ["shorten"]}


async def test_nothing_new_is_said_after_the_wait(feed: Feed) -> None:
    started = time.monotonic()
    answer = await ask(feed, 2, wait_s=0.1)
    assert time.monotonic() - started >= 0.09
    assert (answer.full, ids(answer), answer.seq) == (False, [], 2)


async def test_what_is_not_on_disk_is_not_shown(feed: Feed, table: PeerTable) -> None:
    table.merge([entry("a", ver=2), entry("c")], NOW_MS)
    assert ids(await ask(feed, 2)) == []
    feed.publish(table.seq)
    assert ids(await ask(feed, 2)) == ["a", "c"]


async def test_a_whole_table_waits_for_what_is_being_written(
    feed: Feed, table: PeerTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.merge([entry("a", ver=2), entry("b", ver=2)], NOW_MS)
    asyncio.get_running_loop().call_later(0.05, feed.publish, table.seq - 1)
    asyncio.get_running_loop().call_later(0.1, feed.publish, table.seq)
    answer = await ask(feed, 0, "")
    assert (ids(answer), answer.hash) == (["a", "b"], table.hash)

    monkeypatch.setattr(feed_module, "FULL_WAIT_S", 0.01)
    table.merge([entry("c")], NOW_MS)
    answer = await ask(feed, 0, "")  # the disk hangs
    assert (ids(answer), answer.seq) == (["a", "b"], 4)
    assert (await ask(feed, 1)).hash == ""  # the table has gone on


async def test_all_who_wait_are_woken_with_one_encoding(feed: Feed, table: PeerTable) -> None:
    waiting = [asyncio.create_task(feed.answer(2, "epoch", 30)) for _ in range(500)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert feed.waiting == 500
    table.merge([entry("c")], NOW_MS)
    feed.publish(table.seq)
    answers = await asyncio.wait_for(asyncio.gather(*waiting), 5)
    assert all(answer is answers[0] for answer in answers)
    assert feed.waiting == 0


async def test_closing_answers_those_who_wait_and_lets_nobody_wait(feed: Feed) -> None:
    waiting = asyncio.create_task(feed.answer(2, "epoch", 30))
    await asyncio.sleep(0)
    feed.close()
    await asyncio.wait_for(waiting, 1)
    await asyncio.wait_for(feed.answer(2, "epoch", 30), 1)


async def test_a_reader_that_goes_away_is_not_counted(feed: Feed) -> None:
    waiting = asyncio.create_task(feed.answer(2, "epoch", 30))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert feed.waiting == 0


async def test_who_waits_hears_of_a_new_version_of_what_else_holds(feed: Feed) -> None:
    assert (await ask(feed)).info == 0
    waiting = asyncio.create_task(ask(feed, 2, wait_s=30))
    while not feed.waiting:
        await asyncio.sleep(0)
    feed.inform(7)
    answer = await asyncio.wait_for(waiting, 10)
    assert (answer.info, answer.full, ids(answer)) == (7, False, [])
    assert (await ask(feed, 0, "")).info == 7
