"""What one side of a mesh knows better than the other: told at once when they meet, and not only in the end.

All of it would come right by the next heartbeat or comparison anyhow. What is proved here is that nobody has to wait so
long, and that a word which is final (a leave) is not taken for one that is not (silence).
"""

from typing import Any

import pytest
from sim.node import Node
from sim.watch import WatchedWorld
from sim.world import name_of, seeds

from reach_core.peer import Entry, Rank
from reach_core.table import Change


def is_up(entry: Entry | None) -> bool:
    return entry is not None and entry.rank == Rank.UP


def split_off_two(seed: int) -> WatchedWorld:
    """control-0 with agents 0 and 2, too few for the other side to doubt itself; control-1 with all the others."""
    world = WatchedWorld(seed, 22, controls=2)
    world.run(20.0)
    few = {"control-0", name_of(0), name_of(2)}
    for name in (name_of(0), name_of(2)):
        world.sidecars[name].controls = ["control-0:1", "control-1:1"]
        world.sidecars[name]._current = 0
    world.run(12.0)
    world.network.cut(few, {one.name for one in world.nodes} - few)
    return world


LINKS_S = 5.0
"""Until control nodes that could not reach each other try again."""
COMPARED_S = 3 * 12.0


@pytest.mark.parametrize(("minutes", "thought", "within_s"), [
    (0.7, Rank.SUSPECT, LINKS_S + 2.0),
    (3, Rank.DOWN, LINKS_S + 2.0),
    (12, Rank.LEFT, COMPARED_S),  # each side has removed the other, so control has few to tell: comparisons do the rest
])  # fmt: skip
@pytest.mark.parametrize("seed", seeds(2))
def test_who_is_heard_on_one_side_is_up_everywhere_soon_after_the_sides_meet(
    seed: int, minutes: float, thought: Rank, within_s: float
) -> None:
    world = split_off_two(seed)
    world.run(minutes * 60.0)
    there = world.controls["control-1"].table.get(name_of(0))
    world.expect(there is not None and there.rank == thought, f"the other side has it as {there}")
    before = world.controls["control-0"].table.get(name_of(0))
    assert before is not None
    world.expect(world.sidecars[name_of(0)].is_registered and is_up(before), "this side hears it, and has it up")
    world.network.heal()

    def all_up(nodes: list[Node]) -> bool:
        return all(is_up(node.table.get(name)) for node in nodes for name in (name_of(0), name_of(2)))  # type: ignore[attr-defined]

    met_s = world.heap.now_s
    controls: list[Node] = list(world.controls.values())
    world.expect(world.run(LINKS_S + 2.0, lambda: all_up(controls)), f"control nodes: {world.ranks(name_of(0))}")
    revived = world.controls["control-1"].table.get(name_of(0))
    # a removal by silence is answered at once by who hears the agent; its owner has not had to register again
    expected_gen = before.gen + (thought == Rank.LEFT)
    world.expect(revived is not None and revived.gen == expected_gen, f"{revived} after gen {before.gen}")
    left_s = max(0.0, within_s - (world.heap.now_s - met_s))
    world.expect(all_up(world.nodes) or world.run(left_s, lambda: all_up(world.nodes)), f"{world.ranks(name_of(0))}")
    world.run(15.0)
    world.run_until_equal(60.0)
    world.expect_truth()


@pytest.mark.parametrize("seed", seeds(2))
def test_a_leave_is_final_also_where_the_lease_still_runs(seed: int) -> None:
    """The owner said so to one control node, and another has heard of it a second ago."""
    world = WatchedWorld(seed, 20, controls=3)
    world.run(20.0)
    alive_after: list[str] = []
    world.learned.append(lambda node, change: alive_after.append(f"{node.name} {change.after.order[:3]}")
                         if world.left and change.after.agent_id in world.left and not change.after.is_tombstone else None)
    for number in range(4):
        world.leave(name_of(number))
        world.run(15.0)
    for number in range(4):
        gone = world.all_have(name_of(number), lambda entry: entry is not None and entry.is_tombstone)
        world.expect(gone, f"{world.ranks(name_of(number))}")
    assert not alive_after, alive_after
    world.run_until_equal(60.0)


