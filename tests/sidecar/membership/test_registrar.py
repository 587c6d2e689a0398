import asyncio
import contextlib

import pytest

from reach_core.messages import Load
from reach_core.peer import Capability
from reach_sidecar.membership.controls import Controls
from reach_sidecar.membership.local import LocalAgent
from reach_sidecar.membership.registrar import Registrar


def agent(**changes):
    fields = {"agent_id": "a", "address": "http://127.0.0.1:9001", "declared": (Capability(name="echo"),)}
    return LocalAgent(**{**fields, **changes})


@contextlib.asynccontextmanager
async def running(local, log, *urls, advertise=lambda: "127.0.0.1:7071"):
    controls = Controls(urls, log)
    registrar = Registrar(controls, local, advertise, "instance", log)
    local.changed.append(registrar.wake)
    task = asyncio.create_task(registrar.run())
    try:
        yield registrar
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await controls.close()


async def test_registers_then_renews_with_load(control, log, until):
    local = agent(running=3, queued=1)
    async with running(local, log, control.url) as registrar:
        await until(lambda: len(control.heartbeats) >= 3)
        assert local.registered
        assert registrar.registered.is_set()
        assert registrar.lease_ttl_s == control.ttl_s
    assert len(control.registrations) == 1
    assert control.registrations[0].address == "127.0.0.1:7071"
    assert control.heartbeats[0].load == Load(running=3, queued=1, limit=64)


async def test_changes_are_told_at_once(control, log, until):
    control.heartbeat_s = 60
    local = agent()
    async with running(local, log, control.url) as registrar:
        await asyncio.wait_for(registrar.registered.wait(), 5)
        local.set_unfit(True)
        await until(lambda: control.heartbeats and control.heartbeats[-1].flags == ("unfit",), 1)
        local.confirm()
        await until(lambda: control.heartbeats[-1].healthy, 1)
        local.declare("a", capabilities=["echo", "sum"])
        await until(lambda: len(control.registrations) == 2, 1)
        first, second = control.registrations
        assert [one.name for one in second.capabilities] == ["echo", "sum"]
        assert (first.gen, second.gen) == (0, 1), "what we were given is ours as long as control knows it"
    assert log.statuses("register") == ["registered", "changed"]


async def test_a_control_node_that_forgot_us_is_told_again(control, log, until):
    local = agent()
    async with running(local, log, control.url):
        await until(lambda: control.heartbeats)
        control.known.clear()
        await until(lambda: len(control.registrations) == 2)
        await until(lambda: local.registered)
    assert log.statuses("register") == ["registered", "again", "changed"]


async def test_a_taken_id_is_reported_once_and_tried_again(control, log, until):
    control.refuse["/v1/register"] = (409, "agent_id_conflict")
    local = agent()
    async with running(local, log, control.url) as registrar:
        await until(lambda: registrar.refusal)
        assert (registrar.refusal.code, registrar.refusal.status) == ("agent_id_conflict", 409)
        assert registrar.refusal.detail == "agent_id_conflict it is."
        await asyncio.sleep(0.3)
        assert log.statuses("register") == ["agent_id_conflict"]
        assert not registrar.registered.is_set()
        control.refuse.clear()
        await asyncio.wait_for(registrar.registered.wait(), 5)
        assert registrar.refusal is None


@pytest.mark.parametrize("local", [agent(agent_id="host", provisional=True), LocalAgent("gateway", provisional=True)])
async def test_settled_is_control_s_word_on_the_agent_as_it_is_now(control, log, local):
    """An agent that gives itself an id which is taken: what was registered before is no answer to that."""
    async with running(local, log, control.url) as registrar:
        await asyncio.wait_for(registrar.settled(), 5)
        assert registrar.registered.is_set()
        control.refuse["/v1/register"] = (409, "agent_id_conflict")
        local.declare("a", address="http://127.0.0.1:9002")
        assert not registrar.registered.is_set(), "at once"
        assert not local.registered
        await asyncio.wait_for(registrar.settled(), 5)
        assert registrar.refusal.agent == "a"
        control.refuse.clear()
        local.provisional = True
        local.declare("a2")
        await asyncio.wait_for(registrar.settled(), 5)
        assert (registrar.refusal, local.registered, registrar.registered.is_set()) == (None, True, True)
        assert control.registrations[-1].agent_id == "a2"


