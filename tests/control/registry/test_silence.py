"""Leases that run out, second looks, and the times at which this node's own clock is not to be trusted."""

import time

import pytest
from harness.owners import Owners

from reach_control.registry.look import MOST_LOOKS, NOBODY, Sighting
from reach_core.keyring import Signer


@pytest.fixture
def world() -> Owners:
    """Twenty agents that renew."""
    world = Owners()
    world.fill(20)
    world.run(15)
    return world


def silence(world: Owners, count: int, seconds: float = 0.0) -> list[str]:
    """So many agents renew no more."""
    silent = list(world.renewing)[:count]
    for agent_id in silent:
        del world.renewing[agent_id]
    world.run(seconds)
    return silent


def test_a_look_goes_before_a_suspicion(world: Owners) -> None:
    world.is_looking = False
    silence(world, 1, 31)
    (look,) = world.looks
    assert (look.agent_id, look.address, look.gen) == ("agent-0", "agent-0:1", world.entry("agent-0").gen)
    assert len(set(look.witnesses) - {"agent-0:1"}) == 3
    assert world.rank("agent-0") == "up"
    changes = world.registry.looked("agent-0", look.gen, Sighting(False, 0, 3), world.now)
    assert [(one.after.agent_id, one.after.rank.label) for one in changes] == [("agent-0", "suspect")]
    assert changes[0].after.ver == 1, "bad news needs no new version"


@pytest.mark.parametrize(
    ("sighting", "rank"),
    [
        (Sighting(True, 0, 3), "up"),
        (Sighting(False, 1, 2), "up"),
        (Sighting(False, 0, 3), "suspect"),
        (Sighting(False, 0, 0), "suspect"),
        (Sighting(False, 0, 1), "suspect"),
    ],
)
def test_whoever_sees_it_alive_is_believed(world: Owners, sighting: Sighting, rank: str) -> None:
    world.sighting = lambda look: sighting  # type: ignore[method-assign]
    silence(world, 1, 31)
    assert world.rank("agent-0") == rank


def test_one_that_is_seen_is_looked_at_every_heartbeat_period(world: Owners) -> None:
    world.reachable.add("agent-0")
    silence(world, 1, 100)
    assert len(world.looks) in (7, 8)
    assert world.rank("agent-0") == "up"
    world.reachable.clear()
    world.run(11)
    assert world.rank("agent-0") == "suspect"
    world.run(20)
    assert world.rank("agent-0") == "suspect", "a minute of silence counts from when it was seen last"


def test_a_heartbeat_during_the_look_settles_it(world: Owners) -> None:
    world.is_looking = False
    silence(world, 1, 31)
    world.heartbeat("agent-0")
    assert world.registry.looked("agent-0", world.looks[0].gen, Sighting(False, 0, 3), world.now) == []
    assert world.rank("agent-0") == "up"
    world.is_looking = True
    world.run(35)
    assert world.rank("agent-0") == "suspect", "and it is watched as before"


def test_a_new_registration_during_the_look_settles_it(world: Owners) -> None:
    world.is_looking = False
    silence(world, 1, 31)
    gen = world.looks[0].gen
    assert world.register("agent-0").gen > gen
    assert world.registry.looked("agent-0", gen, Sighting(False, 0, 3), world.now) == []
    assert world.rank("agent-0") == "up"


def test_a_look_that_never_comes_back_was_in_vain(world: Owners) -> None:
    world.is_looking = False
    silence(world, 1, 34)
    assert world.rank("agent-0") == "up"
    world.run(2)
    assert world.rank("agent-0") == "suspect"


def test_nobody_is_asked_twice_at_once_and_only_so_many_in_all() -> None:
    world = Owners()
    world.fill(1000)
    world.is_looking = False
    silence(world, 100, 35)
    assert len(world.looks) == len({look.agent_id for look in world.looks}) == MOST_LOOKS


