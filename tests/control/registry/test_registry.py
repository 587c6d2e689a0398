"""The registry in virtual time: hours pass in milliseconds."""

import random

import msgspec
import pytest

from reach_control.registry.lease import Moment, Terms
from reach_control.registry.registry import Registry
from reach_core.messages import HeartbeatRequest, LeaveRequest, Load, RegisterRequest
from reach_core.peer import Capability, Entry, Rank
from reach_core.problem import Problem
from reach_core.table import PeerTable

EPOCH_MS = 1_700_000_000_000


class World:
    """A registry, its clock, and owners who keep renewing."""

    def __init__(self, table: PeerTable | None = None, at_s: float = 1000.0) -> None:
        self.at_s = at_s
        self.registry = Registry("local", Terms(), table or PeerTable(), self.now)
        self.renewing: dict[str, HeartbeatRequest] = {}
        self.seen: list[str] = []

    @property
    def now(self) -> Moment:
        return Moment(self.at_s, EPOCH_MS + round(self.at_s * 1000))

    def register(self, agent_id: str = "a", instance: str = "i", healthy: bool = True, **fields: object) -> Entry:
        request = RegisterRequest(
            **({"agent_id": agent_id, "instance": instance, "address": "h:1", "healthy": healthy} | fields)
        )
        return self.registry.register(request, self.now).entry

    def heartbeat(self, agent_id: str = "a", instance: str = "i", healthy: bool = True, **fields: object) -> Entry:
        request = HeartbeatRequest(**({"agent_id": agent_id, "instance": instance, "healthy": healthy} | fields))
        return self.registry.heartbeat(request, self.now).entry

    def leave(self, agent_id: str = "a", instance: str = "i") -> None:
        self.registry.leave(LeaveRequest(agent_id=agent_id, instance=instance), self.now)

    def keep(self, agent_id: str, instance: str = "i") -> None:
        self.renewing[agent_id] = HeartbeatRequest(agent_id=agent_id, instance=instance, healthy=True)

    def run(self, seconds: float) -> None:
        """Tick as told, renew every 10 s."""
        end_s, beat_s = self.at_s + seconds, self.at_s
        while self.at_s < end_s:
            tick = self.registry.tick(self.now)
            assert 0 <= tick.next_s <= 1
            self.seen += [f"{change.after.agent_id} {change.after.rank.label}" for change in tick.changes]
            if self.at_s >= beat_s:
                beat_s += 10
                for request in self.renewing.values():
                    self.registry.heartbeat(request, self.now)
            self.at_s = min(end_s, self.at_s + max(tick.next_s, 0.001))

    def rank(self, agent_id: str = "a") -> str | None:
        entry = self.registry.table.get(agent_id)
        return entry.rank.label if entry else None


@pytest.fixture
def world() -> World:
    return World()


def test_an_agent_is_joining_until_its_health_was_confirmed(world: World) -> None:
    joined = world.register(healthy=False)
    assert joined.rank == Rank.JOINING
    assert world.heartbeat(healthy=False).rank == Rank.JOINING
    assert world.heartbeat(healthy=True, flags=("unfit",)).rank == Rank.JOINING
    up = world.heartbeat(healthy=True)
    assert up.rank == Rank.UP
    assert up.gen == joined.gen
    assert world.heartbeat(healthy=False).rank == Rank.UP  # what was confirmed stays so; unfit is a flag


def test_confirming_needs_no_new_version(world: World) -> None:
    joined = world.register(healthy=False)
    assert world.heartbeat().ver == joined.ver


def test_renewals_alter_nothing(world: World) -> None:
    world.register()
    before = world.registry.table.seq, world.registry.table.hash
    world.keep("a")
    world.run(600)
    assert (world.registry.table.seq, world.registry.table.hash) == before
    assert world.rank() == "up"


def test_silence_makes_suspect_down_and_a_tombstone_each_within_a_second(world: World) -> None:
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


