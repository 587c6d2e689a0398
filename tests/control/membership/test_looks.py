"""Second looks on real sockets: sidecars that answer, that do not, and that are somebody else's."""

import asyncio
import io
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from harness.mesh_door import MeshDoor
from harness.ports import lasting_port

from reach_control.membership import client as client_module
from reach_control.membership.client import Client
from reach_control.membership.looks import Looks
from reach_control.registry.look import Look, Sighting
from reach_control.registry.reports import Probe
from reach_control.telemetry.log import ControlLog


class Bench:
    """`doors`: the sidecar looked at, and three witnesses."""

    def __init__(self, doors: list[MeshDoor]) -> None:
        self.target, *self.witnesses = doors
        self.address = self.target.address
        self.client = Client()
        self.seen: asyncio.Queue[tuple[Look, Sighting]] = asyncio.Queue()
        self.out = io.StringIO()
        self.looks = Looks(self.client, lambda look, sighting: self.seen.put_nowait((look, sighting)),
                           ControlLog(out=self.out))

    async def look(self) -> Sighting:
        look = Look("a", 7, self.address, tuple(one.address for one in self.witnesses))
        self.looks.begin(look)
        told, sighting = await asyncio.wait_for(self.seen.get(), 5)
        assert told == look
        return sighting


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        doors = [await stack.enter_async_context(MeshDoor(name).open()) for name in ("a", "b", "c", "d")]
        bench = Bench(doors)
        yield bench
        await bench.looks.stop()
        await bench.client.close()


async def test_one_that_is_there_is_seen_by_all(bench: Bench) -> None:
    sighting = await bench.look()
    assert sighting.by_control
    assert sighting.is_alive
    assert bench.looks.counts == {"alive": 1}


async def test_witnesses_are_told_whom_to_look_for(bench: Bench) -> None:
    bench.address = f"127.0.0.1:{lasting_port()}"
    await bench.look()
    for witness in bench.witnesses:
        assert [(one.agent_id, one.address) for one in witness.looked_at] == [("a", bench.address)]


async def test_a_death_is_one_that_control_and_two_sidecars_confirm(bench: Bench) -> None:
    bench.address = f"127.0.0.1:{lasting_port()}"
    for witness in bench.witnesses:
        witness.sees = False
    sighting = await bench.look()
    assert sighting == Sighting(by_control=False, alive=0, dead=3)
    assert sighting.is_confirmed_death
    assert bench.looks.counts == {"dead": 1}
    assert "by 3 of 3 sidecars" in bench.out.getvalue()


async def test_one_that_a_single_sidecar_reaches_is_alive(bench: Bench) -> None:
    bench.address = f"127.0.0.1:{lasting_port()}"
    for witness in bench.witnesses[1:]:
        witness.sees = False
    sighting = await bench.look()
    assert sighting == Sighting(by_control=False, alive=1, dead=2)
    assert sighting.is_alive


async def test_another_agent_at_that_address_is_no_sign_of_life(bench: Bench) -> None:
    bench.target.name = "somebody-else"
    for witness in bench.witnesses:
        witness.sees = False
    assert not (await bench.look()).is_alive


@pytest.mark.parametrize("raw", [b"", b"{}", b"hello", b'{"agent_id":""}', b"x" * 100_000])
async def test_an_answer_that_is_none_is_no_sign_of_life(bench: Bench, raw: bytes) -> None:
    bench.target.raw = raw
    for witness in bench.witnesses:
        witness.sees = False
    assert (await bench.look()) == Sighting(by_control=False, alive=0, dead=3)


async def test_witnesses_that_cannot_be_asked_say_nothing(bench: Bench) -> None:
    bench.address = f"127.0.0.1:{lasting_port()}"
    bench.witnesses[0].raw = b"nonsense"
    bench.witnesses[1].raw = b"[]"
    bench.witnesses[2].sees = False
    sighting = await bench.look()
    assert sighting == Sighting(by_control=False, alive=0, dead=1)
    assert not sighting.is_confirmed_death
    assert bench.looks.counts == {"unsure": 1}


async def test_silence_takes_no_longer_than_its_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "HELLO_S", 0.2)
    monkeypatch.setattr(client_module, "LOOK_S", 0.3)
    for door in (bench.target, *bench.witnesses):
        door.silent = True
    began = time.monotonic()
    assert (await bench.look()) == Sighting(by_control=False, alive=0, dead=0)
    assert 0.2 < time.monotonic() - began < 2.0, "all at once, not one after the other"


async def test_a_sidecar_that_came_back_at_the_same_place_is_seen(bench: Bench) -> None:
    """No connection is kept from the look before."""
    assert (await bench.look()).by_control
    assert (await bench.look()).by_control
    closes = [headers.get("Connection", "").lower() for headers in bench.target.headers]
    assert closes == ["close", "close"]


async def test_stopping_ends_what_is_under_way(bench: Bench) -> None:
    bench.target.silent = True
    bench.looks.begin(Look("a", 7, bench.address, ()))
    while not bench.target.asked:
        await asyncio.sleep(0.01)
    await asyncio.wait_for(bench.looks.stop(), 1)
    assert bench.seen.empty()


@pytest.mark.parametrize(("is_fit", "word"), [(True, "fit"), (False, "unfit")])
async def test_a_health_check_is_asked_for_and_counted(bench: Bench, is_fit: bool, word: str) -> None:
    bench.target.is_fit = is_fit
    bench.looks.probe(Probe("a", 7, bench.address))
    while not bench.looks.counts:
        await asyncio.sleep(0.01)
    assert bench.looks.counts == {word: 1}
    assert bench.target.asked == ["/v1/probe"]


async def test_a_health_check_that_nobody_makes_is_said(bench: Bench) -> None:
    bench.looks.probe(Probe("a", 7, f"127.0.0.1:{lasting_port()}"))
    while not bench.looks.counts:
        await asyncio.sleep(0.01)
    assert bench.looks.counts == {"unanswered": 1}
    assert "says nothing" in bench.out.getvalue()
