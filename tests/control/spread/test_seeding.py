"""Seeds on real sockets: sidecars that acknowledge, that hear nothing, and that are gone."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from harness.mesh_door import MeshDoor

from reach_control.membership.client import Client
from reach_control.spread.seeding import Seeding
from reach_core.gossip.compare import Transfer, Transferred
from reach_core.gossip.compare import decode as decode_step
from reach_core.gossip.compare import encode as encode_step
from reach_core.gossip.datagram import MAX_DATAGRAM, Datagram, acknowledgement, decode, encode
from reach_core.gossip.seal import MeshKeys
from reach_core.gossip.seeds import MAX_PUSHES
from reach_core.keyring import Signer
from reach_core.messages import unpack_entries
from reach_core.peer import Capability, Entry, Rank
from reach_core.table import PeerTable
from reach_os.datagrams import DatagramSocket
from reach_os.ports import address_of, listen_pair

NOW_MS = 1_700_000_000_000
KEYS = MeshKeys({1: b"k" * 32}, 1)
SIGNER = Signer(b"s" * 32)


class Sidecar:
    """Hears datagrams at its door's address, and acknowledges them unless it is `deaf`."""

    def __init__(self, door: MeshDoor) -> None:
        self.door = door
        self.heard: list[Datagram] = []
        self.deaf = False
        self.sizes: list[int] = []
        assert door.datagrams is not None
        self.socket = DatagramSocket(door.datagrams, self.received, MAX_DATAGRAM)
        door.gossip = encode_step(Transferred())

    def received(self, data: bytes, source: str) -> None:
        self.sizes.append(len(data))
        plain = KEYS.open(data)
        assert plain is not None
        datagram = decode(plain)
        self.heard.append(datagram)
        if not self.deaf:
            answer = encode(acknowledgement(datagram.number, self.door.name, 0))
            self.socket.send(KEYS.seal(answer, random.randbytes(12)), source)

    @property
    def told(self) -> list[str]:
        """The agents it was told of, by datagram or over TCP."""
        packed = [one for datagram in self.heard for one in datagram.entries]
        for body in self.door.bodies:
            packed += decode_step(Transfer, body).entries
        return [entry.agent_id for entry in unpack_entries(packed)[0]]


class Bench:
    def __init__(self, sidecars: list[Sidecar]) -> None:
        self.sidecars = sidecars
        self.table = PeerTable()
        self.enter(*(entry(one.door.name, one.door.address) for one in sidecars))
        self.client = Client()
        self.seeding = Seeding("control-1", self.table, lambda: KEYS, self.client, random.Random(7))

    def enter(self, *entries: Entry) -> list[Entry]:
        signed = [SIGNER.sign(one) for one in entries]
        self.table.merge(signed, NOW_MS)
        return signed

    async def quiet(self) -> None:
        """Nothing waits or is under way any more."""
        await asyncio.sleep(0.05)
        async with asyncio.timeout(15):
            while len(self.seeding.seeds) or self.seeding.seeds.waiting or self.seeding._pushing:
                await asyncio.sleep(0.01)


def entry(agent_id: str, address: str | None = None, ver: int = 1, size: int = 0) -> Entry:
    """Without an address it is down, so that nobody is told of anything there."""
    rank = Rank.DOWN if address is None else Rank.UP
    capabilities = (Capability(name="work", attributes={"x": ["y" * size]}),) if size else ()
    return Entry(agent_id=agent_id, gen=NOW_MS, ver=ver, rank=rank, address=address or "", capabilities=capabilities)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        sidecars = [Sidecar(await stack.enter_async_context(MeshDoor(f"s-{n}").open())) for n in range(8)]
        for one in sidecars:
            await one.socket.start()
        made = Bench(sidecars)
        stream, datagrams = listen_pair("127.0.0.1", 0)
        udp = DatagramSocket(datagrams, made.seeding.received, MAX_DATAGRAM)
        await made.seeding.start(udp)
        running = asyncio.create_task(made.seeding.run())
        yield made
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await made.seeding.stop()
        await made.client.close()
        udp.close()
        stream.close()
        for one in sidecars:
            one.socket.close()


async def test_a_change_is_told_to_four_and_acknowledged(bench: Bench) -> None:
    changed = bench.enter(entry("new"))
    bench.seeding.tell(changed)
    await bench.quiet()
    assert sorted(one for sidecar in bench.sidecars for one in sidecar.told) == ["new"] * 4
    assert bench.seeding.counts["datagrams"] == bench.seeding.counts["acknowledged"] == 4
    assert "pushes" not in bench.seeding.counts


async def test_what_comes_together_goes_together(bench: Bench) -> None:
    changed = bench.enter(*(entry(f"n-{n}") for n in range(4)))
    for one in changed:
        bench.seeding.tell([one])
    await bench.quiet()
    told = [one for sidecar in bench.sidecars for one in sidecar.told]
    assert {told.count(f"n-{n}") for n in range(4)} == {4}


