"""Who gets an id, who is told that it has lost it, and what a return is worth."""

from collections.abc import Callable

import msgspec
import pytest
from harness.owners import Owners

from reach_core.messages import LeaveRequest
from reach_core.peer import Entry, Rank, owner_of
from reach_core.problem import Problem

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def world() -> Owners:
    return Owners()


def code_of(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except Problem as problem:
        return problem.code
    return "taken"


@pytest.mark.parametrize(
    ("gen", "instance", "answer"),
    [
        (0, "one", "taken"),
        (-1, "one", "taken"),
        (1, "one", "register_again"),  # this node lost what the owner registered last
        (400 * DAY_MS, "one", "register_again"),
        (0, "two", "agent_id_conflict"),
        (-1, "two", "agent_id_conflict"),
        (1, "two", "agent_id_conflict"),
    ],
)
def test_who_renews_with_which_gen(world: Owners, gen: int, instance: str, answer: str) -> None:
    current = world.register(instance="one")
    world.at_s += 5
    asked = current.gen + gen if gen else 0
    assert code_of(lambda: world.heartbeat(instance=instance, gen=asked, ver=1)) == answer


def test_the_owner_takes_the_newer_gen_over(world: Owners) -> None:
    old = world.register()
    newer = msgspec.structs.replace(old, gen=old.gen + 1)
    world.registry.meet([newer], world.now)
    world.at_s += 29
    assert world.heartbeat(gen=old.gen, ver=old.ver, flags=("unfit",)) == newer, "what it says is of the older one"
    world.run(29)
    assert world.rank() == "up", "but it is alive"


def test_the_other_process_is_told_since_when(world: Owners) -> None:
    old = world.register(instance="one")
    other = msgspec.structs.replace(old, gen=old.gen + 60_000, owner=owner_of("two"))
    world.registry.meet([other], world.now)
    with pytest.raises(Problem, match="Another process is registered as a since 2023-11-14 22:31:00 UTC"):
        world.heartbeat(instance="one", gen=old.gen)
    assert world.heartbeat(instance="two", gen=other.gen) == other


def test_a_second_process_may_have_the_id_once_the_lease_is_over_or_by_takeover(world: Owners) -> None:
    world.register(instance="one")
    world.reachable.add("a")
    world.run(29.9)
    assert code_of(lambda: world.register(instance="two")) == "agent_id_conflict"
    assert code_of(lambda: world.register(instance="two", takeover=True)) == "taken"
    world.reachable.clear()
    world.run(30.5)
    assert code_of(lambda: world.register(instance="three")) == "taken"


def test_an_agent_that_is_seen_alive_keeps_its_id(world: Owners) -> None:
    world.register(instance="one")
    world.reachable.add("a")
    world.run(305)
    assert world.rank() == "up"
    assert code_of(lambda: world.register(instance="two")) == "agent_id_conflict"


def test_what_was_revoked_does_not_come_back_by_itself(world: Owners) -> None:
    gone = world.register().tombstone(world.now.ms, Rank.REVOKED)
    world.registry.meet([gone], world.now)
    assert code_of(world.heartbeat) == "register_again"
    assert code_of(world.register) == "not_allowed"


def test_an_explicit_leave_has_a_ver_of_its_own_and_silence_has_not(world: Owners) -> None:
    left = world.register("a")
    world.leave("a")
    assert (world.entry("a").gen, world.entry("a").ver) == (left.gen, left.ver + 1)
    silent = world.register("b")
    world.run(601)
    assert (world.rank("b"), world.entry("b").ver) == ("left", silent.ver)


def fall(world: Owners) -> None:
    """Down to suspect, and no further."""
    world.run(31)
    assert world.rank() == "suspect"


def test_the_first_return_is_at_once_and_each_further_one_is_held_longer(world: Owners) -> None:
    world.register()
    fall(world)
    assert world.heartbeat().rank == Rank.UP
    for hold_s in (30, 60, 120, 240, 300, 300):
        fall(world)
        suspect = world.entry()
        held = world.heartbeat()
        assert (held.rank, held.ver) == (Rank.SUSPECT, suspect.ver + 1), "others must see that it is held on purpose"
        world.keep("a")
        world.run(hold_s - 1.5)
        assert (world.rank(), world.entry().ver) == ("suspect", held.ver)
        world.run(2.5)
        assert (world.rank(), world.entry().ver) == ("up", held.ver + 1)
        world.renewing.clear()


def test_ten_quiet_minutes_and_the_return_is_at_once_again(world: Owners) -> None:
    world.register()
    fall(world)
    world.heartbeat()
    world.keep("a")
    world.run(605)
    world.renewing.clear()
    fall(world)
    assert world.heartbeat().rank == Rank.UP


def test_registering_again_does_not_get_around_the_hold(world: Owners) -> None:
    first = world.register()
    fall(world)
    world.heartbeat()
    fall(world)
    held = world.register(gen=first.gen, ver=first.ver)
    assert held.rank == Rank.SUSPECT
    assert world.register(gen=held.gen, ver=held.ver) == held
    assert world.register().rank == Rank.UP, "a new registration is taken for what it says"


def test_flags_change_while_it_is_held(world: Owners) -> None:
    world.register()
    fall(world)
    world.heartbeat()
    fall(world)
    held = world.heartbeat()
    unfit = world.heartbeat(flags=("unfit",))
    assert (unfit.rank, unfit.ver, unfit.flags) == (Rank.SUSPECT, held.ver + 1, ("unfit",))


def test_who_falls_silent_while_held_goes_down_and_is_held_anew(world: Owners) -> None:
    world.register()
    fall(world)
    world.heartbeat()
    fall(world)
    world.heartbeat()
    world.run(61)
    down = world.entry()
    assert down.rank == Rank.DOWN
    held = world.heartbeat()
    assert (held.rank, held.ver) == (Rank.SUSPECT, down.ver + 1)
    world.keep("a")
    world.run(31)
    assert world.rank() == "up"


def test_every_entry_carries_the_name_of_its_owner(world: Owners) -> None:
    entries: list[Entry] = [world.register(instance="one"), world.heartbeat(instance="one", flags=("unfit",))]
    world.run(31)
    entries.append(world.entry())
    entries.append(world.register(instance="one", gen=entries[0].gen, version="2"))
    assert {one.owner for one in entries} == {owner_of("one")}


@pytest.mark.parametrize(("later_gen", "ver"), [(0, 5), (7, 1)])
def test_a_leave_is_newer_than_what_another_node_has_told_the_owner(world: Owners, later_gen: int, ver: int) -> None:
    """Else that node, which still hears the agent, would take it for lost by mistake and bring it back."""
    known = world.register()
    gone = LeaveRequest(agent_id="a", instance="i", gen=known.gen + later_gen, ver=known.ver + ver)
    world.registry.leave(gone, world.now)
    stone = world.registry.table.get("a")
    assert stone is not None
    assert (stone.is_tombstone, stone.gen, stone.ver) == (True, known.gen + later_gen, known.ver + ver + 1)
