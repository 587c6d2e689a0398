"""Nothing comes back from the dead, and who comes back alive is there: restarts, moves, reused addresses, long absences.

Each of these has happened to others who built gossip on leases and tombstones.
"""

import itertools

import pytest
from sim.control import sign
from sim.world import World, name_of, seeds

from reach_control.registry.lease import Moment
from reach_core.messages import RegisterRequest
from reach_core.peer import Entry, Rank
from reach_core.problem import Problem

HOUR_S = 3600.0


def is_up(entry: Entry | None) -> bool:
    return entry is not None and entry.rank == Rank.UP


def is_gone(entry: Entry | None) -> bool:
    return entry is None or entry.is_tombstone


@pytest.mark.parametrize(("away_h", "seed", "agents"), [
    *((away_h, seed, 5) for away_h in (13, 25) for seed in seeds(1)),
    *(pytest.param(away_h, seed, 20, marks=pytest.mark.slow) for away_h in (11, 13, 25, 40) for seed in seeds(5)),
])  # fmt: skip
def test_a_tombstone_that_was_forgotten_while_one_was_away(away_h: int, seed: int, agents: int) -> None:
    world = World(seed, agents)
    world.run(5.0)
    sleeper = world.sidecars[name_of(3)]
    sleeper.stop()
    world.run(5.0)
    world.leave(name_of(0))
    world.run(5.0)
    world.expect(sleeper.table.get(name_of(0)).rank == Rank.UP, "it has not heard of it")  # type: ignore[union-attr]
    world.run(away_h * HOUR_S)
    sleeper.go_on()
    world.run(120.0)
    world.expect(world.all_have(name_of(0), is_gone), f"back from the dead: {world.ranks(name_of(0))}")
    world.expect(world.all_have(name_of(3), is_up), f"the sleeper itself is back: {world.ranks(name_of(3))}")
    world.run_until_equal(60.0)


@pytest.mark.parametrize(("seed", "agents"), [*((seed, 5) for seed in seeds(1)),
                                             *(pytest.param(seed, 20, marks=pytest.mark.slow) for seed in seeds(5))])
def test_a_node_cut_off_for_a_day_goes_on_and_then_forgets(seed: int, agents: int) -> None:
    """It runs all the time, and hears nobody: alone it goes on with what it has."""
    world = World(seed, agents)
    world.run(5.0)
    alone = world.sidecars[name_of(3)]
    world.network.cut({alone.name}, {one.name for one in world.nodes} - {alone.name})
    world.run(5.0)
    world.leave(name_of(0))
    world.run(26 * HOUR_S)
    world.expect(is_up(alone.table.get(name_of(1))), "while it is alone it routes on")
    world.network.heal()
    world.run(120.0)
    world.expect(world.all_have(name_of(0), is_gone), f"back from the dead: {world.ranks(name_of(0))}")
    world.run_until_equal(60.0)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_restarted_owner_leaves_exactly_one_entry(seed: int) -> None:
    world = World(seed, 50, loss=0.1)
    world.run(5.0)
    old = world.sidecars[name_of(7)]
    old.kill()
    world.run(1.0)
    new = world.add(name_of(7), instance=old.instance)
    world.run(10.0)
    world.expect(world.all_have(name_of(7), lambda entry: is_up(entry) and entry.gen == new.gen), "one entry, the new one")  # type: ignore[union-attr]
    world.expect(new.gen > old.gen, "it was registered anew")
    world.run_until_equal(60.0)


@pytest.mark.parametrize("seed", seeds(3))
def test_the_same_name_at_a_new_address_is_known_to_all_at_once(seed: int) -> None:
    world = World(seed, 200, loss=0.1)
    world.run(5.0)
    old = world.sidecars[name_of(7)]
    old.kill()
    world.add(name_of(7), address="moved:9", instance=old.instance)
    world.run(3.0)
    world.expect(world.all_have(name_of(7), lambda entry: is_up(entry) and entry.address == "moved:9"), "the new address")  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", seeds(3))