@pytest.mark.parametrize("seed", seeds(2))
def test_a_registration_is_newer_than_the_last_also_where_the_clock_went_back(seed: int) -> None:
    world = WatchedWorld(seed, 12)
    world.run(20.0)
    first = world.sidecars[name_of(3)]
    first.kill()
    again = world.add(name_of(3), instance=first.instance)
    world.run(3.0)
    world.controls["control-0"].skew_ms = -3_600_000
    before = again.gen
    again.kill()
    moved = world.add(name_of(3), address="moved:1", instance=first.instance)
    world.run(5.0)
    world.expect(moved.is_registered and moved.gen > before, f"gen {moved.gen} after {before}: {moved.refused!r}")
    world.expect(world.all_have(name_of(3), lambda entry: is_up(entry) and entry.address == "moved:1"),  # type: ignore[union-attr]
                 "all have the new address")


@pytest.mark.parametrize("seed", seeds(2))
def test_news_gets_out_where_controls_datagrams_do_not(seed: int) -> None:
    """Only control's are dropped, as by a firewall on its machine: it falls back on TCP for the four it tells."""
    world = WatchedWorld(seed, 200)
    for one in world.sidecars.values():
        one.machine._compare_at = float("inf")  # not by comparison
    send = world.network.datagram

    def datagram(sender: Node, address: str, what: Any, size: int) -> None:
        if sender.name != "control-0":
            send(sender, address, what, size)

    world.network.datagram = datagram  # type: ignore[method-assign]
    world.run(1.0)
    heard: dict[str, float] = {}

    def note(node: Node, change: Change) -> None:
        if change.after.version == "2":
            heard.setdefault(node.name, world.heap.now_s)

    world.learned.append(note)
    world.sidecars[name_of(0)].change("2")
    world.run(5.0)
    world.expect(len(heard) == 201, f"{len(heard)} of 201 heard of it")
    took_s = max(heard.values()) - heard["control-0"]
    world.expect(took_s <= 0.6 + 1.5, f"after {took_s:.2f} s")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("who", ["control-1", name_of(4)])
@pytest.mark.parametrize("seed", seeds(1))
def test_a_tombstone_is_forgotten_once_though_one_clock_is_an_hour_late(seed: int, who: str) -> None:
    """That one keeps it for an hour more: the others must not take it again and again."""
    world = WatchedWorld(seed, 6, controls=2)
    late = world.controls.get(who) or world.sidecars[who]
    late.skew_ms = -3_600_000
    world.run(20.0)
    world.leave(name_of(0))
    world.run(60.0)
    taken: list[str] = []
    world.learned.append(lambda node, change: taken.append(node.name) if change.after.agent_id == name_of(0) else None)
    world.run(25.5 * 3600.0)
    world.expect(world.all_have(name_of(0), lambda entry: entry is None), f"{world.ranks(name_of(0))}")
    assert not taken, taken


@pytest.mark.parametrize("seed", seeds(2))
def test_who_cannot_reach_control_and_is_seen_by_others_is_not_suspected(seed: int) -> None:
    """The second look of three sidecars counts: only once they do not see it either it is suspect."""
    world = WatchedWorld(seed, 20)
    world.run(20.0)
    lost = name_of(3)
    suspected: list[float] = []
    world.learned.append(lambda node, change: suspected.append(world.heap.now_s)
                         if change.after.agent_id == lost and change.after.rank >= Rank.SUSPECT else None)
    world.network.cut({lost}, {"control-0"})
    world.run(120.0)
    world.expect(not suspected, f"suspected at {suspected[:1]}, and the others see it")
    others = {one.name for one in world.nodes} - {lost}
    world.network.cut({lost}, others)
    world.run(45.0)
    world.expect(bool(suspected), "nobody sees it any more")


@pytest.mark.parametrize("seed", seeds(2))
def test_a_control_node_that_sees_nobody_doubts_itself_first(seed: int) -> None:
    """Its network is gone for four minutes, and it runs all the time. The first few lapses it takes for true: those up to
    max(15 %, 2), as the design has it. From then on it takes nobody for suspect, and nobody at all for down."""
    agents = 30
    world = WatchedWorld(seed, agents)
    world.run(20.0)
    names = {name_of(number) for number in range(agents)}
    doubted: dict[str, Rank] = {}

    def note(node: Node, change: Change) -> None:
        after = change.after
        if after.rank >= Rank.SUSPECT:
            doubted[after.agent_id] = max(after.rank, doubted.get(after.agent_id, after.rank))

    world.learned.append(note)
    world.network.cut({"control-0"}, names)
    world.run(240.0)
    world.network.heal()
    world.run(60.0)
    world.expect(len(doubted) <= max(0.15 * agents, 2), f"{doubted}")
    world.expect(all(rank == Rank.SUSPECT for rank in doubted.values()), f"{doubted}")
    world.run_until_equal(60.0)
    world.expect_truth()
