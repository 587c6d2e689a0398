"""Which agent gets the next attempt, and what is said where none may have it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from sidecar.forward.known import Known, call_to

from reach_core.peer import Capability, Limits, Rank
from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.choose import SHOWN, Choose
from reach_sidecar.forward.offers import FindOffers
from reach_sidecar.membership.peer import Peer
from reach_sidecar.policy.attributes import parse_requirements
from reach_sidecar.policy.breaker import OPENS_AT
from reach_sidecar.policy.pick import Weights


def now() -> float:
    return asyncio.get_running_loop().time()


class World:
    """`count` agents b0, b1, … that offer `summarize`."""

    def __init__(self, count: int, seed: int = 1) -> None:
        self.known = Known()
        self.peers = [self.known.put(f"b{number}", "summarize") for number in range(count)]
        self.choose = Choose(view=self.known.view, weights=Weights(), random=Random(seed))

    def call(self, *fields: str, session: bytes = b"") -> Call:
        call = call_to("/to/summarize/x", *fields)
        call.session = session
        call.offers = FindOffers(self.known.view)(call)
        return call

    def chosen(self, *tried: str, again: bool = False, session: bytes = b"") -> str | None:
        offer = self.choose(self.call(session=session), set(tried), again=again)
        return None if offer is None else offer.peer.agent_id

    def many(self, times: int = 300) -> Counter[str | None]:
        return Counter(self.chosen() for _ in range(times))

    def none_left(self) -> Problem:
        return self.choose.none_left(self.call())


def break_it(peer: Peer) -> None:
    for _ in range(OPENS_AT):
        peer.track("summarize").breaker.failed(now(), Random(1))


def fill(peer: Peer) -> None:
    peer.hear_load(peer.entry.limits.max_concurrency, peer.entry.limits.queue, now())


OUT: dict[str, Callable[[World], object]] = {
    "agent_down": lambda world: world.known.put("b0", "summarize", rank=Rank.SUSPECT),
    "agent_unfit": lambda world: world.known.put("b0", "summarize", flags=("unfit",)),
    "draining": lambda world: world.known.put("b0", "summarize", flags=("draining",)),
    "unreachable": lambda world: world.peers[0].put_out("refused", now()),
    "breaker": lambda world: break_it(world.peers[0]),
    "full": lambda world: fill(world.peers[0]),
}


@pytest.mark.parametrize("reason", OUT)
async def test_who_may_not_be_called_is_not(reason: str) -> None:
    """The six reasons, each alone (design §3, "Picking")."""
    world = World(2)
    OUT[reason](world)
    assert world.many(50) == {"b1": 50}
    call = world.call()
    world.choose(call, set(), again=False)
    assert call.remarks == {"not_picked": {"b0": reason}}
    assert world.chosen("b1") is None
    alone = World(1)
    OUT[reason](alone)
    assert alone.chosen() is None
    assert alone.none_left().code == {"breaker": "breaker_open", "full": "backpressure"}.get(
        reason, "no_agent_available")


async def test_nothing_is_remarked_where_all_may_be_called() -> None:
    world = World(3)
    call = world.call()
    assert world.choose(call, set(), again=False) is not None
    assert call.remarks is None


async def test_the_idler_of_two_is_called() -> None:
    world = World(2)
    world.peers[0].hear_load(40, 0, now())
    assert world.many(50) == {"b1": 50}


async def test_what_failed_lately_is_called_less() -> None:
    world = World(2)
    for _ in range(OPENS_AT - 1):
        world.peers[0].track("summarize").failures.note(True, now())
    assert world.many(50) == {"b1": 50}


async def test_what_is_preferred_is_called_while_it_is_not_much_busier() -> None:
    world = World(0)
    slow, quick = (world.known.put(name, Capability(name="summarize", attributes={"speed": [name]}))
                   for name in ("slow", "quick"))
    call = world.call()
    call.preferred = parse_requirements("speed=quick")
    for load, expected in ((0, quick), (10, quick), (3 * quick.entry.limits.max_concurrency, slow)):
        quick.hear_load(load, 0, now())
        offer = world.choose(call, set(), again=False)
        assert offer is not None
        assert offer.peer is expected, "a preference is no requirement"


async def test_weights_share_the_calls() -> None:
    world = World(0)
    for name, weight in (("heavy", 3.0), ("light", 1.0), ("also-light", 1.0)):
        world.known.put(name, "summarize", limits=Limits(weight=weight))
    counts = world.many(600)
    assert counts["heavy"] > counts["light"] > 0, counts
    assert counts["heavy"] > counts["also-light"] > 0, counts


async def test_who_was_tried_is_not_tried_at_once_again() -> None:
    world = World(3)
    assert world.chosen("b0", "b1") == "b2"
    assert world.chosen("b0", "b1", "b2") is None
    assert world.chosen("b0", "b1", again=True) == "b2", "somebody new goes first even then"
    assert world.chosen("b0", "b1", "b2", again=True) in ("b0", "b1", "b2")
    fill(world.peers[2])
    assert world.chosen("b0", "b1", "b2", again=True) in ("b0", "b1")


async def test_with_most_of_many_broken_calls_go_through() -> None:
    """So that the rest are not crushed; the share that the broken ones were to get (design §3, "Breaker")."""
    world = World(5)
    for peer in world.peers[:3]:
        break_it(peer)
    counts = world.many()
    assert set(counts) == {f"b{number}" for number in range(5)}, counts
    assert counts["b3"] + counts["b4"] > 300 // 3, counts


@pytest.mark.parametrize(("total", "broken"), [(4, 3), (4, 4), (5, 2)])
async def test_few_agents_or_few_broken_ones_are_left_alone(total: int, broken: int) -> None:
    world = World(total)
    for peer in world.peers[:broken]:
        break_it(peer)
    standing: set[str | None] = {f"b{number}" for number in range(broken, total)} or {None}
    assert set(world.many()) == standing


# -- sessions

async def test_a_session_stays_where_it_is() -> None:
    world = World(5)
    where = world.chosen(session=b"s1")
    assert where is not None
    peer = world.known.view.peer(where)
    assert peer is not None
    peer.hear_load(60, 60, now())
    assert {world.chosen(session=b"s1") for _ in range(20)} == {where}
    fill(peer)
    assert world.chosen(session=b"s1") == where, "a full one is only busy"
    assert len({world.chosen(session=b"s%d" % number) for number in range(40)}) == 5


async def test_a_session_moves_from_one_that_cannot_be_called_and_then_stays_there() -> None:
    world = World(3)
    where = world.chosen(session=b"s1")
    assert where is not None
    world.known.put(where, "summarize", flags=("unfit",))
    moved = world.chosen(session=b"s1")
    assert moved not in (where, None)
    world.known.put(where, "summarize")
    assert world.chosen(session=b"s1") == moved


async def test_a_session_is_never_sent_through_breakers() -> None:
    world = World(5)
    for peer in world.peers[:4]:
        break_it(peer)
    assert {world.chosen(session=b"s%d" % number) for number in range(50)} == {"b4"}
    break_it(world.peers[4])
    assert world.chosen(session=b"s1") is None


async def test_a_session_that_was_refused_goes_elsewhere() -> None:
    world = World(2)
    where = world.chosen(session=b"s1")
    assert where is not None
    assert world.chosen(where, session=b"s1") not in (where, None)
    assert world.chosen("b0", "b1", session=b"s1") is None
    assert world.chosen("b0", "b1", session=b"s1", again=True) is not None


# -- none

async def test_each_reason_is_said() -> None:
    world = World(4)
    world.known.put("b0", "summarize", rank=Rank.DOWN)
    world.peers[1].put_out("connection refused", now())
    fill(world.peers[2])
    problem = world.none_left()
    assert (problem.code, problem.executed, problem.retry_after_s) == ("no_agent_available", "no", 1)
    for words in ("b0: its status is down", "b1: connection refused", "b2: all of its 64 places", "b3: already tried"):
        assert words in problem.detail


async def test_of_very_many_only_some_are_named() -> None:
    world = World(SHOWN + 7)
    for peer in world.peers:
        fill(peer)
    problem = world.none_left()
    assert problem.code == "backpressure"
    assert problem.detail.count("places are taken") == SHOWN
    assert problem.detail.endswith(" and 7 more.")


async def test_the_first_breaker_that_may_close_says_when_to_come_back() -> None:
    world = World(2)
    for peer in world.peers:
        break_it(peer)
    world.peers[0].track("summarize").breaker.open_until = now() + 300.0
    world.peers[1].track("summarize").breaker.open_until = now() + 4.5
    assert (world.none_left().code, world.none_left().retry_after_s) == ("breaker_open", 5)


async def test_those_without_a_required_attribute_are_named_too() -> None:
    world = World(1)
    fill(world.peers[0])
    call = world.call()
    call.mismatched = ["c: language=en is not met"]
    assert "c: language=en is not met" in world.choose.none_left(call).detail


async def test_among_many_the_better_of_two_is_found_without_looking_at_all() -> None:
    world = World(50)
    chosen = world.many(3_000)
    assert len(chosen) == 50
    assert max(chosen.values()) < 3 * 60
    world.peers[0].hear_load(60, 0, now())
    busy = world.many(3_000)["b0"]
    assert busy < chosen["b0"] / 4, "it only wins against itself"
    for peer in world.peers[1:]:
        break_it(peer)
    assert world.many(50)["b0"] > 0


async def test_weights_count_among_many_too() -> None:
    world = World(20)
    world.known.put("heavy", "summarize", limits=Limits(weight=20.0))
    chosen = world.many(2_000)
    assert chosen["heavy"] > 600, "half of all weight"