async def test_no_datagram_is_longer_than_what_no_path_cuts(bench: Bench) -> None:
    changed = bench.enter(*(entry(f"n-{n}", size=n * 11 % 900) for n in range(100)))
    bench.seeding.tell(changed)
    await bench.quiet()
    assert max(size for sidecar in bench.sidecars for size in sidecar.sizes) <= MAX_DATAGRAM
    told = {one for sidecar in bench.sidecars for one in sidecar.told}
    assert told == {f"n-{n}" for n in range(100)}


async def test_where_datagrams_do_not_get_through_tcp_does(bench: Bench) -> None:
    for sidecar in bench.sidecars:
        sidecar.deaf = True
    bench.seeding.tell(bench.enter(entry("new")))
    await bench.quiet()
    took = [sidecar for sidecar in bench.sidecars if sidecar.door.bodies]
    assert len(took) == 4
    assert {len(sidecar.heard) for sidecar in took} == {2}, "sent, and sent once again"
    assert bench.seeding.counts["pushes"] == 4
    assert "failed" not in bench.seeding.counts


async def test_one_that_takes_nothing_is_replaced_by_another(bench: Bench) -> None:
    for sidecar in bench.sidecars:
        sidecar.deaf = True
        sidecar.door.status = 503
    for sidecar in bench.sidecars[-3:]:
        sidecar.deaf = False
    bench.seeding.tell(bench.enter(entry("new")))
    await bench.quiet()
    assert all("new" in sidecar.told for sidecar in bench.sidecars[-3:])
    assert bench.seeding.counts["failed"] >= 1


async def test_with_nobody_there_it_ends(bench: Bench) -> None:
    for sidecar in bench.sidecars:
        sidecar.deaf = True
        sidecar.door.status = 500
    bench.seeding.tell(bench.enter(entry("new")))
    await bench.quiet()
    assert bench.seeding.seeds.unheard == 1
    assert bench.seeding.counts["failed"] <= 8


async def test_the_version_of_what_holds_mesh_wide_is_told(bench: Bench) -> None:
    bench.seeding.announce(42)
    await bench.quiet()
    assert [one.notice for sidecar in bench.sidecars for one in sidecar.heard] == [42] * 4
    bench.seeding.tell(bench.enter(entry("new")))
    await bench.quiet()
    assert {sidecar.heard[-1].notice for sidecar in bench.sidecars if sidecar.heard} == {42}


async def test_an_announcement_that_no_datagram_carries_is_no_message_over_tcp(bench: Bench) -> None:
    for sidecar in bench.sidecars:
        sidecar.deaf = True
    bench.seeding.announce(42)
    await bench.quiet()
    assert "pushes" not in bench.seeding.counts


async def test_what_is_not_of_the_mesh_is_counted_and_dropped(bench: Bench) -> None:
    other = MeshKeys({1: b"x" * 32}, 1)
    ack = encode(acknowledgement(1, "s-0", 0))
    for data in (b"", b"x" * 2000, other.seal(ack, b"n" * 12), KEYS.seal(b"\xc1", b"n" * 12)):
        bench.seeding.received(data, "127.0.0.1:9")
    assert bench.seeding.counts == {"unreadable": 4, "flooded": 0, "not_sent": 0}
    bench.seeding.received(KEYS.seal(ack, b"m" * 12), "127.0.0.1:9")
    assert "acknowledged" not in bench.seeding.counts, "of nothing that is under way"


async def test_only_so_many_are_told_over_tcp_at_a_time(bench: Bench) -> None:
    for sidecar in bench.sidecars:
        sidecar.deaf = True
        sidecar.door.silent = True
    bench.seeding.tell(bench.enter(*(entry(f"n-{n}", size=800) for n in range(60))))
    async with asyncio.timeout(5):
        while bench.seeding.counts.get("pushes", 0) < 10:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    assert sum(len(sidecar.door.bodies) for sidecar in bench.sidecars) <= MAX_PUSHES
    await asyncio.wait_for(bench.seeding.stop(), 2)


async def test_an_address_that_is_none_hurts_nobody(bench: Bench) -> None:
    bench.enter(*(entry(f"odd-{n}", address) for n, address in enumerate(("", "x", "no.such.host.invalid:1", "[::1]:1"))))
    for n in range(10):
        bench.seeding.tell(bench.enter(entry("new", ver=n + 1)))
        await asyncio.sleep(0.01)
    await bench.quiet()
    assert any("new" in sidecar.told for sidecar in bench.sidecars)


def test_one_address_serves_both_protocols() -> None:
    stream, datagrams = listen_pair("127.0.0.1", 0)
    assert address_of(stream) == address_of(datagrams)
    stream.close()
    datagrams.close()
