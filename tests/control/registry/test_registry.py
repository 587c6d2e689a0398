"""The registry in virtual time: hours pass in milliseconds."""

import random

import msgspec
import pytest
from harness.owners import Owners

from reach_control.registry.lease import Terms
from reach_control.registry.registry import Registry
from reach_core.messages import Load
from reach_core.peer import Capability, Entry, Rank, owner_of
from reach_core.problem import Problem
from reach_core.table import PeerTable


@pytest.fixture
def world() -> Owners:
    return Owners()


def test_an_agent_is_joining_until_its_health_was_confirmed(world: Owners) -> None:
    joined = world.register(healthy=False)
    assert joined.rank == Rank.JOINING
    assert world.heartbeat(healthy=False).rank == Rank.JOINING
    assert world.heartbeat(healthy=True, flags=("unfit",)).rank == Rank.JOINING
    up = world.heartbeat(healthy=True)
    assert up.rank == Rank.UP
    assert up.gen == joined.gen
    assert world.heartbeat(healthy=False).rank == Rank.UP  # what was confirmed stays so; unfit is a flag


def test_confirming_needs_no_new_version(world: Owners) -> None:
    joined = world.register(healthy=False)
    assert world.heartbeat().ver == joined.ver


def test_renewals_alter_nothing(world: Owners) -> None:
    world.register()
    before = world.registry.table.seq, world.registry.table.hash
    world.keep("a")
    world.run(600)
    assert (world.registry.table.seq, world.registry.table.hash) == before
    assert world.rank() == "up"


def test_silence_makes_suspect_down_and_a_tombstone_each_within_a_second(world: Owners) -> None:
    world.register()
    for seconds, rank in (
        (29.9, "up"),
        (1.1, "suspect"),
        (28.9, "suspect"),
        (1.1, "down"),
        (538.9, "down"),
        (1.1, "left"),
    ):
        world.run(seconds)
        assert world.rank() == rank
    assert world.seen == ["a suspect", "a down", "a left"]
    world.run(24 * 3600 + 1)
    assert world.rank() is None


@pytest.mark.parametrize(("silent_s", "rank"), [(31, "suspect"), (61, "down")])
def test_a_heartbeat_contradicts_a_suspicion_with_a_new_version(world: Owners, silent_s: float, rank: str) -> None:
    first = world.register()
    world.run(silent_s)
    assert world.rank() == rank
    back = world.heartbeat()
    assert (back.rank, back.gen, back.ver) == (Rank.UP, first.gen, first.ver + 1)


def test_one_silent_agent_does_not_touch_another(world: Owners) -> None:
    world.register("a")
    world.register("b")
    world.keep("b")
    world.run(100)
    assert (world.rank("a"), world.rank("b")) == ("down", "up")


def test_flags_travel_with_a_new_version(world: Owners) -> None:
    up = world.register()
    unfit = world.heartbeat(flags=("unfit",))
    assert (unfit.rank, unfit.ver, unfit.flags) == (Rank.UP, up.ver + 1, ("unfit",))
    fit = world.heartbeat(flags=())
    assert (fit.ver, fit.flags) == (up.ver + 2, ())


def test_a_second_process_is_refused_while_the_lease_runs(world: Owners) -> None:
    world.register(instance="one")
    world.at_s += 29
    for attempt in (world.register, world.heartbeat):
        with pytest.raises(Problem, match="a since 2023-11-14 22:30:00 UTC and was heard of 29 s ago") as caught:
            attempt(instance="two")
        assert caught.value.status == 409
    with pytest.raises(Problem, match="Another process"):
        world.leave(instance="two")
    assert world.rank() == "up"


def test_a_lapsed_lease_may_be_replaced_and_the_old_process_is_told(world: Owners) -> None:
    old = world.register(instance="one")
    world.run(31)
    new = world.register(instance="two")
    assert new.gen > old.gen
    with pytest.raises(Problem) as caught:
        world.heartbeat(instance="one")
    assert caught.value.code == "agent_id_conflict"


def test_takeover_replaces_a_live_process(world: Owners) -> None:
    old = world.register(instance="one")
    new = world.register(instance="two", takeover=True)
    assert new.gen > old.gen
    with pytest.raises(Problem) as caught:
        world.heartbeat(instance="one")
    assert caught.value.code == "agent_id_conflict"
    assert world.heartbeat(instance="two") == new


def test_the_same_process_may_register_again_and_change_what_it_declares(world: Owners) -> None:
    first = world.register()
    same = world.register(gen=first.gen, ver=first.ver)
    assert same == first
    capabilities = (Capability(name="summarize"),)
    changed = world.register(gen=first.gen, ver=first.ver, capabilities=capabilities)
    assert (changed.gen, changed.ver, changed.capabilities) == (first.gen, first.ver + 1, capabilities)
    restarted = world.register(capabilities=capabilities, healthy=False)
    assert restarted.gen > changed.gen
    assert restarted.rank == Rank.JOINING


