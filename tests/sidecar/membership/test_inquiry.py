import asyncio
import contextlib

import pytest

from reach_core.messages import MeshInfo
from reach_sidecar.membership import inquiry
from reach_sidecar.membership.controls import Controls, Unreachable
from reach_sidecar.membership.facts import MeshFacts
from reach_sidecar.membership.inquiry import Inquiry


@contextlib.asynccontextmanager
async def inquiring(control, log, agents=()):
    facts, told = MeshFacts(lambda aliases: None), []
    controls = Controls([control.url], log, chance=lambda: 0.5)
    asking = Inquiry(facts, controls, agents, lambda: told.append(1))
    task = asyncio.create_task(asking.run())
    try:
        yield asking, facts, told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await controls.close()


async def test_before_the_first_table_it_asks_once(control, log):
    control.info = MeshInfo(version=3, keys=[b"k" * 32])
    async with inquiring(control, log) as (asking, facts, told):
        await asking.ask_first()
        await asking.ask_first()
        assert (facts.version_of(control.url), len(told), control.asked_info) == (3, 1, 1)


async def test_a_control_node_that_knows_no_facts_is_none_the_worse(control, log):
    async with inquiring(control, log) as (asking, facts, _):
        await asking.ask_first()
        assert not facts.is_known


async def test_news_are_fetched_and_each_only_once(control, log, until, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inquiry, "PAUSE_S", 0.01)
    async with inquiring(control, log) as (asking, facts, told):
        control.info = MeshInfo(version=8)
        for _ in range(5):
            asking.hear(9)  # another node's version, say: ours has no such one
        await until(lambda: facts.version_of(control.url) == 8)
        asking.hear(9)
        await asyncio.sleep(0.05)
        assert (len(told), control.asked_info) == (1, 1)


async def test_all_sidecars_hear_at_once_and_do_not_ask_at_once(control, log, monkeypatch: pytest.MonkeyPatch):
    slept = []
    monkeypatch.setattr(inquiry.asyncio, "sleep", lambda s, real=asyncio.sleep: slept.append(s) or real(0))
    control.info = MeshInfo(version=9)
    async with inquiring(control, log, agents=range(10_000)) as (asking, facts, _):
        asking.hear(9)
        async with asyncio.timeout(5):
            while not facts.is_known:
                await asyncio.to_thread(lambda: None)
    assert slept[0] == pytest.approx(5.0)


async def test_a_control_node_that_is_away_is_asked_again(control, log, until):
    control.info = MeshInfo(version=4)
    async with inquiring(control, log) as (asking, facts, _):
        await control.stop()
        with pytest.raises(Unreachable):
            await asking.ask_first()
        asking.hear(4)
        await asyncio.sleep(0.05)
        await control.start()
        await until(lambda: facts.is_known)
