"""A session's agent: stable across sidecars, evenly shared, kept while it is fit."""

from collections import Counter
from math import ceil
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.policy.session import MAX_SESSIONS, Sessions

TEN = [f"agent-{number:02}" for number in range(10)]
EXPECTED = {"": "agent-09", "alice": "agent-05", "bob": "agent-01", "Zoë": "agent-02", "\udcff": "agent-05"}


def placed(sessions: Sessions, session: str, fit: list[str], capability: str = "chat") -> str:
    return fit[sessions.place(capability, session, fit)]


def test_one_agent_takes_all() -> None:
    sessions = Sessions()
    assert [sessions.place("chat", f"{number}", ["only"]) for number in range(100)] == [0] * 100


def test_the_same_across_processes() -> None:
    """Written down: a sidecar of another version, or on another machine, has to find the same."""
    found = {name: placed(Sessions(), name, TEN) for name in ("", "alice", "bob", "Zoë", "\udcff")}
    assert found == EXPECTED


def test_the_order_of_the_agents_does_not_matter() -> None:
    random = Random(3)
    for number in range(50):
        shuffled = random.sample(TEN, 10)
        assert placed(Sessions(), f"s{number}", shuffled) == placed(Sessions(), f"s{number}", TEN)


def test_another_capability_of_the_same_agents_finds_the_same_one() -> None:
    sessions = Sessions()
    assert placed(sessions, "alice", TEN, "chat") == placed(sessions, "alice", TEN, "translate")


def test_hashing_alone_is_even_in_the_long_run() -> None:
    """Each first of its kind, so that no bound is met."""
    counts = Counter(placed(Sessions(), f"session {number}", TEN) for number in range(5000))
    assert set(counts) == set(TEN)
    assert min(counts.values()) > 420
    assert max(counts.values()) < 580


@pytest.mark.parametrize("count", [1, 8, 9, 100, 1000])
def test_bounded_load(count: int) -> None:
    sessions = Sessions()
    counts: Counter[str] = Counter()
    for number in range(count):
        counts[placed(sessions, f"session {number}", TEN)] += 1
        assert max(counts.values()) <= ceil(1.25 * (number + 1) / 10)


def test_a_bound_for_each_capability() -> None:
    """What one agent alone can do does not drive the others' sessions away from it."""
    sessions = Sessions()
    for number in range(1000):
        placed(sessions, f"{number}", TEN[:1], "rare")
    counts = Counter(placed(sessions, f"{number}", TEN) for number in range(1000))
    assert counts[TEN[0]] > 50


def test_it_stays_whoever_joins() -> None:
    sessions = Sessions()
    before = [placed(sessions, f"{number}", TEN[:5]) for number in range(200)]
    assert [placed(sessions, f"{number}", TEN) for number in range(200)] == before


def test_it_moves_when_its_agent_is_unfit_and_only_then_and_then_stays() -> None:
    sessions = Sessions()
    before = {f"{number}": placed(sessions, f"{number}", TEN) for number in range(200)}
    gone = TEN[4]
    rest = [agent for agent in TEN if agent != gone]
    after = {session: placed(sessions, session, rest) for session in before}
    for session, agent in before.items():
        assert after[session] == agent or agent == gone
    assert {session: placed(sessions, session, TEN) for session in before} == after
    assert max(Counter(after.values()).values()) <= ceil(1.25 * 200 / 9)


def test_the_moved_ones_are_shared_among_the_rest() -> None:
    sessions = Sessions()
    before = [placed(sessions, f"{number}", TEN) for number in range(1000)]
    rest = TEN[1:]
    moved = {placed(sessions, f"{number}", rest) for number, agent in enumerate(before) if agent == TEN[0]}
    assert moved == set(rest)


def test_bounded_memory_and_the_longest_unused_goes() -> None:
    sessions = Sessions()
    for number in range(MAX_SESSIONS):
        sessions.place("chat", f"{number}", TEN)
    kept = placed(sessions, "0", TEN)  # used again: now the youngest
    for number in range(MAX_SESSIONS - 1):
        sessions.place("chat", f"later {number}", TEN)
    assert len(sessions._placed) == MAX_SESSIONS
    assert sum(sessions._counts.values()) == MAX_SESSIONS
    assert sessions._placed["chat", "0"] == kept
    assert ("chat", "1") not in sessions._placed


def test_long_sessions_are_told_apart_and_not_kept_whole() -> None:
    sessions = Sessions()
    long = "x" * 60_000
    before = [placed(sessions, f"{long}{number}", TEN) for number in range(50)]
    assert len(set(before)) > 5
    assert [placed(sessions, f"{long}{number}", TEN[::-1]) for number in range(50)] == before
    assert max(len(session) for _, session in sessions._placed) <= 64


@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 15), st.sets(st.integers(0, 5), min_size=1)), max_size=80))
def test_whatever_is_fit(steps: list[tuple[str, int, set[int]]]) -> None:
    """Always a fit one; it moves only away from an unfit one; the counts are those of what is remembered."""
    sessions = Sessions()
    last: dict[tuple[str, str], str] = {}
    for capability, number, indices in steps:
        fit = [f"agent-{index}" for index in indices]
        key = capability, f"{number}"
        found = placed(sessions, key[1], fit, capability)
        assert found in fit
        if last.get(key) in fit:
            assert found == last[key]
        last[key] = found
        assert dict(sessions._placed) == last
        assert sessions._counts == Counter((capability, agent) for (capability, _), agent in last.items())