async def test_nothing_is_settled_while_control_is_gone(control, log):
    await control.stop()
    async with running(agent(), log, control.url) as registrar:
        settled = asyncio.create_task(registrar.settled())
        done, _ = await asyncio.wait([settled], timeout=0.3)
        assert not done
        await control.start()
        await asyncio.wait_for(settled, 5)
        assert registrar.registered.is_set()


async def test_one_that_lost_its_id_to_another_stops_advertising(control, log, until):
    local = agent()
    async with running(local, log, control.url) as registrar:
        await until(lambda: local.registered)
        control.refuse = {"/v1/heartbeat": (409, "agent_id_conflict"), "/v1/register": (409, "agent_id_conflict")}
        await until(lambda: not local.registered)
        assert not registrar.registered.is_set()


async def test_control_may_come_late_go_and_come_back(control, log, until):
    await control.stop()
    local = agent()
    async with running(local, log, control.url) as registrar:
        await asyncio.sleep(0.2)
        assert not local.registered
        await control.start()
        await until(lambda: local.registered)
        await control.stop()
        await until(lambda: not registrar._controls.connected)
        assert local.registered, "control is gone, which says nothing about the agent"
        beats = len(control.heartbeats)
        await control.start()
        await until(lambda: len(control.heartbeats) > beats)
    assert [event for _, event, _ in log.events if event != "register"] == [
        "control_lost", "control_found", "control_lost", "control_found"]


async def test_the_next_node_is_taken_without_delay(control, other_control, log, until):
    local = agent()
    async with running(local, log, control.url, other_control.url):
        await until(lambda: control.heartbeats)
        await control.stop()
        await until(lambda: other_control.registrations, 1)


async def test_a_node_that_hangs_is_left(control, other_control, log, until, monkeypatch):
    monkeypatch.setattr("reach_sidecar.membership.controls.TIMEOUT_S", 0.2)
    monkeypatch.setattr(Controls.post, "__defaults__", (0.2,))
    control.hang = True
    async with running(agent(), log, control.url, other_control.url):
        await until(lambda: other_control.registrations, 2)


async def test_a_gateway_registers_nothing_until_an_agent_does(control, log, until):
    local = LocalAgent("host")
    async with running(local, log, control.url) as registrar:
        await asyncio.wait_for(registrar.registered.wait(), 1)
        assert not local.registered
        assert control.registrations == []
        local.declare("a", "http://127.0.0.1:9001", capabilities=["echo"])
        await until(lambda: local.registered)
        assert control.registrations[0].agent_id == "a"


async def test_a_new_id_leaves_the_old_one(control, log, until):
    local = agent(provisional=True)
    async with running(local, log, control.url):
        await until(lambda: local.registered)
        local.declare("b")
        await until(lambda: [one.agent_id for one in control.registrations] == ["a", "b"])
    assert control.left == ["a"]


async def test_loads_of_other_agents_come_with_the_heartbeat(control, log, until):
    control.loads = {"b": Load(running=2, limit=4)}
    got = []
    async with running(agent(), log, control.url) as registrar:
        registrar.ask = lambda: ["b"]
        registrar.on_loads = got.append
        await until(lambda: got)
    assert control.heartbeats[-1].ask == ("b",)
    assert got[0]["b"].running == 2


@pytest.mark.parametrize("is_there", [True, False])
async def test_leaving_takes_no_longer_than_a_second(control, log, until, is_there):
    async with running(agent(), log, control.url) as registrar:
        await until(lambda: control.heartbeats)
        if not is_there:
            await control.stop()
        await asyncio.wait_for(registrar.leave(), 2)
        assert control.left == (["a"] if is_there else [])
        assert log.statuses("leave") == ["left" if is_there else "not_told"]