def test_registering_again_contradicts_a_suspicion(world: Owners) -> None:
    first = world.register()
    world.run(31)
    back = world.register(gen=first.gen, ver=first.ver)
    assert (back.rank, back.ver, back.gen) == (Rank.UP, first.ver + 1, first.gen)


def test_gen_grows_even_when_the_clock_stands_still_or_goes_back(world: Owners) -> None:
    gens = [world.register().gen for _ in range(5)]
    world.at_s -= 500
    gens.append(world.register().gen)
    assert gens == sorted(set(gens))


def test_gen_is_larger_than_the_owner_had_before(world: Owners) -> None:
    ahead = world.now.ms + 3_600_000
    assert world.register(gen=ahead).gen == ahead + 1
    broken = world.now.ms + 100 * 24 * 3_600_000
    assert world.register("b", gen=broken).gen == world.now.ms


def test_leaving_is_at_once_and_registering_wins_over_it(world: Owners) -> None:
    first = world.register()
    world.leave()
    assert world.rank() == "left"
    world.leave()  # again: nothing to do
    with pytest.raises(Problem) as caught:
        world.heartbeat()
    assert (caught.value.code, caught.value.status) == ("register_again", 404)
    again = world.register()
    assert again.gen > first.gen
    assert world.rank() == "up"


def test_an_unknown_agent_is_asked_to_register_again(world: Owners) -> None:
    with pytest.raises(Problem) as caught:
        world.heartbeat("nobody")
    assert caught.value.code == "register_again"


def test_after_a_restart_nothing_expires_for_one_lease(world: Owners) -> None:
    for agent_id in ("a", "b", "c"):
        world.register(agent_id)
    world.run(20)
    world.leave("c")
    noted = list(world.registry.table.entries(tombstones=True))

    again = Owners(at_s=5.0)  # another boot: the monotonic clock starts anew
    again.at_s += 200_000  # and the wall clock has gone on
    again.registry = Registry("local", Terms(), PeerTable(), again.now, random.Random(1))
    again.registry.restore(noted, again.now)
    assert "just started" in str(again.registry.frozen(again.now))
    assert (again.rank("a"), again.rank("b"), again.rank("c")) == ("up", "up", None)

    again.run(25)
    assert again.heartbeat("a").ver == 1
    again.run(6)
    assert (again.rank("a"), again.rank("b")) == ("up", "suspect")
    with pytest.raises(Problem):
        again.register("a", instance="other")


def test_a_restored_agent_without_a_known_owner_takes_the_first_to_renew(world: Owners) -> None:
    noted = msgspec.structs.replace(world.register(), owner="")
    again = Owners()
    again.registry.restore([noted], again.now)
    taken = again.heartbeat(instance="new")
    assert (taken.owner, taken.ver) == (owner_of("new"), noted.ver + 1)
    with pytest.raises(Problem):
        again.heartbeat(instance="another")


def test_a_node_that_stalled_grants_the_stalled_time(world: Owners) -> None:
    world.register("a")
    world.run(20)
    world.at_s += 120  # SIGSTOP, or a machine that swaps
    world.run(2)
    assert world.rank("a") == "up"
    assert world.registry.stalls == 1
    assert "stood still for 120 s" in str(world.registry.frozen(world.now))
    world.run(27)
    assert world.rank("a") == "up"
    world.run(4)
    assert world.rank("a") == "suspect"
    assert world.registry.frozen(world.now) is None


def test_a_node_that_lost_its_latest_notes_goes_on_above_what_others_have_seen(world: Owners) -> None:
    noted = world.register()
    latest = world.heartbeat(flags=("unfit",))
    behind = Owners()
    behind.registry.restore([noted], behind.now)
    entry = behind.heartbeat(gen=latest.gen, ver=latest.ver)
    assert entry.ver == latest.ver + 1
    assert entry.order > latest.order
    assert behind.heartbeat(gen=entry.gen, ver=entry.ver) == entry


def test_load_is_kept_for_those_who_ask(world: Owners) -> None:
    world.register(load=Load(running=1, queued=0, limit=4))
    world.at_s += 5
    assert world.registry.load_of("a", world.at_s) == Load(running=1, queued=0, limit=4, age_s=5.0)
    world.heartbeat(load=Load(running=2, queued=1, limit=4))
    assert world.registry.load_of("a", world.at_s) == Load(running=2, queued=1, limit=4)
    assert world.registry.load_of("nobody", world.at_s) is None


