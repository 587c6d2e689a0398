import random

import pytest

from reach_control.registry.look import LOST_S, MOST_A_SECOND, MOST_LOOKS, Looks, Sighting
from reach_core.peer import Entry, Rank
from reach_core.table import PeerTable


@pytest.mark.parametrize(
    ("sighting", "alive", "confirmed"),
    [
        (Sighting(True), True, False),
        (Sighting(False), False, False),
        (Sighting(False, 1, 2), True, False),
        (Sighting(False, 0, 1), False, False),
        (Sighting(False, 0, 2), False, True),
        (Sighting(True, 0, 3), True, False),
    ],
)
def test_what_a_sighting_says(sighting: Sighting, alive: bool, confirmed: bool) -> None:
    assert (sighting.is_alive, sighting.is_confirmed_death) == (alive, confirmed)


def looks_at(*agent_ids: str) -> Looks:
    looks = Looks(random.Random(1))
    for agent_id in agent_ids:
        looks.want(agent_id)
    return looks


def start_all(looks: Looks, now_s: float = 0.0) -> list[str]:
    started = []
    while (agent_id := looks.next(now_s)) is not None:
        looks.start(agent_id, 1, now_s)
        started.append(agent_id)
    return started


def test_so_many_at_once_the_others_in_line() -> None:
    looks = looks_at(*(f"agent-{n}" for n in range(100)))
    first = start_all(looks)
    assert len(first) == len(looks) == MOST_LOOKS
    assert all(looks.finish(agent_id, 1) for agent_id in first)
    assert len(start_all(looks)) == 100 - MOST_LOOKS


def test_so_many_in_a_second() -> None:
    looks, begun = looks_at(*(f"agent-{n}" for n in range(1000))), 0
    for step in range(20):
        started = start_all(looks, 50.0 + step * 0.1)
        begun += len(started)
        assert all(looks.finish(agent_id, 1) for agent_id in started)
        assert begun <= MOST_A_SECOND * (1 + step // 10)
    assert begun == 2 * MOST_A_SECOND


def test_each_agent_once_in_line_and_once_under_way() -> None:
    looks = looks_at("a", "a")
    assert start_all(looks) == ["a"]
    looks.want("a")
    assert start_all(looks) == []
    assert looks.finish("a", 1)
    assert start_all(looks) == ["a"]


def test_who_is_heard_of_leaves_the_line() -> None:
    looks = looks_at("a", "b")
    looks.drop("a")
    looks.drop("nobody")
    assert start_all(looks) == ["b"]


def test_an_answer_to_another_look_says_nothing() -> None:
    looks = looks_at("a")
    start_all(looks)
    assert not looks.finish("a", 2)
    assert not looks.finish("b", 1)
    assert looks.finish("a", 1)
    assert not looks.finish("a", 1)


def test_one_that_never_comes_back_is_lost() -> None:
    looks = looks_at("a", "b")
    start_all(looks, 5.0)
    assert looks.lost(5.0 + LOST_S - 0.1) == []
    assert looks.lost(5.0 + LOST_S) == [("a", 1), ("b", 1)]


def test_what_came_of_looks_while_the_node_stood_still_does_not_count() -> None:
    looks = looks_at("a")
    start_all(looks)
    looks.make_void()
    assert not looks.finish("a", 1)
    assert start_all(looks) == ["a"], "it is made again"
    assert looks.finish("a", 1)


def test_witnesses_are_others_that_are_up_and_heard_of() -> None:
    table, silent = PeerTable(), {"agent-2", "agent-3"}
    ranks = {4: Rank.SUSPECT, 5: Rank.DOWN, 6: Rank.JOINING}
    table.merge([Entry(agent_id=f"agent-{n}", gen=1, ver=1, rank=ranks.get(n, Rank.UP), address=f"h:{n}")
                 for n in range(10)], 1)  # fmt: skip
    looks, drawn = Looks(random.Random(1)), set()
    for _ in range(200):
        witnesses = looks.witnesses(table, "agent-1", silent.__contains__)
        assert len(witnesses) == len(set(witnesses)) == 3
        drawn.update(witnesses)
    assert drawn == {f"h:{n}" for n in (0, 6, 7, 8, 9)}
    alone = PeerTable()
    alone.merge([Entry(agent_id="a", gen=1, ver=1, rank=Rank.UP)], 1)
    assert looks.witnesses(alone, "a", silent.__contains__) == ()
