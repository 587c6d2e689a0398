import asyncio
import io
import json
import random

import pytest

from reach_control.membership.feed import Feed
from reach_control.membership.service import Service
from reach_control.registry.lease import Moment, Terms
from reach_control.registry.registry import Registry
from reach_control.telemetry.log import ControlLog
from reach_core.messages import HeartbeatRequest, LeaveRequest, Load, RegisterRequest
from reach_core.problem import Problem
from reach_core.table import PeerTable


class Node:
    def __init__(self) -> None:
        self.now = Moment(1000.0, 1_700_000_000_000)
        self.out = io.StringIO()
        self.noted = 0
        table = PeerTable()
        registry = Registry("local", Terms(), table, self.now, random.Random(1))
        self.service = Service(registry, Feed(table, "e", {}), lambda: self.now, self.note, ControlLog(out=self.out))

    def note(self) -> None:
        self.noted += 1

    def events(self) -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in self.out.getvalue().splitlines()]
        return [(line["event"], line.get("agent", "")) for line in lines]

    def register(self, agent_id: str = "a", **fields: object) -> None:
        request = {"agent_id": agent_id, "instance": "i", "address": "h:1", "healthy": True} | fields
        self.service.register(RegisterRequest(**request))


def test_an_answer_tells_the_terms_and_the_place_in_the_table() -> None:
    node = Node()
    answer = node.service.register(RegisterRequest(agent_id="a", instance="i", address="h:1", healthy=True))
    assert (answer.status, answer.agent_id, answer.rank) == ("registered", "a", "up")
    assert (answer.lease_ttl_s, answer.heartbeat_s, answer.epoch, answer.seq) == (30.0, 10.0, "e", 1)
    beat = node.service.heartbeat(HeartbeatRequest(agent_id="a", instance="i", healthy=True))
    assert (beat.status, beat.gen, beat.ver, beat.seq) == ("ok", answer.gen, answer.ver, 1)
    assert node.service.leave(LeaveRequest(agent_id="a", instance="i")).status == "left"
    assert node.events() == [("register", "a"), ("leave", "a")]
    assert node.noted == 2


def test_an_answer_has_the_hash_of_what_is_shown_once_all_is() -> None:
    node = Node()
    answer = node.service.register(RegisterRequest(agent_id="a", instance="i", address="h:1", healthy=True))
    assert answer.hash == "", "not on disk yet"
    node.service.feed.publish(node.service.registry.table.seq)
    beat = node.service.heartbeat(HeartbeatRequest(agent_id="a", instance="i", healthy=True))
    assert beat.hash == node.service.registry.table.hash


def test_a_heartbeat_brings_the_loads_asked_for() -> None:
    node = Node()
    node.register("a")
    node.register("b", load=Load(running=2, queued=1, limit=4))
    beat = node.service.heartbeat(HeartbeatRequest(agent_id="a", instance="i", ask=("b", "a", "nobody")))
    assert beat.loads == {"b": Load(running=2, queued=1, limit=4)}


def test_a_refusal_is_counted_and_logged() -> None:
    node = Node()
    node.register()
    with pytest.raises(Problem):
        node.register(instance="other")
    with pytest.raises(Problem):
        node.service.heartbeat(HeartbeatRequest(agent_id="nobody", instance="i"))
    with pytest.raises(Problem):
        node.service.leave(LeaveRequest(agent_id="a", instance="other"))
    assert node.service.refused == {"agent_id_conflict": 2, "register_again": 1}
    assert node.events() == [("register", "a"), ("register", "a"), ("heartbeat", "nobody"), ("leave", "a")]
    assert node.noted == 1


async def test_time_has_its_consequences() -> None:
    node = Node()
    node.register()
    node.service.registry.terms = Terms(ttl_s=0.05)
    watching = asyncio.create_task(node.service.watch_time())
    node.register()  # its lease runs by the new terms
    node.now = Moment(1000.2, 1_700_000_000_200)
    while ("status", "a") not in node.events():
        await asyncio.sleep(0.01)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def test_each_heartbeat_shows_that_this_node_is_there() -> None:
    node, heard = Node(), []
    node.service.on_heartbeat = lambda: heard.append(1)
    node.register("a")
    node.service.heartbeat(HeartbeatRequest(agent_id="a", instance="i"))
    with pytest.raises(Problem):
        node.service.heartbeat(HeartbeatRequest(agent_id="nobody", instance="i"))
    assert len(heard) == 2
