"""What fails around the mesh: control nodes that die, stop and start again, networks that split, clocks that are wrong,
sidecars that stop reading."""

import gc
from collections import Counter

import pytest
from sim.world import World, name_of, seeds

from reach_core.peer import Rank

HOUR_S = 3600.0


def all_up(world: World, names: list[str]) -> bool:
    return all(world.all_have(name, lambda entry: entry is not None and entry.rank == Rank.UP) for name in names)


def halves(world: World) -> tuple[set[str], set[str]]:
    """Sidecars and control nodes, every other one."""
    names = [one.name for one in world.nodes]
    return set(names[::2]), set(names[1::2])


SPLITS = ["half", "one control against all", "one sidecar against all"]


@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize(("seed", "agents"), [*((seed, 24) for seed in seeds(1)),
                                             *(pytest.param(seed, 300, marks=pytest.mark.slow) for seed in seeds(5))])
def test_a_split_of_an_hour_heals_to_equal_tables_within_a_minute(seed: int, agents: int, how: str) -> None:
    world = World(seed, agents, controls=2)
    world.run(20.0)
    everybody = {one.name for one in world.nodes}
    alone = {"half": halves(world)[0], "one control against all": {"control-1"}, "one sidecar against all": {name_of(0)}}[how]
    world.network.cut(alone, everybody - alone)
    world.run(600.0)
    here = next(iter(sorted(alone - {"control-0", "control-1"})), None)
    if how == "half" and here is not None:
        world.sidecars[here].change("2")  # and both sides go on living
    world.run(HOUR_S - 600.0)
    world.network.heal()
    world.run_until_equal(60.0)
    world.run(15.0)
    names = [name_of(number) for number in range(agents)]
    world.expect(all_up(world, names), str(Counter(world.ranks(name_of(0)).values())))
    world.run_until_equal(60.0)


@pytest.mark.parametrize("seed", seeds(2))
def test_in_a_split_the_larger_generation_wins_and_the_other_steps_back(seed: int) -> None:
    """A second process takes the id on the other side: after the split exactly one of the two is left."""
    world = World(seed, 12, controls=2)
    world.run(20.0)
    one_side = {"control-0"} | {name_of(number) for number in range(0, 12, 2)}
    other_side = {"control-1"} | {name_of(number) for number in range(1, 12, 2)}
    world.network.cut(one_side, other_side | {"second"})
    world.run(700.0)  # the other side has forgotten agent-0
    first = world.sidecars[name_of(0)]
    second = world.add(name_of(0), address="second:1", controls=["control-1:1", "control-0:1"])
    second.name = "second"
    world.run(60.0)
    world.expect(second.is_registered and first.is_registered, "each side has one")
    world.network.heal()
    world.run(60.0)
    world.expect(second.is_registered != first.is_registered, f"{first.refused!r} {second.refused!r}")
    world.run_until_equal(60.0)


@pytest.mark.parametrize(("seed", "agents", "keep"), [
    *((seed, 1_000, True) for seed in seeds(1)), *((seed, 200, False) for seed in seeds(1)),
    *(pytest.param(seed, 10_000, True, marks=[pytest.mark.slow, pytest.mark.timeout(7200)]) for seed in seeds(1)),
    *(pytest.param(seed, 1_000, False, marks=[pytest.mark.slow, pytest.mark.timeout(7200)]) for seed in seeds(1)),
])  # fmt: skip
def test_control_starts_again_without_a_herd_or_a_loss(seed: int, agents: int, keep: bool) -> None:
    world = World(seed, agents)
    world.run(12.0)
    world.controls["control-0"].kill()
    world.run(20.0)
    world.refutes(name_of(number) for number in range(agents))
    control = world.restart_control("control-0", keep)
    known = len(control.table)
    world.run(30.0)
    busiest = max(Counter(int(at_s) for at_s in control.requests_at).values())
    print(f"{agents} sidecars: at most {busiest} requests in a second, {control.most_under_way} at a time")
    world.expect(not keep or known == agents, f"{known} of {agents} at once")
    world.expect(len(control.table) == agents, f"{len(control.table)} of {agents} after 30 s")
    # everybody comes back within one back-off of 5 s; a herd would all be there in the first tenth of a second
    world.expect(busiest <= 0.6 * agents, f"{busiest} requests in one second")
    world.expect(control.most_under_way <= max(10, agents / 20), f"{control.most_under_way} requests at a time")


@pytest.mark.parametrize("seconds", [4, 30, 120])
@pytest.mark.parametrize("seed", seeds(2))
def test_a_pause_of_control_marks_nobody_down(seed: int, seconds: float) -> None:
    world = World(seed, 40)
    world.run(15.0)
    world.refutes(name_of(number) for number in range(40))
    control = world.controls["control-0"]
    control.stop()
    world.run(seconds)
    control.go_on()
    world.run(90.0)
    world.expect(all_up(world, [name_of(number) for number in range(40)]), "all are up")


