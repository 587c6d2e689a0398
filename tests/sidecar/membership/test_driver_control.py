"""Membership against a real control node that is killed, restarted, and robbed of its state."""

import asyncio
import contextlib

from harness.mesh import Mesh
from harness.process import Process

from reach_core.gossip.datagram import MAX_DATAGRAM
from reach_core.peer import Capability, Rank
from reach_core.table import PeerTable
from reach_os.datagrams import DatagramSocket
from reach_os.ports import address_of, listen_pair
from reach_sidecar.membership.driver import Membership
from reach_sidecar.membership.local import LocalAgent


class Member:
    """One sidecar's membership without the rest of the sidecar."""

    def __init__(self, log, folder, agent_id, *urls, **fields):
        self.local = LocalAgent(agent_id, address="http://127.0.0.1:9001", declared=(Capability(name="echo"),),
                                **fields)
        self.table = PeerTable()
        stream, self._bound = listen_pair("127.0.0.1", 0)
        stream.close()  # nobody answers second looks
        self.membership = Membership(urls, self.local, self.table, lambda: address_of(self._bound),
                                     lambda changes: None, log, folder / agent_id)
        self._datagrams = DatagramSocket(self._bound, self.membership.spread.received, MAX_DATAGRAM)

    def rank(self, agent_id):
        entry = self.table.get(agent_id)
        return None if entry is None else entry.rank

    async def __aenter__(self):
        await self.membership.start(self._datagrams)
        await asyncio.wait_for(self.membership.synced.wait(), 10)
        return self

    async def __aexit__(self, *_):
        await self.membership.stop(leave=False)
        self._datagrams.close()


def url_of(control: Process) -> str:
    return f"http://{control.ready['api']}"


def restart(mesh: Mesh, control: Process, name: str) -> Process:
    """Under another name it has no state; the address stays."""
    return mesh.control(name, listen={"api": control.ready["api"], "admin": "127.0.0.1:0"})


async def test_two_members_see_each_other_and_what_changes(mesh, log, tmp_path, until):
    url = url_of(mesh.control())
    async with Member(log, tmp_path, "a", url) as a, Member(log, tmp_path, "b", url) as b:
        await until(lambda: a.rank("b") is Rank.JOINING and b.rank("a") is Rank.JOINING)
        a.local.confirm()
        await until(lambda: b.rank("a") is Rank.UP)
        a.local.set_unfit(True)
        await until(lambda: b.table.get("a").flags == ("unfit",))
        a.local.declare("a", capabilities=["echo", "sum"])
        await until(lambda: [one.name for one in b.table.get("a").capabilities] == ["echo", "sum"])
        assert b.table.get("a").gen == a.membership.gen, "a change is not a new registration"
        await a.membership.stop(leave=True)
        await until(lambda: b.rank("a") is Rank.LEFT)


async def test_a_killed_control_node_is_found_again(mesh, log, tmp_path, until):
    control = mesh.control()
    async with Member(log, tmp_path, "a", url_of(control), confirmed=True) as a:
        await until(lambda: a.rank("a") is Rank.UP)
        await asyncio.sleep(0.5)  # until it is in control's notes
        before = a.table.get("a")
        control.kill()
        await until(lambda: not a.membership.connected)
        assert a.rank("a") is Rank.UP
        assert a.membership.registered.is_set()
        restart(mesh, control, "control")
        await until(lambda: a.membership.connected, 10)
        await until(lambda: a.membership.problem is None)
        assert a.table.get("a").gen == before.gen


async def test_a_control_node_without_its_state_learns_everything_again(mesh, log, tmp_path, until):
    control = mesh.control()
    async with Member(log, tmp_path, "a", url_of(control), confirmed=True) as a:
        await until(lambda: a.rank("a") is Rank.UP)
        old = a.table.get("a")
        control.kill()
        restart(mesh, control, "forgetful")
        await until(lambda: a.table.get("a").gen > old.gen, 10)
        async with Member(log, tmp_path, "b", url_of(control)) as b:
            await until(lambda: b.rank("a") is Rank.UP)


async def test_a_sidecar_that_was_killed_comes_back_at_once(mesh, log, tmp_path, until):
    url = url_of(mesh.control())
    first = Member(log, tmp_path, "a", url, confirmed=True)
    await first.membership.start()
    await until(lambda: first.rank("a") is Rank.UP)
    await first.membership.stop(leave=False)  # its lease still runs
    async with Member(log, tmp_path, "a", url, confirmed=True) as again:
        await asyncio.wait_for(again.membership.registered.wait(), 2)
        await until(lambda: again.table.get("a").gen == again.membership.gen > first.membership.gen)


async def test_a_second_process_with_a_live_id_is_refused_and_takes_over_once_it_is_gone(
    mesh, log, tmp_path, until
):
    url = url_of(mesh.control())
    first = Member(log, tmp_path / "one", "a", url)
    await first.membership.start()
    await asyncio.wait_for(first.membership.registered.wait(), 5)
    async with Member(log, tmp_path / "other", "a", url) as second:
        await until(lambda: second.membership.refusal)
        assert second.membership.refusal.code == "agent_id_conflict"
        assert second.membership.problem.startswith("Another process is registered as a")
        assert not second.membership.registered.is_set()
        assert not second.local.registered
        await first.membership.stop(leave=False)
        await asyncio.wait_for(second.membership.registered.wait(), 15)
        assert second.membership.problem is None


async def test_silence_is_noticed_and_contradicted(mesh, log, tmp_path, until):
    url = url_of(mesh.control())
    async with Member(log, tmp_path, "b", url) as b:
        async with Member(log, tmp_path, "a", url, confirmed=True) as a:
            await until(lambda: b.rank("a") is Rank.UP)
            with contextlib.suppress(asyncio.CancelledError):
                for task in a.membership._tasks:
                    task.cancel()
            await until(lambda: b.rank("a") is Rank.SUSPECT, 10)
        async with Member(log, tmp_path, "a", url, confirmed=True):
            await until(lambda: b.rank("a") is Rank.UP)
