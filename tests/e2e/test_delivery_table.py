"""The design's table "When to try again", row by row, and the rules in the text around it (design §3).

Each line says what the caller gets and how often each of the two agents ran. `b1` is tried first and has the trouble;
`b2` is well. Back-off is shortened, except where it is what is tested.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from harness.delivery import WAYS, Gate, Scene, Way, in_turn, said, scene, under_way, wire_between
from harness.sidecars import Mesh, Script, closed_port, hangs, hangs_up, ok, says, until
from sidecar.http1.raw import Answer

from reach_sidecar.config import CapabilityConfig

Happening = Callable[[Mesh, Way], Awaitable[str]]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off of 10 to 20 ms and a doubling."""
    monkeypatch.setattr("reach_sidecar.policy.backoff.FIRST_S", 0.01)
    monkeypatch.setattr("reach_sidecar.policy.backoff.JITTER_S", 0.01)


def answer(status: int, *fields: str, body: bytes = b"its own words") -> bytes:
    """An agent's whole answer."""
    lines = [f"HTTP/1.1 {status} Whatever", *fields, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


# -- what happens at b1


def agent(script: Script | bytes, **declared: Any) -> Happening:
    """Its agent does this."""

    async def happening(inner: Mesh, way: Way) -> str:
        stage = await scene(inner, script, way, **declared)
        return stage.verdict(await stage.ask())

    return happening


def says_json(body: bytes) -> Happening:
    return agent(answer(200, "Content-Type: application/json", body=body), outcome="json")


def refuses(word: str) -> Happening:
    """What answers at its sidecar's address says `Reach-Refused`. Nobody waits before the next agent is tried."""

    async def happening(inner: Mesh, way: Way) -> str:
        stage = await scene(inner, ok(), way)
        other = await inner.agent(answer(503, f"Reach-Refused: {word}"))
        stage.a.learn(stage.b1.entry(address=f"127.0.0.1:{other.port}"))
        return await at_once(stage)

    return happening


async def refused_connection(inner: Mesh, way: Way) -> str:
    stage = await scene(inner, ok(), way)
    stage.a.learn(stage.b1.entry(address=f"127.0.0.1:{closed_port()}"))
    verdict = await at_once(stage)
    # left alone from now on, and everybody can see it: the next call does not try it again
    shown = (await inner.ask(stage.a, "/v1/agents/b1")).json["excluded"]
    assert (shown["reason"], bool(shown["detail"])) == ("unreachable", True)
    assert (await stage.ask()).header("Reach-Attempts") == "1"
    return verdict


async def at_once(stage: Scene) -> str:
    """A back-off would take longer than any test waits for an answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reach_sidecar.policy.backoff.FIRST_S", 30.0)
        patch.setattr("reach_sidecar.policy.backoff.LONGEST_S", 30.0)
        return stage.verdict(await stage.ask())


async def connection_cut(inner: Mesh, way: Way) -> str:
    """Between the sidecars, once; the run goes on, and ends after the repeat has come (or the caller has given up)."""
    gate = Gate(ok(b"from b1"))
    stage = await scene(inner, gate, way)
    async with wire_between(stage.a, stage.b1) as wire:
        asking = await under_way(inner, stage.a, stage.b1, "/to/work/x", "Reach-Prefer: first=yes")
        wire.cut()
        await until(lambda: asking.done() or wire.taken == 2 or stage.b2.agent.asked)
        gate.open()
        return stage.verdict(await asking)


async def connection_cut_for_good(inner: Mesh, way: Way) -> str:
    """Between the sidecars, and nobody takes a new one: its machine is gone."""
    stage = await scene(inner, hangs, way)
    async with wire_between(stage.a, stage.b1) as wire:
        began = time.monotonic()
        asking = await under_way(inner, stage.a, stage.b1, "/to/work/x", "Reach-Prefer: first=yes",
                                 "Reach-Timeout: 1s")
        wire.down()
        verdict = stage.verdict(await asking)
        if verdict.startswith("502") and way.dedup != "off":
            # until a back-off would end after the deadline, and they double: at least half of the time
            assert 0.45 < time.monotonic() - began < 3.0
        return verdict


# -- the table

NEXT = "200 b2 in 2, ran 0+1"
NEXT_RAN_BOTH = "200 b2 in 2, ran 1+1"
DOUBT = "502 outcome_unknown (unknown)"
JOINED = "200 b1 in 2, ran 1+0"

# what happened: (it, not repeatable, repeatable); by `dedup` where that matters, and | where either will do
TABLE: dict[str, tuple[Happening, str | dict[str, str], str | dict[str, str]]] = {
    "connection refused": (refused_connection, NEXT, NEXT),
    "refused: busy": (refuses("busy"), NEXT, NEXT),
    "refused: draining": (refuses("draining"), NEXT, NEXT),
    "refused: agent_unreachable": (refuses("agent_unreachable"), NEXT, NEXT),
    "refused: not_here": (refuses("not_here"), NEXT, NEXT),
    "refused: store_unavailable": (refuses("store_unavailable"), NEXT, NEXT),
    "refused: not_allowed": (refuses("not_allowed"), "403 not_allowed (no) not_allowed, ran 0+0",
                             "403 not_allowed (no) not_allowed, ran 0+0"),
    "connection cut, the run goes on": (
        connection_cut,
        {"off": f"{DOUBT} broken, ran 1+0", "memory": JOINED, "durable": JOINED},
        {"off": "200 b2 in 2, ran 1+1|200 b1 in 2, ran 2+0", "memory": JOINED, "durable": JOINED}),
    "connection cut for good": (
        connection_cut_for_good,
        {"off": f"{DOUBT} broken, ran 1+0", "memory": f"{DOUBT} broken connect_failed, ran 1+0",
         "durable": f"{DOUBT} broken connect_failed, ran 1+0"},
        "200 b2 in 3, ran 1+1|200 b2 in 2, ran 1+1"),
    "the agent hangs up": (agent(hangs_up), f"{DOUBT} agent_broke, ran 1+0", NEXT_RAN_BOTH),
    "execution timed out": (agent(hangs, timeout=0.3), "504 deadline_exceeded (unknown) timeout, ran 1+0",
                            NEXT_RAN_BOTH),
    "retryable_failure": (agent(answer(200, "Reach-Outcome: retryable_failure")), NEXT_RAN_BOTH, NEXT_RAN_BOTH),
    "retryable_failure, 500": (agent(answer(500, "Reach-Outcome: retryable_failure")), NEXT_RAN_BOTH, NEXT_RAN_BOTH),
    "retryable_failure in JSON": (says_json(b'{"status": "retryable_failure"}'), NEXT_RAN_BOTH, NEXT_RAN_BOTH),
    "429 with Retry-After": (agent(answer(429, "Retry-After: 0")), NEXT_RAN_BOTH, NEXT_RAN_BOTH),
    "503 with Retry-After": (agent(answer(503, "Retry-After: 0")), NEXT_RAN_BOTH, NEXT_RAN_BOTH),
    "500": (agent(answer(500)), "500 b1 in 1, ran 1+0", NEXT_RAN_BOTH),
    "503 without Retry-After": (agent(answer(503)), "503 b1 in 1, ran 1+0", NEXT_RAN_BOTH),
    "500 with Retry-After": (agent(answer(500, "Retry-After: 0")), "500 b1 in 1, ran 1+0", NEXT_RAN_BOTH),
    "400": (agent(answer(400)), "400 b1 in 1, ran 1+0", "400 b1 in 1, ran 1+0"),
    "404": (agent(answer(404)), "404 b1 in 1, ran 1+0", "404 b1 in 1, ran 1+0"),
    "429 without Retry-After": (agent(answer(429)), "429 b1 in 1, ran 1+0", "429 b1 in 1, ran 1+0"),
    "failure": (agent(answer(200, "Reach-Outcome: failure")), "502 agent_failure (yes) failure, ran 1+0",
                "502 agent_failure (yes) failure, ran 1+0"),
    "failure, 500": (agent(answer(500, "Reach-Outcome: failure")), "502 agent_failure (yes) failure, ran 1+0",
                     "502 agent_failure (yes) failure, ran 1+0"),
    "failure in JSON": (says_json(b'{"success": false}'), "502 agent_failure (yes) failure, ran 1+0",
                        "502 agent_failure (yes) failure, ran 1+0"),
    "invalid_request": (agent(answer(200, "Reach-Outcome: invalid_request")),
                        "422 agent_invalid_request (yes) invalid_request, ran 1+0",
                        "422 agent_invalid_request (yes) invalid_request, ran 1+0"),
    "malformed answer": (agent(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "502 bad_agent_response (unknown) bad_answer, ran 1+0",
                         "502 bad_agent_response (unknown) bad_answer, ran 1+0"),
    "cut off after its head": (agent(says(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf", close=True)),
                               "200 b1 in 1, cut off, ran 1+0", "200 b1 in 1, cut off, ran 1+0"),
    "success, 500": (agent(answer(500, "Reach-Outcome: success")), "500 b1 in 1, ran 1+0", "500 b1 in 1, ran 1+0"),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("happened", TABLE)
@pytest.mark.usefixtures("quick")
async def test_when_to_try_again(inner: Mesh, happened: str, way: Way) -> None:
    happening, *expected = TABLE[happened]
    wanted = expected[way.idempotent]
    verdict = await happening(inner, way)
    assert verdict in (wanted if isinstance(wanted, str) else wanted[way.dedup]).split("|")
    await inner.idle()


async def test_a_connection_that_times_out(inner: Mesh) -> None:
    """After 3 s. Its machine drops what is sent to it: a listener whose queue is full does the same."""
    with socket.socket() as listener, contextlib.ExitStack() as held:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            client = held.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        stage = await scene(inner, ok())
        stage.a.learn(stage.b1.entry(address=f"127.0.0.1:{listener.getsockname()[1]}"))
        began = time.monotonic()
        assert stage.verdict(await stage.ask()) == NEXT
        assert 2.9 < time.monotonic() - began < 6.0
        # that address is out for 5 s
        assert (await stage.ask()).header("Reach-Attempts") == "1"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("method", "repeatable"), [("GET", True), ("HEAD", True), ("OPTIONS", True), ("POST", False),
                                                    ("PUT", False), ("DELETE", False), ("PATCH", False)])
async def test_a_safe_method_is_repeatable_whatever_is_declared(inner: Mesh, method: str, repeatable: bool) -> None:
    stage = await scene(inner, answer(500, body=b""))
    await stage.ask(method=method, body=None if repeatable else b"work")
    assert stage.ran() == ("1+1" if repeatable else "1+0")


# -- the rows judge the call


@pytest.mark.usefixtures("quick")
async def test_in_doubt_only_the_same_agent_is_asked(inner: Mesh) -> None:
    """The wire is cut and later mended: its repeat joins the run, and nobody else ever gets the call."""
    gate = Gate(ok(b"from b1"))
    stage = await scene(inner, gate)
    async with wire_between(stage.a, stage.b1) as wire:
        asking = await under_way(inner, stage.a, stage.b1, "/to/work/x", "Reach-Prefer: first=yes")
        wire.down()
        await asyncio.sleep(0.3)
        assert not asking.done()
        await wire.up()
        await until(lambda: wire.taken >= 2)
        gate.open()
        got = await asking
        assert (got.status, got.body, stage.ran()) == (200, b"from b1", "1+0")
    key = stage.b1.agent.last.one("Idempotency-Key")
    lines = await stage.a.log(got.header("Reach-Trace-Id"), "attempt")
    assert {line["target"] for line in lines} == {"b1"}
    assert {line["key"] for line in lines} == {key}, "the same key"


async def test_in_doubt_an_agent_is_followed_to_its_new_address(inner: Mesh) -> None:
    """The back-off is as it is, and a newer entry comes within it."""
    gate = Gate(ok(b"from b1"))
    stage = await scene(inner, gate)
    async with wire_between(stage.a, stage.b1) as wire:
        asking = await under_way(inner, stage.a, stage.b1, "/to/work/x", "Reach-Prefer: first=yes")
        wire.down()
        await asyncio.sleep(0.1)
        stage.a.learn(stage.b1.entry())
        gate.open()
        got = await asking
    assert (got.status, got.body, stage.ran()) == (200, b"from b1", "1+0")


@pytest.mark.usefixtures("quick")
async def test_in_doubt_and_the_agent_has_left(inner: Mesh) -> None:
    """Nobody is left to ask: it is said at once, and not at the deadline."""
    stage = await scene(inner, hangs)
    async with wire_between(stage.a, stage.b1) as wire:
        asking = await under_way(inner, stage.a, stage.b1, "/to/work/x", "Reach-Prefer: first=yes", "Reach-Timeout: 4s")
        stage.a.learn(stage.b1.entry().tombstone(time.time_ns() // 10**6))
        began = time.monotonic()
        wire.down()
        assert said(await asking).startswith(f"{DOUBT} broken")
        assert (time.monotonic() - began < 3.0, stage.ran()) == (True, "1+0")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("way", [Way(False, "memory"), Way(False, "durable")], ids=str)
async def test_an_answer_that_was_lost_on_the_way_is_replayed(inner: Mesh, way: Way) -> None:
    """The agent has answered, and the wire is cut before the answer is out: its sidecar has it."""
    stage = await scene(inner, ok(b"from b1"), way)
    async with wire_between(stage.a, stage.b1) as wire:
        wire.swallow_next_answer()
        got = await stage.ask()
        assert (got.status, got.body, got.header("Reach-Attempts"), stage.ran()) == (200, b"from b1", "2", "1+0")


@pytest.mark.usefixtures("quick")
async def test_what_says_not_done_takes_the_doubt_away_from_nothing(inner: Mesh) -> None:
    """Over several attempts the worst counts: one that may have run, then one that did not."""
    stage = await scene(inner, hangs_up, Way(True, "memory"), second=answer(503, "Retry-After: 0"))
    got = await stage.ask()
    assert (got.code, got.json["executed"]) == ("retries_exhausted", "unknown")


# -- how often, and when


@pytest.mark.usefixtures("quick")
async def test_three_attempts_and_then_it_is_said(inner: Mesh) -> None:
    a = await inner.node("a")
    nodes = [await inner.node(f"b{number}", answer(503, "Retry-After: 0"), "work") for number in range(4)]
    inner.share()
    got = await inner.ask(a, "/to/work/x", body=b"work")
    assert said(got) == "502 retries_exhausted (no) retryable"
    assert len({one["agent"] for one in got.json["attempts"]}) == 3
    asked = sorted((node.agent.last for node in nodes if node.agent.asked), key=lambda one: one.one("Reach-Attempt"))
    assert [(one.one("Reach-Attempt"), one.one("Reach-Retries-Left")) for one in asked] == [("1", "2"), ("2", "1"), ("3", "0")]
    assert len({one.one("Idempotency-Key") for one in asked}) == 1, "one logical call"
    assert len({one.one("traceparent")[:35] for one in asked}) == 1
    assert len({one.one("traceparent") for one in asked}) == 3, "a new span for each attempt"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("left", "attempts", "expected"), [
    ("0", 1, "503 b"),  # the only attempt: the agent's own answer says more than we could
    ("1", 2, "502 retries_exhausted (no)"), ("2", 3, "502 retries_exhausted (no)"), ("9", 3, "502 retries_exhausted (no)"),
    ("nonsense", 3, "502 retries_exhausted (no)"),
])
async def test_the_chains_retries_bound_it_too(inner: Mesh, left: str, attempts: int,
                                                     expected: str) -> None:
    a = await inner.node("a")
    nodes = [await inner.node(f"b{number}", answer(503, "Retry-After: 0"), "work") for number in range(4)]
    inner.share()
    got = await inner.ask(a, "/to/work/x", f"Reach-Retries-Left: {left}", body=b"work")
    assert said(got).startswith(expected)
    assert sum(len(node.agent.asked) for node in nodes) == attempts


@pytest.mark.usefixtures("quick")
async def test_the_budget_of_a_target_bounds_the_repeats_of_all_calls(inner: Mesh) -> None:
    """20 % of the calls, at least one a second, in a window of ten: not the 120 that three attempts for each allow."""
    a, b = await inner.pair(answer(503, "Retry-After: 0"), CapabilityConfig(name="work", idempotent=True))
    began = time.monotonic()
    got = await asyncio.gather(*(inner.ask(a, "/to/work/x", body=b"work") for _ in range(40)))
    assert {one.status for one in got} <= {502, 503}
    assert len(b.agent.asked) <= 40 + 0.2 * 40 + 10 + (time.monotonic() - began)


@pytest.mark.parametrize(("first", "at_least_s", "at_most_s"), [
    (answer(200, "Reach-Outcome: retryable_failure"), 0.5, 1.0),
    (answer(503, "Retry-After: 1"), 1.0, 1.5),
], ids=["back-off", "Retry-After"])
async def test_how_long_is_waited(inner: Mesh, first: bytes, at_least_s: float, at_most_s: float) -> None:
    stage = await scene(inner, first)
    began = time.monotonic()
    assert (await stage.ask()).status == 200
    assert at_least_s <= time.monotonic() - began < at_most_s + 1.5


async def test_nothing_is_waited_for_past_the_deadline(inner: Mesh) -> None:
    stage = await scene(inner, answer(503, "Retry-After: 30"))
    began = time.monotonic()
    got = await stage.ask("Reach-Timeout: 800ms")
    assert time.monotonic() - began < 4.0
    assert (said(got), got.header("Retry-After"), stage.ran()) == ("503 b1 in 1", "30", "1+0")


@pytest.mark.usefixtures("quick")
async def test_a_long_body_is_not_repeated_once_it_was_sent(inner: Mesh) -> None:
    """Over 256 KiB nothing is kept. At the limit it is."""
    stage = await scene(inner, answer(503, "Retry-After: 0"))
    assert (await stage.ask(body=b"x" * (256 << 10))).status == 200
    assert stage.ran() == "1+1"
    got: Answer = await stage.ask(body=b"x" * ((256 << 10) + 1))
    assert got.status != 200
    assert stage.ran() == "2+1"


# -- what was decided can be seen


@pytest.mark.usefixtures("quick")
async def test_each_attempt_is_shown(inner: Mesh) -> None:
    stage = await scene(inner, answer(503, "Retry-After: 0"), second=hangs_up)
    got = await stage.ask()
    shown = got.json["attempts"]
    assert [set(one) for one in shown] == [{"agent", "result", "ms"}] * 2
    assert [(one["agent"], one["result"]) for one in shown] == [("b1", "retryable"), ("b2", "agent_broke")]
    assert all(one["ms"] >= 0 for one in shown)
    assert got.header("Reach-Attempts") == "2"
    lines = await stage.a.log(got.header("Reach-Trace-Id"), "attempt")
    assert [(line["target"], line["outcome"], line["attempt"]) for line in lines] == \
        [("b1", "retryable", 1), ("b2", "agent_broke", 2)]
    [call] = await stage.a.log(got.header("Reach-Trace-Id"), "call")
    assert (call["status"], call["outcome"], call["target"], call["capability"]) == (502, "outcome_unknown", "b2", "work")


async def test_where_the_time_went(inner: Mesh) -> None:
    """`queue`: it waited for the only place."""
    gate = Gate()
    stage = await scene(inner, in_turn(gate, ok()), agent={"max_concurrency": 1})
    first = await under_way(inner, stage.a, stage.b1, "/to/@b1/x")
    second = asyncio.ensure_future(inner.ask(stage.a, "/to/@b1/x", body=b"work"))
    await until(lambda: stage.b1.sidecar.local.queued == 1)
    await asyncio.sleep(0.05)
    gate.open()
    await first
    timing = dict(part.strip().split(";dur=") for part in str((await second).header("Server-Timing")).split(","))
    assert set(timing) == {"queue", "agent", "mesh"}
    assert float(timing["queue"]) >= 45