def test_a_heartbeat_contradicts_a_suspicion_with_a_new_version(world: World) -> None:
    first = world.register()
    for seconds in (31, 61):
        world.run(seconds)
        suspected = world.registry.table.get("a")
        assert suspected is not None
        assert suspected.rank in (Rank.SUSPECT, Rank.DOWN)
        back = world.heartbeat()
        assert back.rank == Rank.UP
        assert back.gen == first.gen
        assert back.ver == suspected.ver + 1


def test_one_silent_agent_does_not_touch_another(world: World) -> None:
    world.register("a")
    world.register("b")
    world.keep("b")
    world.run(100)
    assert (world.rank("a"), world.rank("b")) == ("down", "up")


def test_flags_travel_with_a_new_version(world: World) -> None:
    up = world.register()
    unfit = world.heartbeat(flags=("unfit",))
    assert (unfit.rank, unfit.ver, unfit.flags) == (Rank.UP, up.ver + 1, ("unfit",))
    fit = world.heartbeat(flags=())
    assert (fit.ver, fit.flags) == (up.ver + 2, ())


def test_a_second_process_is_refused_while_the_lease_runs(world: World) -> None:
    world.register(instance="one")
    world.at_s += 29
    for attempt in (world.register, world.heartbeat):
        with pytest.raises(Problem, match="Another process is registered as a and was heard of 29 s ago") as caught:
            attempt(instance="two")
        assert caught.value.status == 409
    with pytest.raises(Problem, match="Another process"):
        world.leave(instance="two")
    assert world.rank() == "up"


def test_a_lapsed_lease_may_be_replaced_and_the_old_process_is_told(world: World) -> None:
    old = world.register(instance="one")
    world.run(31)
    new = world.register(instance="two")
    assert new.gen > old.gen
    with pytest.raises(Problem) as caught:
        world.heartbeat(instance="one")
    assert caught.value.code == "agent_id_conflict"


def test_takeover_replaces_a_live_process(world: World) -> None:
    old = world.register(instance="one")
    new = world.register(instance="two", takeover=True)
    assert new.gen > old.gen
    with pytest.raises(Problem) as caught:
        world.heartbeat(instance="one")
    assert caught.value.code == "agent_id_conflict"
    assert world.heartbeat(instance="two") == new


def test_the_same_process_may_register_again_and_change_what_it_declares(world: World) -> None:
    first = world.register()
    same = world.register(gen=first.gen, ver=first.ver)
    assert same == first
    capabilities = (Capability(name="summarize"),)
    changed = world.register(gen=first.gen, ver=first.ver, capabilities=capabilities)
    assert (changed.gen, changed.ver, changed.capabilities) == (first.gen, first.ver + 1, capabilities)
    restarted = world.register(capabilities=capabilities, healthy=False)
    assert restarted.gen > changed.gen
    assert restarted.rank == Rank.JOINING


def test_registering_again_contradicts_a_suspicion(world: World) -> None:
    first = world.register()
    world.run(31)
    back = world.register(gen=first.gen, ver=first.ver)
    assert (back.rank, back.ver, back.gen) == (Rank.UP, first.ver + 1, first.gen)


def test_gen_grows_even_when_the_clock_stands_still_or_goes_back(world: World) -> None:
    gens = [world.register().gen for _ in range(5)]
    world.at_s -= 500
    gens.append(world.register().gen)
    assert gens == sorted(set(gens))


def test_gen_is_larger_than_the_owner_had_before(world: World) -> None:
    ahead = world.now.ms + 3_600_000
    assert world.register(gen=ahead).gen == ahead + 1
    broken = world.now.ms + 100 * 24 * 3_600_000
    assert world.register("b", gen=broken).gen == world.now.ms


def test_leaving_is_at_once_and_registering_wins_over_it(world: World) -> None:
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


def test_an_unknown_agent_is_asked_to_register_again(world: World) -> None:
    with pytest.raises(Problem) as caught:
        world.heartbeat("nobody")
    assert caught.value.code == "register_again"


