"""A → B → C → D through agents that know nothing of retries and deadlines and pass on their trace at most."""

import time
from typing import Any

import pytest
from harness.mesh import Mesh
from harness.relays import Relays
from harness.wire import Answer, exchange

CHAIN_ATTEMPTS = 3  # the first and the chain's two retries
TRACE = ("traceparent",)


def ask(relays: Relays, *headers: tuple[str, str]) -> tuple[Answer, float]:
    """The answer that the caller of B gets, and how long it took."""
    began = time.monotonic()
    answer = exchange(f"{relays.caller.url}/to/b/process", headers, b'{"task": "first"}', timeout=60)
    return answer, time.monotonic() - began


def budget_s(seen: dict[str, str]) -> float:
    value = seen["reach-timeout"]
    return float(value.removesuffix("ms")) / 1000 if value.endswith("ms") else float(value.removesuffix("s"))


@pytest.mark.parametrize(("answer", "capability", "copies"), [
    ("turned-down", {}, 1),
    ("turned-down", {}, 4),
    ("retryable", {}, 1),
    ("turned-down", {"idempotent": True}, 1),
    ("error", {"idempotent": True}, 1),
    ("error", {"idempotent": True}, 4),
], ids=["turned down", "turned down by four", "retryable failure", "turned down, idempotent", "500, idempotent",
        "500 by four, idempotent"])
def test_retries_do_not_multiply(mesh: Mesh, answer: str, capability: dict[str, Any], copies: int) -> None:
    """Each hop alone would try three times, which makes 27."""
    relays = Relays(mesh, passed=TRACE, answer=answer, copies=copies, **capability)
    said, _ = ask(relays, ("Reach-Timeout", "20s"))
    assert said.status >= 500
    seen = relays.seen("d")
    assert 2 <= len(seen) <= CHAIN_ATTEMPTS, "tried again, but by the chain's budget"
    assert len({one["traceparent"].split("-")[1] for one in seen}) == 1
    lefts = [int(one.get("reach-retries-left", 0)) for one in seen]
    assert lefts == sorted(lefts, reverse=True)


def test_a_500_that_may_have_run_is_not_repeated(mesh: Mesh) -> None:
    """Neither there, nor by the other one that could do it."""
    relays = Relays(mesh, passed=TRACE, answer="error", copies=2)
    said, _ = ask(relays, ("Reach-Timeout", "20s"))
    assert said.status == 500
    assert [len(relays.seen(name)) for name in "bcd"] == [1, 1, 1]


def test_each_hop_has_less_time(mesh: Mesh) -> None:
    relays = Relays(mesh, passed=("traceparent", "Reach-Timeout"), answer="ok")
    said, _ = ask(relays, ("Reach-Timeout", "2s"))
    assert said.status == 200
    budgets = [budget_s(relays.seen(name)[0]) for name in "bcd"]
    assert 2 > budgets[0] > budgets[1] > budgets[2] > 0.5, budgets


def test_whoever_passes_the_trace_on_is_bound_by_its_deadline(mesh: Mesh) -> None:
    relays = Relays(mesh, passed=TRACE, answer="hang")
    said, took = ask(relays, ("Reach-Timeout", "2s"))
    assert said.status in (500, 504), "the deepest time ends first: an agent before it may still say that it failed"
    assert took < 3
    budgets = [budget_s(relays.seen(name)[0]) for name in "bcd"]
    assert 2 > budgets[0] > budgets[1] > budgets[2] > 0.5, budgets
    assert [len(relays.seen(name)) for name in "bcd"] == [1, 1, 1]


def test_whoever_passes_nothing_on_inherits_no_deadline(mesh: Mesh) -> None:
    """It may mean to go on when its caller has gone. The default is ten minutes."""
    relays = Relays(mesh, passed=(), answer="ok", names=("b", "c"))
    said, _ = ask(relays, ("Reach-Timeout", "2s"))
    assert said.status == 200
    assert budget_s(relays.seen("b")[0]) < 2
    assert 590 < budget_s(relays.seen("c")[0]) < 600
