"""Why an agent gets no call: the first reason counts, in words that peers and pages rely on."""

import pytest

from reach_core.peer import Entry, Limits, Rank
from reach_sidecar.policy.exclude import Exclusion, breaker_open, full, why_excluded


def why(rank: Rank = Rank.UP, *flags: str, out_s: float = 0.0, trouble: str = "refused") -> Exclusion | None:
    expires_ms = 1 if rank >= Rank.LEFT else None
    entry = Entry(agent_id="b", gen=1, ver=1, rank=rank, flags=flags, expires_ms=expires_ms)
    return why_excluded(entry, unreachable_for_s=out_s, trouble=trouble)


def test_an_agent_that_is_up_is_called() -> None:
    assert why() is None
    assert why(out_s=-3.0) is None


@pytest.mark.parametrize("rank", [rank for rank in Rank if rank is not Rank.UP])
def test_only_up_is_called(rank: Rank) -> None:
    found = why(rank)
    assert found is not None
    assert found.reason == "agent_down"
    assert found.detail.startswith(f"its status is {rank.label}")
    assert (": " in found.detail) is (rank < Rank.LEFT), "and what that means"


def test_flags() -> None:
    assert why(Rank.UP, "unfit") == Exclusion("agent_unfit", "its own sidecar finds the agent unhealthy")
    assert why(Rank.UP, "draining") == Exclusion("draining", "it is shutting down and takes no new calls")
    assert why(Rank.UP, "something-new") is None


def test_an_address_that_refused() -> None:
    assert why(out_s=3.21, trouble="connection refused") == Exclusion(
        "unreachable", "connection refused; tried again in 3.2 s")


def test_the_gravest_reason_is_told() -> None:
    every = [why(Rank.DOWN, "draining", "unfit", out_s=1), why(Rank.UP, "draining", "unfit", out_s=1),
             why(Rank.UP, "draining", out_s=1), why(out_s=1)]
    assert [one.reason for one in every if one] == ["agent_down", "agent_unfit", "draining", "unreachable"]


@pytest.mark.parametrize(("rest_s", "when"), [
    (7.25, "one call tries it in 7.2 s"), (0.04, "one call tries it in 0.0 s"),
    (0.0, "one call is trying it now, or may"), (-3.0, "one call is trying it now, or may"),
])
def test_a_breaker_that_is_not_closed(rest_s: float, when: str) -> None:
    assert breaker_open(12, rest_s) == Exclusion("breaker", f"12 calls in a row failed; {when}")


def test_no_place_and_no_room_to_wait() -> None:
    assert full(Limits(max_concurrency=4, queue=2)) == Exclusion(
        "full", "all of its 4 places are taken and 2 calls wait")
