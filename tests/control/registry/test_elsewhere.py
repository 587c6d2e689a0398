"""What other control nodes tell: taken for true, unless this node still hears the owner."""

import msgspec
import pytest
from harness.owners import Owners

from reach_core.messages import Load, Renewal
from reach_core.peer import Entry, Rank, owner_of
from reach_core.table import Change


@pytest.fixture
def world() -> Owners:
    return Owners()


def replace(entry: Entry, **fields: object) -> Entry:
    return msgspec.structs.replace(entry, **fields)


def meet(world: Owners, *entries: Entry) -> list[Change]:
    return world.registry.meet(entries, world.now)


def ranks(changes: list[Change]) -> list[tuple[int, str]]:
    return [(change.after.ver, change.after.rank.label) for change in changes]


def foreign(world: Owners, agent_id: str = "a", **fields: object) -> Entry:
    """An agent registered at another node."""
    entry = Entry(agent_id=agent_id, gen=world.now.ms, ver=1, rank=Rank.UP, address="h:1", owner=owner_of("i"))
    return replace(entry, **fields)


def test_an_agent_met_gets_a_lease_in_full(world: Owners) -> None:
    met = meet(world, foreign(world), foreign(world, "b", rank=Rank.DOWN), foreign(world, "c").tombstone(world.now.ms))
    assert [change.after.agent_id for change in met] == ["a", "b", "c"]
    world.run(29)
    assert (world.rank("a"), world.rank("b")) == ("up", "down")
    world.run(2)
    assert world.rank("a") == "suspect"
    world.run(572)
    assert (world.rank("a"), world.rank("b")) == ("left", "left")


def test_its_owner_may_renew_here(world: Owners) -> None:
    entry = foreign(world)
    meet(world, entry)
    assert world.heartbeat(gen=entry.gen, ver=entry.ver) == entry


@pytest.mark.parametrize("rank", [Rank.SUSPECT, Rank.DOWN])
def test_a_suspicion_of_one_that_is_heard_here_is_contradicted_at_once(world: Owners, rank: Rank) -> None:
    mine = world.register()
    world.at_s += 29
    assert ranks(meet(world, replace(mine, rank=rank))) == [(1, rank.label), (2, "up")]
    assert meet(world, replace(mine, rank=rank)) == []


def test_also_of_one_that_another_node_told_it_hears(world: Owners) -> None:
    entry = foreign(world)
    meet(world, entry)
    world.at_s += 20
    assert world.registry.hear([Renewal("a", entry.gen, 5.0)], world.now) == []
    world.at_s += 20
    assert ranks(meet(world, replace(entry, rank=Rank.SUSPECT))) == [(1, "suspect"), (2, "up")]


def test_not_of_one_with_a_lease_by_grace_only(world: Owners) -> None:
    entry = foreign(world)
    meet(world, entry)
    assert ranks(meet(world, replace(entry, rank=Rank.SUSPECT))) == [(1, "suspect")]
    world.run(61)
    assert world.rank() == "down"


def test_nor_of_one_that_is_silent_here_too(world: Owners) -> None:
    mine = world.register()
    world.at_s += 30
    assert ranks(meet(world, replace(mine, rank=Rank.SUSPECT))) == [(1, "suspect")]


def test_one_that_is_held_on_purpose_stays_so(world: Owners) -> None:
    mine = world.register()
    assert ranks(meet(world, replace(mine, ver=2, rank=Rank.SUSPECT))) == [(2, "suspect")]
    assert world.registry.hear([Renewal("a", mine.gen)], world.now) == []
    assert ranks(meet(world, replace(mine, ver=3))) == [(3, "up")]


def test_one_that_is_held_here_stays_held_though_another_calls_it_down(world: Owners) -> None:
    world.register()
    for _ in range(2):
        world.run(31)
        held = world.heartbeat()
    assert held.rank == Rank.SUSPECT
    assert ranks(meet(world, replace(held, rank=Rank.DOWN))) == [(held.ver, "down"), (held.ver + 1, "suspect")]
    world.keep("a")
    world.run(31)
    assert world.rank() == "up"


def test_a_tombstone_by_silence_of_one_that_is_heard_here_is_answered_with_its_next_gen(world: Owners) -> None:
    mine = world.register(version="7")
    world.at_s += 20
    gone, back = meet(world, mine.tombstone(world.now.ms))
    assert gone.after.rank == Rank.LEFT
    assert back.after == replace(mine, gen=mine.gen + 1)
    assert world.heartbeat(gen=mine.gen, ver=1) == back.after, "the owner takes it over"
    assert world.heartbeat(gen=mine.gen + 1, ver=1, flags=("unfit",)).ver == 2
    world.run(31)
    assert world.rank() == "suspect", "and is watched as before"


def test_two_nodes_that_answer_write_the_same(world: Owners) -> None:
    other = Owners(at_s=5_000.0)
    mine = world.register()
    meet(other, mine)
    other.registry.hear([Renewal("a", mine.gen)], other.now)
    gone = mine.tombstone(world.now.ms + 1000)
    meet(world, gone)
    meet(other, gone)
    assert world.registry.table.hash == other.registry.table.hash
    assert other.rank() == "up"


