import asyncio
import time

import orjson
import pytest

from reach_core.peer import Rank
from reach_sidecar.http1.body import BodyError
from reach_sidecar.listen import watch as module


class Reader:
    """Reads one stream; `events` are `(event, id, document)`."""

    def __init__(self, response):
        self.response = response
        self.text = b""

    async def events(self, count, within_s=3.0):
        deadline = time.monotonic() + within_s
        while self.text.count(b"\ndata: ") < count:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                self.text += await self.response.body.read()
        found = []
        for block in self.text.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "data" in fields:
                found.append((fields["event"], fields["id"], orjson.loads(fields["data"])))
        return found

    async def nothing(self, for_s=0.1):
        await asyncio.sleep(for_s)
        assert b"data:" not in self.response.body.take()


async def watch(stand, query="", **headers):
    return Reader(await stand.ask("GET", f"/v1/watch{query}", **headers))


def names(events):
    return [(kind, document["agent_id"]) for kind, _, document in events]


async def test_begins_with_everyone_and_goes_on_with_what_changes(stand):
    stand.put("a", "echo")
    stand.put("b", "echo", rank=Rank.DOWN)
    reader = await watch(stand)
    assert reader.response.header(b"content-type") == b"text/event-stream"
    assert names(await reader.events(2)) == [("up", "a"), ("down", "b")]
    assert reader.text.startswith(b"retry: ")
    stand.put("c", "echo")
    assert names(await reader.events(3))[2:] == [("up", "c")]
    stand.put("a", "echo", ver=1, flags=("unfit",))
    assert names(await reader.events(4))[3:] == [("down", "a")]
    stand.put("a", "echo", ver=2)
    stand.remove("c")
    assert sorted(names(await reader.events(6))[4:]) == [("down", "c"), ("up", "a")]
    events = await reader.events(6)
    gone = next(document for _, _, document in events[4:] if document["agent_id"] == "c")
    assert gone["status"] == "left"
    assert gone["excluded"]["reason"] == "agent_down"
    numbers = [int(event_id.partition("-")[2]) for _, event_id, _ in events]
    assert numbers == sorted(numbers)


async def test_load_is_a_change(stand, monkeypatch):
    monkeypatch.setattr(module, "SWEEP_S", 0.02)
    stand.put("a", "echo")
    reader = await watch(stand)
    await reader.events(1)
    stand.view.peer("a").hear_load(3, 1, asyncio.get_running_loop().time())
    kind, _, document = (await reader.events(2))[1]
    assert kind == "changed"
    assert (document["load"]["running"], document["load"]["queued"]) == (3, 1)
    await reader.nothing()


async def test_only_the_capability_that_was_asked_for(stand):
    stand.put("a", "echo")
    stand.put("b", "sum")
    reader = await watch(stand, "?capability=Echo")
    assert names(await reader.events(1)) == [("up", "a")]
    stand.put("b", "sum", ver=1, version="2")
    stand.put("a", "sum", ver=1)
    assert names(await reader.events(2))[1:] == [("down", "a")]
    stand.put("b", "sum", "echo", ver=2)
    assert names(await reader.events(3))[2:] == [("up", "b")]
    stand.put("b", "sum", "echo", ver=3, version="3")
    assert names(await reader.events(4))[3:] == [("changed", "b")]
    await reader.nothing()


async def test_last_event_id_resumes(stand):
    stand.put("a", "echo")
    first = await watch(stand)
    await first.events(1)
    stand.put("b", "echo")
    last_id = (await first.events(2))[1][1]
    first.response.sent(0, ConnectionResetError())  # the client went away
    stand.put("c", "echo")
    stand.put("b", "echo", ver=1, flags=("draining",))
    await asyncio.sleep(0.1)
    second = await watch(stand, Last_Event_ID=last_id)
    assert sorted(names(await second.events(2))) == [("down", "b"), ("up", "c")]
    await second.nothing()


@pytest.mark.parametrize("last_id", ["", "x", "deadbeef-1", "-", "{epoch}-999", "{epoch}-x", "{epoch}-²"])
async def test_an_id_that_is_not_known_begins_anew(stand, last_id):
    stand.put("a", "echo")
    first = await watch(stand)
    epoch = (await first.events(1))[0][1].partition("-")[0]
    again = await watch(stand, Last_Event_ID=last_id.format(epoch=epoch))
    assert names(await again.events(1)) == [("up", "a")]


async def test_a_slow_reader_costs_little_and_is_cut_off(stand, monkeypatch):
    monkeypatch.setattr(module, "RING", 50)
    stand.api.watch = module.Watch(stand.view)
    stand.put("a", "echo")
    slow, fast = await watch(stand), await watch(stand)
    await slow.events(1)
    await fast.events(1)
    for number in range(2, 1200):
        stand.put("a", "echo", ver=number, version=str(number))
        stand.api.watch._look_at(["a"])
        if number % 40 == 0:
            await fast.events(number - 1)
    assert slow.response.body.size <= 70_000
    with pytest.raises(BodyError, match="too slow"):
        await asyncio.wait_for(slow.response.body.collect(1_000_000), 2)
    assert not slow.response.body.complete
    stand.api.close()


async def test_an_idle_stream_is_kept_alive(stand, monkeypatch):
    monkeypatch.setattr(module, "KEEP_ALIVE_S", 0.02)
    reader = await watch(stand)
    text = b""
    while b"\n:\n\n" not in text:
        text += await asyncio.wait_for(reader.response.body.read(), 1)


async def test_nothing_is_left_when_all_are_gone(stand, monkeypatch):
    monkeypatch.setattr(module, "SWEEP_S", 0.02)
    monkeypatch.setattr(module, "LINGER_S", 0.02)
    reader = await watch(stand)
    reader.response.body.abandon()
    deadline = time.monotonic() + 2
    while stand.api.watch._observer is not None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert not stand.api.watch._watchers
    stand.put("late", "echo")
    again = await watch(stand)
    assert names(await again.events(1)) == [("up", "late")]


async def test_closing_ends_streams_as_complete(stand):
    began, just_opened = await watch(stand), await watch(stand)
    await asyncio.sleep(0.01)
    never_ran = await watch(stand)
    stand.api.close()
    for reader in (began, just_opened, never_ran):
        while await asyncio.wait_for(reader.response.body.read(), 1):
            pass
        assert reader.response.body.complete


async def test_a_mesh_wide_alias_is_watched_as_what_it_means(stand):
    stand.view.take_aliases({"email.send": ["notify.email"]})
    reader = await watch(stand, "?capability=notify-email")
    stand.put("a", "sum")
    stand.put("b", "email.send")
    assert names(await reader.events(1)) == [("up", "b")]