def test_few_that_lapse_are_suspected_many_are_not(world: Owners) -> None:
    world.is_alone = True  # nothing confirms anything
    few = silence(world, 3, 45)
    assert {world.rank(one) for one in few} == {"suspect"}
    world.run(60)  # the window passes
    many = silence(world, 4, 45)
    assert {world.rank(one) for one in many} == {"up"}
    assert "4 of 20 agents" in str(world.registry.frozen(world.now))
    assert {world.rank(one) for one in few} == {"down"}, "who was gone before stays so"


def test_it_ends_when_they_are_heard_of_again(world: Owners) -> None:
    world.is_alone = True
    silent = silence(world, 10, 45)
    assert world.registry.frozen(world.now)
    world.keep(*silent)
    world.run(11)
    assert world.registry.frozen(world.now) is None
    assert {world.rank(one) for one in silent} == {"up"}
    assert all(world.entry(one).ver == 1 for one in silent), "nobody ever heard anything of it"


def test_it_ends_after_five_minutes(world: Owners) -> None:
    world.is_alone = True
    silent = silence(world, 10, 310)
    assert {world.rank(one) for one in silent} == {"up"}
    world.run(40)
    assert world.registry.frozen(world.now) is None
    assert {world.rank(one) for one in silent} == {"down"}


def test_deaths_that_two_sidecars_confirm_pass_meanwhile(world: Owners) -> None:
    silent = silence(world, 10, 45)
    assert {world.rank(one) for one in silent} == {"suspect"}
    world.run(40)
    assert {world.rank(one) for one in silent} == {"down"}
    assert world.registry.frozen(world.now) is None, "what is certain says nothing about this node"


def test_leaves_pass_meanwhile(world: Owners) -> None:
    world.is_alone = True
    silence(world, 10, 45)
    assert world.registry.frozen(world.now)
    world.leave("agent-0")
    assert world.rank("agent-0") == "left"


def test_suspects_go_no_further_meanwhile(world: Owners) -> None:
    world.is_alone = True
    first = silence(world, 2, 8)
    silence(world, 8, 20)
    assert {world.rank(one) for one in first} == {"suspect"}
    world.run(40)
    assert {world.rank(one) for one in first} == {"suspect"}
    world.run(310)
    assert {world.rank(one) for one in first} == {"down"}


@pytest.mark.parametrize("pause_s", [6, 30, 120, 3600])
def test_a_pause_of_this_node_marks_nobody_down(world: Owners, pause_s: float) -> None:
    world.is_alone = True
    world.at_s += 1 + pause_s
    world.run(60)
    assert world.registry.stalls == 1
    assert world.seen == []


def test_a_look_during_which_this_node_stood_still_is_made_again(world: Owners) -> None:
    world.is_looking = False
    silence(world, 1, 31)
    look = world.looks[0]
    world.at_s += 20
    assert world.registry.looked(look.agent_id, look.gen, NOBODY, world.now) == []
    assert world.registry.stalls == 1
    world.is_looking = True
    world.run(1)
    assert len(world.looks) == 2
    assert world.rank("agent-0") == "suspect"


def test_twenty_thousand_leases_that_run_out_at_once_do_not_stop_the_node() -> None:
    world = Owners()
    signer = Signer(b"k" * 32)
    world.registry._ledger._sign = signer.sign
    for n in range(20_000):
        world.register(f"agent-{n}")
    world.run(29.5)
    world.at_s += 0.6
    took, looks = [], []
    for _ in range(100):
        began = time.thread_time()
        tick = world.registry.tick(world.now)
        took.append(time.thread_time() - began)
        looks += tick.looks
        assert tick.changes == []
        if tick.next_s > 0.5:
            break
        world.at_s += max(0.01, tick.next_s)
    assert "20000 of 20000" in str(world.registry.frozen(world.now))
    assert len(looks) == MOST_LOOKS
    # 50 ms a tick are allowed; one may meet a run of the garbage collector, which is not this code's.
    assert sorted(took)[-2] < 0.05, [round(one * 1000, 1) for one in sorted(took)[-5:]]