@pytest.mark.parametrize(
    ("ver", "gen", "rank"),
    [
        (2, 0, Rank.LEFT),  # the owner left
        (1, 1, Rank.LEFT),  # it was registered elsewhere, and gone
        (1, 0, Rank.REVOKED),
    ],
)
def test_other_tombstones_end_the_lease(world: Owners, ver: int, gen: int, rank: Rank) -> None:
    mine = world.register()
    gone = replace(mine, gen=mine.gen + gen).tombstone(world.now.ms, rank, ver)
    assert ranks(meet(world, gone)) == [(ver, rank.label)]
    assert world.registry.silent_s("a", world.at_s) is None
    world.run(100)
    assert world.seen == []


def test_a_tombstone_of_one_that_is_silent_here_too_ends_the_lease(world: Owners) -> None:
    mine = world.register()
    world.at_s += 31
    assert ranks(meet(world, mine.tombstone(world.now.ms))) == [(1, "left")]


def test_what_is_older_changes_nothing(world: Owners) -> None:
    mine = world.heartbeat(flags=("unfit",)) if world.register() else world.entry()
    assert meet(world, replace(mine, ver=1, flags=()), replace(mine, gen=1), replace(mine, gen=1).tombstone(1)) == []


def test_another_owners_larger_gen_ends_the_claims_of_the_former(world: Owners) -> None:
    mine = world.register(instance="one")
    world.at_s += 20
    other = replace(mine, gen=mine.gen + 1, owner=owner_of("two"))
    assert ranks(meet(world, other)) == [(1, "up")]
    world.run(29)
    assert world.rank() == "up", "a lease in full"
    assert world.heartbeat(instance="two", gen=other.gen) == other


def test_a_gen_of_the_day_after_tomorrow_is_refused(world: Owners) -> None:
    mine = world.register()
    assert meet(world, replace(mine, gen=mine.gen + 25 * 3600 * 1000)) == []
    assert world.registry.table.refused["ahead"] == 1


def test_what_its_owner_changed_elsewhere_is_a_sign_of_life(world: Owners) -> None:
    mine = world.register()
    world.run(25)
    meet(world, replace(mine, ver=2, flags=("unfit",)))
    world.run(29)
    assert world.rank() == "up"
    world.run(2)
    assert world.rank() == "suspect"


def test_renewals_keep_leases_and_bring_loads(world: Owners) -> None:
    entry = foreign(world)
    meet(world, entry)
    for _ in range(10):
        world.run(20)
        world.registry.hear([Renewal("a", entry.gen, 1.0, True, 3, 1, 8)], world.now)
    assert world.rank() == "up"
    assert world.registry.load_of("a", world.at_s) == Load(running=3, queued=1, limit=8, age_s=1.0)
    world.registry.hear([Renewal("a", entry.gen, 9.0, True, 5, 5, 8)], world.now)
    assert world.registry.load_of("a", world.at_s) == Load(running=3, queued=1, limit=8, age_s=1.0)
    world.registry.hear([Renewal("a", entry.gen)], world.now)
    assert world.registry.load_of("a", world.at_s) is not None, "no load is no news"


def test_renewals_of_other_registrations_are_ignored(world: Owners) -> None:
    mine = world.register()
    world.run(25)
    for renewal in (Renewal("a", mine.gen - 1), Renewal("a", mine.gen + 1), Renewal("nobody", 1)):
        assert world.registry.hear([renewal], world.now) == []
    world.run(6)
    assert world.rank() == "suspect"


def test_a_renewal_ends_the_doubt_and_contradicts_this_nodes_own_suspicion(world: Owners) -> None:
    mine = world.register()
    world.is_looking = False
    world.run(31)
    world.registry.hear([Renewal("a", mine.gen, 1.0)], world.now)
    world.run(28)
    assert (world.rank(), len(world.looks)) == ("up", 1)
    world.is_looking = True
    world.run(20)
    assert world.rank() == "suspect"
    assert world.registry.hear([Renewal("a", mine.gen, 20.0)], world.now) == [], "that was before"
    assert ranks(world.registry.hear([Renewal("a", mine.gen, 0.1)], world.now)) == [(2, "up")]


def test_falls_that_other_nodes_saw_count_for_the_hold(world: Owners) -> None:
    entry = foreign(world)
    for ver in (1, 2):
        meet(world, replace(entry, ver=ver))
        meet(world, replace(entry, ver=ver, rank=Rank.SUSPECT))
    held = world.heartbeat(gen=entry.gen)
    assert (held.ver, held.rank) == (3, Rank.SUSPECT)


def test_an_old_agent_that_only_a_sidecar_remembers_is_looked_at_at_once(world: Owners) -> None:
    """It may have left more than a day ago, and its tombstone be forgotten."""
    day_ms = 24 * 3600 * 1000
    old, new = foreign(world, "old", gen=world.now.ms - 2 * day_ms), foreign(world, "new")
    alive = foreign(world, "alive", gen=old.gen)
    world.reachable.add("alive")
    world.registry.meet([old, new, alive], world.now, is_hearsay=True)
    world.run(3)
    assert (world.rank("old"), world.rank("new"), world.rank("alive")) == ("suspect", "up", "up")


def test_the_same_from_a_control_node_has_its_lease(world: Owners) -> None:
    meet(world, foreign(world, gen=world.now.ms - 2 * 24 * 3600 * 1000))
    world.run(25)
    assert world.rank("a") == "up"