@pytest.mark.parametrize("seed", seeds(2))
def test_each_of_three_control_nodes_killed_in_turn_marks_nobody_down(seed: int) -> None:
    world = World(seed, 60, controls=3, loss=0.05)
    world.run(15.0)
    names = [name_of(number) for number in range(60)]
    world.refutes(names)
    for name in ("control-0", "control-1", "control-2"):
        world.controls[name].kill()
        world.run(45.0)
        world.restart_control(name)
        world.run(20.0)
    world.expect(all_up(world, names), "all are up")
    world.run_until_equal(60.0)


@pytest.mark.parametrize("seed", seeds(2))
def test_with_all_control_nodes_down_everybody_goes_on_and_they_come_back(seed: int) -> None:
    world = World(seed, 40, controls=2)
    world.run(15.0)
    names = [name_of(number) for number in range(40)]
    world.refutes(names)
    for control in world.controls.values():
        control.kill()
    world.run(HOUR_S)
    world.expect(all_up(world, names), "nobody expires while nobody decides")
    for name in ("control-0", "control-1"):
        world.restart_control(name)
    world.run(60.0)
    world.expect(all_up(world, names), "all are up")
    world.run_until_equal(60.0)


@pytest.mark.parametrize("seed", seeds(2))
def test_a_sidecar_that_stops_reading_delays_nobody(seed: int) -> None:
    world = World(seed, 100)
    world.run(10.0)
    stuck = world.sidecars[name_of(9)]
    stuck.stop()
    world.sidecars[name_of(1)].change("2")
    began = world.heap.now_s
    others = [one for one in world.nodes if one is not stuck]

    def all_know() -> bool:
        return all((entry := one.table.get(name_of(1))) is not None and entry.version == "2" for one in others)

    world.expect(world.run(5.0, all_know), "the others know")
    world.expect(world.heap.now_s - began < 1.5, f"after {world.heap.now_s - began:.2f} s")


@pytest.mark.parametrize("skew_h", [-1, 1])
@pytest.mark.parametrize("who", ["control-1", name_of(3)])
@pytest.mark.parametrize("seed", seeds(1))
def test_a_clock_that_steps_by_an_hour_changes_nothing_elsewhere(seed: int, who: str, skew_h: int) -> None:
    world = World(seed, 30, controls=2)
    world.run(15.0)
    world.refutes(name_of(number) for number in range(30) if number != 20)
    node = world.controls.get(who) or world.sidecars[who]
    node.skew_ms = skew_h * 3600 * 1000
    world.run(30.0)
    world.leave(name_of(20))
    joined = world.add("newcomer")
    world.run(60.0)
    world.expect(joined.is_registered, "who comes is taken")
    world.run_until_equal(60.0)
    node.skew_ms = 0
    world.run(120.0)
    world.run_until_equal(60.0)
    world.expect(all_up(world, [name_of(1), "newcomer"]), "all are up")


@pytest.mark.parametrize(("seed", "agents", "hours"), [*((seed, 40, 0.25) for seed in seeds(1)),
                                                      *(pytest.param(seed, 200, 1.0, marks=pytest.mark.slow) for seed in seeds(2))])
def test_what_is_remembered_stays_flat_under_loss(seed: int, agents: int, hours: float) -> None:
    """Agents change, restart and go all the time, and a third of the datagrams is lost."""
    world = World(seed, agents, loss=0.3)
    world.run(30.0)

    def remembered() -> dict[str, int]:
        gc.collect()
        sidecars = [one for one in world.sidecars.values() if one.alive]
        control = world.controls["control-0"]
        return {
            "events waiting": len(world.heap), "rumors": max(len(one.machine.rumors) for one in sidecars),
            "comparisons under way": max(len(one.under_way_s) for one in sidecars), "seeds": len(control.seeds),
            "entries": max(one.table.tombstones + len(one.table) for one in sidecars),
        }  # fmt: skip

    def live_a_while(seconds: float) -> None:
        for _ in range(int(seconds / 10)):
            number = world.random.randrange(agents)
            one = world.sidecars[name_of(number)]
            if one.alive and world.random.random() < 0.5:
                one.change(f"{world.heap.now_s:.0f}")
            else:
                one.kill()
                world.run(1.0)
                world.add(name_of(number), instance=one.instance)
            world.run(9.0)

    live_a_while(120.0)
    early = remembered()
    live_a_while(hours * HOUR_S)
    late = remembered()
    for what, count in late.items():
        world.expect(count <= 1.5 * early[what] + 60, f"{what}: {early[what]} at first, {count} in the end")
    world.run(30.0)
    world.run_until_equal(60.0)
