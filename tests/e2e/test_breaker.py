"""The breaker over real sockets: what counts, when it opens, how it closes, and that it can be seen (design §3, "Breaker").

Where a rest is waited for, it is shortened; tests/sidecar/policy/test_breaker.py has them as they are.
"""

import asyncio
import time
from typing import Any

import pytest
from harness.delivery import Gate, in_turn, under_way
from harness.sidecars import Mesh, Node, Script, closed_port, hangs, hangs_up, ok
from sidecar.http1.raw import Answer

from reach_sidecar.config import CapabilityConfig

URL = "/to/work/x"
ONE_TRY = "Reach-Retries-Left: 0"
FAILS = ok(b"no").replace(b"200 OK", b"500 No")
REST_S = 0.4


@pytest.fixture
def short_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reach_sidecar.policy.breaker.REST_S", REST_S)


def outcome(word: str) -> bytes:
    return ok(b"no", f"Reach-Outcome: {word}".encode())


def status(code: int, *fields: bytes) -> bytes:
    return ok(b"no", *fields).replace(b"200 OK", b"%d No" % code)


async def excluded(inner: Mesh, a: Node, capability: str = "work", agent: str = "b") -> Any:
    """Why `a` does not call the agent, as its local API says."""
    listing = (await inner.ask(a, f"/v1/agents?capability={capability}")).json
    [shown] = [one for one in listing["agents"] if one["agent_id"] == agent]
    return shown["excluded"]


async def ask(inner: Mesh, a: Node, times: int, *fields: str, target: str = URL) -> list[Answer]:
    """One after another, each with a single attempt."""
    return [await inner.ask(a, target, ONE_TRY, *fields, body=b"work") for _ in range(times)]


# what the agent does: does it count as a failure?
COUNTS: list[tuple[str, Script | bytes, bool]] = [
    ("hangs up", hangs_up, True),
    ("500", status(500), True),
    ("503", status(503), True),
    ("503 with Retry-After", status(503, b"Retry-After: 0"), True),
    ("retryable_failure", outcome("retryable_failure"), True),
    ("400", status(400), False),
    ("404", status(404), False),
    ("429 without Retry-After", status(429), False),
    ("failure", outcome("failure"), False),
    ("invalid_request", outcome("invalid_request"), False),
    ("200", ok(), False),
]


@pytest.mark.parametrize(("script", "counts"), [row[1:] for row in COUNTS], ids=[row[0] for row in COUNTS])
async def test_the_tenth_failure_in_a_row_opens_it(inner: Mesh, script: Script | bytes, counts: bool) -> None:
    a, b = await inner.pair(script, "work")
    await ask(inner, a, 9)
    assert await excluded(inner, a) is None
    await ask(inner, a, 1)
    why = await excluded(inner, a)
    assert (why is not None and why["reason"] == "breaker" and bool(why["detail"])) == counts
    [got] = await ask(inner, a, 1)
    assert len(b.agent.asked) == (10 if counts else 11)
    if counts:
        assert (got.status, got.code, got.json["executed"]) == (503, "breaker_open", "no")
        assert int(got.header("Retry-After") or 0) >= 1
        assert got.json["attempts"] == []


async def test_time_outs_count(inner: Mesh) -> None:
    """Said by the called sidecar, and noticed by the calling one."""
    a, b = await inner.pair(hangs, CapabilityConfig(name="work", timeout=0.05))
    await asyncio.gather(*(ask(inner, a, 1) for _ in range(5)))
    await asyncio.gather(*(ask(inner, a, 1, "Reach-Timeout: 100ms") for _ in range(5)))
    assert (await excluded(inner, a))["reason"] == "breaker"
    asked = len(b.agent.asked)
    assert (await ask(inner, a, 1))[0].code == "breaker_open"
    assert len(b.agent.asked) == asked


async def test_refused_connections_count(inner: Mesh) -> None:
    """An address that refused is left alone by itself, until a newer entry; ten of those open the breaker too."""
    a, b = await inner.pair(ok(), "work")
    port = closed_port()
    for _ in range(10):
        a.learn(b.entry(address=f"127.0.0.1:{port}"))
        await ask(inner, a, 1)
    assert (await excluded(inner, a))["reason"] in ("unreachable", "breaker")
    a.learn(b.entry(address=f"127.0.0.1:{port}"))
    assert (await excluded(inner, a))["reason"] == "breaker"
    assert (await ask(inner, a, 1))[0].code == "breaker_open"


async def test_busy_does_not_count(inner: Mesh) -> None:
    a, b = await inner.pair(hangs, "work", agent={"max_concurrency": 1, "queue": 0})
    other = await inner.agent(b"HTTP/1.1 503 No\r\nReach-Refused: busy\r\nContent-Length: 0\r\n\r\n")
    a.learn(b.entry(address=f"127.0.0.1:{other.port}"))
    assert {got.code for got in await ask(inner, a, 12)} == {"backpressure"}
    assert await excluded(inner, a) is None or (await excluded(inner, a))["reason"] == "full"
    assert len(other.asked) == 12