def test_callers_complaints_make_a_health_check_due(world: Owners) -> None:
    for agent_id in ("a", "b", "sick", "unfit"):
        world.register(agent_id)
    world.heartbeat("unfit", flags=("unfit",))
    world.heartbeat("a", failures={"sick": 3, "unfit": 9, "nobody": 9})
    world.tick()
    assert world.probes == []
    world.heartbeat("b", failures={"sick": 2})
    world.tick()
    assert world.probes == [("sick", world.entry("sick").gen, "sick:1")]


def test_a_full_table_says_so() -> None:
    world = Owners(PeerTable(max_entries=1))
    world.register("a")
    with pytest.raises(Problem, match="The mesh is full: it has 1 agents"):
        world.register("b")
    world.leave("a")
    world.register("b")


def test_a_clock_that_went_back_does_not_register_what_nobody_would_see() -> None:
    world = Owners()
    had = world.register("a").gen
    world.leave("a")
    world.at_s -= 3 * 86400
    with pytest.raises(Problem, match="Set the clock of this machine right") as caught:
        world.register("a")
    assert caught.value.status == 409
    assert world.registry.silent_s("a", world.at_s) is None, "no lease for what is not in the table"
    world.at_s += 3 * 86400
    assert world.register("a").gen > had


def test_entries_of_a_key_that_is_to_go_are_signed_anew_suspicions_are_not(world: Owners) -> None:
    for agent_id in ("a", "b", "c", "d"):
        world.register(agent_id)
    world.keep("a", "b")
    world.leave("d")
    world.run(31)
    old = {entry.agent_id: entry for entry in world.registry.table.entries(tombstones=True)}

    def is_old(entry: Entry) -> bool:
        return entry is old[entry.agent_id]

    anew = [world.registry.resign(is_old, 2, world.now) for _ in range(3)]
    assert [len(changes) for changes in anew] == [2, 1, 0]
    assert {one: world.entry(one).ver - old[one].ver for one in old} == {"a": 1, "b": 1, "c": 0, "d": 1}
    assert (world.rank("c"), world.rank("d")) == ("suspect", "left")


def test_one_that_was_away_too_long_forgets_everything_and_begins_anew(world: Owners) -> None:
    for agent_id in ("a", "b"):
        world.register(agent_id)
    world.is_looking = False
    world.run(31)
    assert {change.after.agent_id for change in world.registry.begin_anew()} == {"a", "b"}
    assert world.registry.renewals(0, world.now)[1] == []
    world.run(100)
    assert world.seen == []
    with pytest.raises(Problem) as caught:
        world.heartbeat("a")
    assert caught.value.code == "register_again"
    world.register("a")
    assert world.rank("a") == "up"


def test_the_heap_stays_small_however_often_agents_change(world: Owners) -> None:
    world.register()
    for n in range(2_000):
        world.at_s += 1
        world.heartbeat(flags=("unfit",) if n % 2 else ())
        world.registry.tick(world.now)
    assert len(world.registry._ledger._due) <= 2


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_every_owner_that_renews_ends_up_and_every_silent_one_goes(seed: int) -> None:
    rng = random.Random(seed)
    world, follower, seen = Owners(), PeerTable(), 0
    ids = [f"agent-{n}" for n in range(8)]
    codes: set[str] = set()
    for _ in range(300):
        agent_id = rng.choice(ids)
        action = rng.randrange(6)
        try:
            if action == 0:
                world.register(agent_id, healthy=rng.random() < 0.5)
            elif action == 1:
                world.leave(agent_id)
            elif action == 2:
                world.heartbeat(agent_id, flags=rng.choice([(), ("unfit",), ("draining",)]))
            elif action == 3:
                world.register(agent_id, instance="other", takeover=rng.random() < 0.3)
            else:
                world.run(rng.choice([0.5, 3, 35, 70]))
        except Problem as problem:
            codes.add(problem.code)
        delta = world.registry.table.delta_since(seen)
        assert delta is not None
        follower.merge([msgspec.structs.replace(entry) for entry in delta], world.now.ms)
        seen = world.registry.table.seq
        assert follower.hash == world.registry.table.hash
    assert codes <= {"agent_id_conflict", "register_again"}
    silent = set(rng.sample(ids, 3))
    for agent_id in ids:
        world.register(agent_id, takeover=True)
        if agent_id not in silent:
            world.keep(agent_id)
    world.run(700)
    assert {agent_id for agent_id in ids if world.rank(agent_id) == "up"} == set(ids) - silent
    assert {agent_id for agent_id in ids if world.rank(agent_id) == "left"} == silent
