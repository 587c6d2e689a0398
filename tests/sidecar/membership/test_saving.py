import asyncio
import contextlib

import pytest

from reach_core.peer import Entry, Rank
from reach_sidecar.membership import saving
from reach_sidecar.membership.cache import load_table, pack_table
from reach_sidecar.membership.saving import Saving

ENTRY = Entry(agent_id="a", gen=1, ver=1, rank=Rank.UP)


def table(saved_ms=0):
    return pack_table([ENTRY], controls=["http://c"], place=("e", 1), saved_ms=saved_ms, aliases={}, infos={})


@contextlib.asynccontextmanager
async def running(one):
    task = asyncio.create_task(one.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_change_is_on_disk_soon(tmp_path, log, until, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(saving, "SAVE_AFTER_S", 0.01)
    path = tmp_path / "table.json"
    one = Saving(path, table, lambda: True, log)
    async with running(one):
        await asyncio.sleep(0.05)
        assert not path.exists()
        one.note()
        await until(path.exists)
    assert load_table(path, ["http://c"], 0).entries


async def test_what_was_not_written_is_written_at_the_end(tmp_path, log):
    path = tmp_path / "table.json"
    one = Saving(path, table, lambda: True, log)
    await one.finish()
    assert not path.exists()
    one.note()
    await one.finish()
    assert path.exists()


async def test_the_file_says_that_the_table_is_still_good_while_control_answers(tmp_path, log, until,
                                                                               monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(saving, "SAVE_AFTER_S", 0.01)
    monkeypatch.setattr(saving, "SAVE_AT_LEAST_EVERY_S", 0.05)
    path, answers = tmp_path / "table.json", []
    one = Saving(path, table, lambda: bool(answers), log)
    async with running(one):
        await asyncio.sleep(0.2)
        assert not path.exists()
        answers.append(1)
        await until(path.exists)


async def test_a_disk_that_fails_is_told_once(tmp_path, log):
    one = Saving(tmp_path / "gone" / "table.json", table, lambda: True, log)
    for _ in range(3):
        one.note()
        await one.finish()
    assert log.statuses("table") == ["not_saved"]