async def test_only_failures_in_a_row(inner: Mesh) -> None:
    a, b = await inner.pair(in_turn(*[FAILS] * 9, ok(), *[FAILS] * 10), "work")
    await ask(inner, a, 19)
    assert await excluded(inner, a) is None
    await ask(inner, a, 1)
    assert (await excluded(inner, a))["reason"] == "breaker"
    assert len(b.agent.asked) == 20


async def test_each_capability_has_its_own(inner: Mesh) -> None:
    async def script(asked: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(FAILS if asked.target == "/bad" else ok())

    a, _b = await inner.pair(script, "work", "play")
    await ask(inner, a, 10, target="/to/work/bad")
    assert (await excluded(inner, a, "work"))["reason"] == "breaker"
    assert await excluded(inner, a, "play") is None
    assert (await ask(inner, a, 1, target="/to/play/good"))[0].status == 200
    assert (await ask(inner, a, 1, target="/to/work/good"))[0].code == "breaker_open"


async def test_the_others_get_the_calls(inner: Mesh) -> None:
    """And nobody waits: the broken one is no candidate."""
    a = await inner.node("a")
    b1, b2 = await inner.node("b1", FAILS, "work"), await inner.node("b2", ok(), "work")
    a.learn(b1.entry())
    await ask(inner, a, 10)
    a.learn(b2.entry())
    got = await ask(inner, a, 6)
    assert {one.header("Reach-Agent") for one in got} == {"b2"}
    assert {one.header("Reach-Attempts") for one in got} == {"1"}


@pytest.mark.usefixtures("short_rest")
async def test_one_trial_after_the_rest(inner: Mesh) -> None:
    """It goes well: the breaker is closed. While it is under way, nobody else gets through."""
    gate = Gate()
    a, b = await inner.pair(in_turn(*[FAILS] * 10, gate, ok()), "work")
    await ask(inner, a, 10)
    await asyncio.sleep(1.2 * REST_S)
    trial = await under_way(inner, a, b, URL, ONE_TRY)
    others = await asyncio.gather(*(ask(inner, a, 1) for _ in range(5)))
    assert {one.code for [one] in others} == {"breaker_open"}
    assert len(b.agent.asked) == 11
    gate.open()
    assert (await trial).status == 200
    assert await excluded(inner, a) is None
    assert [one.status for one in await ask(inner, a, 3)] == [200] * 3


@pytest.mark.usefixtures("short_rest")
async def test_a_trial_that_fails_doubles_the_rest(inner: Mesh) -> None:
    a, b = await inner.pair(FAILS, "work")
    await ask(inner, a, 10)
    await asyncio.sleep(1.2 * REST_S)
    failed = time.monotonic()
    await ask(inner, a, 1)
    assert len(b.agent.asked) == 11
    while len(b.agent.asked) == 11:
        assert (await ask(inner, a, 1))[0].status >= 500
        assert time.monotonic() - failed < 5.0
        await asyncio.sleep(0.01)
    assert 2 * REST_S * 0.8 < time.monotonic() - failed < 2 * REST_S * 1.2 + 2.0


async def test_most_of_many_are_broken(inner: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then calls are let through at random, rather than to crush the rest; but not those that are bound to one agent."""
    monkeypatch.setattr("reach_sidecar.policy.breaker.REST_S", 60.0)
    a = await inner.node("a")
    nodes = [await inner.node(f"b{number}", FAILS if number < 3 else ok(), "work") for number in range(5)]
    inner.share()
    broken, well = nodes[:3], nodes[3:]
    for node in broken:
        await ask(inner, a, 10, target=f"/to/@{node.id}/x")
        assert (await excluded(inner, a, agent=node.id))["reason"] == "breaker"

    def hits(some: list[Node]) -> int:
        return sum(len(node.agent.asked) for node in some)

    assert hits(broken) == 30
    await ask(inner, a, 60)
    assert 30 < hits(broken) < 90
    assert hits(well) > 0
    # a session, and a call for one agent
    before = hits(broken)
    for number in range(30):
        [got] = await ask(inner, a, 1, f"Reach-Session: s{number}")
        assert (got.status, got.header("Reach-Agent") in ("b3", "b4")) == (200, True)
    assert [one.code for one in await ask(inner, a, 5, target="/to/@b0/x")] == ["breaker_open"] * 5
    assert hits(broken) == before


async def test_fewer_than_five(inner: Mesh) -> None:
    """With four agents, three of them broken, all calls go to the one that is well."""
    a = await inner.node("a")
    nodes = [await inner.node(f"b{number}", FAILS if number < 3 else ok(), "work") for number in range(4)]
    inner.share()
    for node in nodes[:3]:
        await ask(inner, a, 10, target=f"/to/@{node.id}/x")
    assert {one.header("Reach-Agent") for one in await ask(inner, a, 10)} == {"b3"}