def test_after_a_restart_nothing_expires_for_one_lease(world: World) -> None:
    for agent_id in ("a", "b", "c"):
        world.register(agent_id)
    world.run(20)
    world.leave("c")
    noted = list(world.registry.table.entries(tombstones=True))

    again = World(at_s=5.0)  # another boot: the monotonic clock starts anew
    again.at_s += 200_000  # and the wall clock has gone on
    again.registry = Registry("local", Terms(), PeerTable(), again.now)
    again.registry.restore(noted, {"a": "i", "b": "i"}, again.now)
    assert (again.rank("a"), again.rank("b"), again.rank("c")) == ("up", "up", None)

    again.run(25)
    assert again.heartbeat("a").ver == 1
    again.run(6)
    assert (again.rank("a"), again.rank("b")) == ("up", "suspect")
    with pytest.raises(Problem):
        again.register("a", instance="other")


def test_a_restored_agent_without_a_known_owner_takes_the_first_to_renew(world: World) -> None:
    world.register()
    again = World()
    again.registry.restore(list(world.registry.table), {}, again.now)
    again.heartbeat(instance="new")
    with pytest.raises(Problem):
        again.heartbeat(instance="another")


def test_a_node_that_stalled_grants_the_stalled_time(world: World) -> None:
    world.register("a")
    world.run(20)
    world.at_s += 120  # SIGSTOP, or a machine that swaps
    world.run(2)
    assert world.rank("a") == "up"
    assert world.registry.stalls == 1
    world.run(20)
    assert world.rank("a") == "suspect"


def test_a_node_that_lost_its_latest_notes_goes_on_above_what_others_have_seen(world: World) -> None:
    noted = world.register()
    latest = world.heartbeat(flags=("unfit",))
    behind = World()
    behind.registry.restore([noted], {"a": "i"}, behind.now)
    entry = behind.heartbeat(gen=latest.gen, ver=latest.ver)
    assert entry.ver == latest.ver + 1
    assert entry.order > latest.order
    assert behind.heartbeat(gen=entry.gen, ver=entry.ver) == entry


def test_load_is_kept_for_those_who_ask(world: World) -> None:
    world.register(load=Load(running=1, queued=0, limit=4))
    world.at_s += 5
    assert world.registry.load_of("a", world.at_s) == Load(running=1, queued=0, limit=4, age_s=5.0)
    world.heartbeat(load=Load(running=2, queued=1, limit=4))
    assert world.registry.load_of("a", world.at_s) == Load(running=2, queued=1, limit=4)
    assert world.registry.load_of("nobody", world.at_s) is None


def test_a_full_table_says_so() -> None:
    world = World(PeerTable(max_entries=1))
    world.register("a")
    with pytest.raises(Problem, match="The mesh is full: it has 1 agents"):
        world.register("b")
    world.leave("a")
    world.register("b")


def test_a_clock_that_went_back_does_not_register_what_nobody_would_see() -> None:
    world = World()
    had = world.register("a").gen
    world.leave("a")
    world.at_s -= 3 * 86400
    with pytest.raises(Problem, match="Set the clock of this machine right") as caught:
        world.register("a")
    assert caught.value.status == 409
    assert world.registry.silent_s("a", world.at_s) is None, "no lease for what is not in the table"
    world.at_s += 3 * 86400
    assert world.register("a").gen > had


def test_the_heap_stays_small_however_often_agents_change(world: World) -> None:
    world.register()
    for n in range(2_000):
        world.at_s += 1
        world.heartbeat(flags=("unfit",) if n % 2 else ())
        world.registry.tick(world.now)
    assert len(world.registry._due) <= 2


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_every_owner_that_renews_ends_up_and_every_silent_one_goes(seed: int) -> None:
    rng = random.Random(seed)
    world, follower, seen = World(), PeerTable(), 0
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
