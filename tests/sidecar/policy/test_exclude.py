"""Why an agent gets no call: the first reason counts, in words that peers and pages rely on."""

import pytest

from reach_core.peer import Entry, Rank
from reach_sidecar.policy.exclude import Exclusion, why_excluded


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