def test_another_agent_at_a_reused_address_harms_nobody(seed: int) -> None:
    """A dies, B gets its address: B stays up, A is found dead although somebody answers there."""
    world = World(seed, 20)
    world.run(5.0)
    dead = world.sidecars[name_of(4)]
    dead.kill()
    world.run(2.0)
    world.add("newcomer", address=dead.address)
    world.run(3.0)
    world.refutes(["newcomer", name_of(1)])
    world.run(120.0)
    world.expect(world.all_have("newcomer", is_up), str(world.ranks("newcomer")))
    world.expect(world.all_have(name_of(4), lambda entry: entry is not None and entry.rank == Rank.DOWN), str(world.ranks(name_of(4))))


@pytest.mark.parametrize("seed", seeds(3))
def test_one_of_three_that_is_killed_is_seen_within_the_lease_and_three_seconds(seed: int) -> None:
    world = World(seed, 3)
    world.run(40.0)
    victim = world.sidecars[name_of(1)]
    seen: list[float] = []
    world.learned.append(lambda node, change: seen.append(world.heap.now_s) if change.after.rank == Rank.SUSPECT else None)
    victim.kill()
    killed_s = world.heap.now_s
    world.run(33.0)
    world.expect(world.all_have(name_of(1), lambda entry: entry is not None and entry.rank >= Rank.SUSPECT), str(world.ranks(name_of(1))))
    world.expect(max(seen) - killed_s <= world.terms.ttl_s + 3.0, f"seen after {max(seen) - killed_s:.1f} s")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_leave_then_rejoin_then_change_ends_live_in_any_order_of_arrival(order: tuple[int, ...]) -> None:
    """The three entries reach a sidecar in any order."""
    world = World(sum(order) + 1, 8)
    world.run(2.0)
    told: list[Entry] = []
    watched = world.sidecars[name_of(5)]
    control = world.controls["control-0"]
    world.learned.append(lambda node, change: told.append(change.after)
                         if node is control and change.after.agent_id == name_of(2) else None)
    deaf, watched.alive = watched, False
    one = world.sidecars[name_of(2)]
    one.leave()
    world.run(1.0)
    one.kill()
    again = world.add(name_of(2), instance=one.instance)
    world.run(2.0)
    again.change("2")
    world.run(2.0)
    world.expect(len(told) == 3, f"left, rejoined, changed: {told}")
    deaf.alive = True
    for number in order:
        deaf.machine.learn([told[number]], "gossip", f"somebody-{number}", world.heap.now_s, deaf.now_ms)
    entry = deaf.table.get(name_of(2))
    world.expect(is_up(entry) and entry.version == "2", f"{entry}")  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", seeds(2))
def test_a_generation_from_the_far_future_is_refused(seed: int) -> None:
    world = World(seed, 10)
    world.run(2.0)
    future = World.entry(3, gen=world.controls["control-0"].now_ms + 25 * 3600 * 1000, address="evil:1")
    for one in world.sidecars.values():
        one.machine.learn([sign(future)], "gossip", "liar", world.heap.now_s, one.now_ms)
    world.run(30.0)
    world.expect(world.all_have(name_of(3), lambda entry: is_up(entry) and entry.address == "host-3:1"), "refused")  # type: ignore[union-attr]
    request = RegisterRequest(agent_id="fresh", instance="i", gen=future.gen, address="h:1", healthy=True)
    control = world.controls["control-0"]
    outcome = control.registry.register(request, Moment(control.now_s, control.now_ms))
    world.expect(outcome.entry.gen < future.gen, "nor does a registration bring one")


@pytest.mark.parametrize("seed", seeds(2))
def test_a_second_process_is_refused_while_the_first_lives_and_takes_over_if_told(seed: int) -> None:
    world = World(seed, 10)
    world.run(2.0)
    first = world.sidecars[name_of(2)]
    second = world.add(name_of(2), address="second:1")
    world.run(20.0)
    world.expect(second.refused == "agent_id_conflict" and first.is_registered, f"{second.refused!r}")
    control = world.controls["control-0"]
    taking = RegisterRequest(agent_id=name_of(2), instance=second.instance, address="second:1", healthy=True, takeover=True)
    entry = control.register(taking)
    world.expect(not isinstance(entry, Problem), f"{entry}")
    world.run(15.0)
    world.expect(not first.is_registered and first.refused in ("agent_id_conflict", "fenced"), f"{first.refused!r}")
    world.expect(world.all_have(name_of(2), lambda one: one is not None and one.address == "second:1"), "the second")
