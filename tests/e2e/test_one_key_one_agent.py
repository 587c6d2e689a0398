"""A key of the caller's own leads to one agent and one run, by whatever name the call comes and whoever it comes from.

`b1` and `b2` both do `pay`, durably and once only; each call prefers one of the two. A repeat that prefers the other
one has to find the first.
"""

import asyncio
import shutil
from typing import Any

import pytest
from harness.delivery import Gate, in_turn, said, under_way, wire_between
from harness.sidecars import Mesh, Node, ok, request, until
from sidecar.http1.raw import Answer

from reach_sidecar.app import Sidecar
from reach_sidecar.config import CapabilityConfig

KEY = "Idempotency-Key: order-7"
TOKEN = "Authorization: Bearer t"
FAILS = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off of 10 to 20 ms and a doubling."""
    monkeypatch.setattr("reach_sidecar.policy.backoff.FIRST_S", 0.01)
    monkeypatch.setattr("reach_sidecar.policy.backoff.JITTER_S", 0.01)


def does(name: str = "pay", **more: Any) -> CapabilityConfig:
    return CapabilityConfig(**{"name": name, "dedup": "durable", **more})


class Two:
    """The caller `a`, and what `b1` and `b2` ran."""

    def __init__(self, inner: Mesh, a: Node, b1: Node, b2: Node) -> None:
        self.inner, self.a, self.b1, self.b2 = inner, a, b1, b2

    async def ask(self, prefer: str, target: str = "/to/pay/x", *fields: str, body: bytes = b"work") -> str:
        """The agent that answered, or the problem. `prefer` is `b1` or `b2`."""
        answer = await self.inner.ask(self.a, target, f"Reach-Prefer: at={prefer}", *(fields or (KEY,)), body=body)
        return said(answer).removesuffix(" in 1")

    def ran(self) -> str:
        return f"{len(self.b1.agent.asked)}+{len(self.b2.agent.asked)}"

    def learn(self) -> None:
        self.a.learn(self.b1.entry(), self.b2.entry())


async def two(inner: Mesh, first: dict[str, Any] | None = None, second: dict[str, Any] | None = None,
              script: Any = b"", **caller: Any) -> Two:
    a = await inner.node("a", **caller)
    b1 = await inner.node("b1", script or ok(b"b1"), does(attributes={"at": ["b1"]}, **(first or {})))
    b2 = await inner.node("b2", ok(b"b2"), does(attributes={"at": ["b2"]}, **(second or {})))
    found = Two(inner, a, b1, b2)
    found.learn()
    return found


class Valve(Gate):
    """A gate that can be shut again."""

    def shut(self) -> None:
        self._open.clear()


async def knows_the_store(inner: Mesh, a: Node, b: Node, gate: Valve, target: str) -> None:
    """A first call, after which `a` can tell whether `b` has forgotten; its gate is shut again."""
    first = await under_way(inner, a, b, target)
    gate.open()
    assert (await first).status == 200
    gate.shut()


# -- whoever comes beside it, before its caller knows the agent's store

NOT_DONE = b"HTTP/1.1 503 No\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


async def lost_its_store(inner: Mesh, b: Node) -> Node:
    """`b` anew, without what was on its disk; its agent lives on."""
    await b.sidecar.stop(leave=False)
    inner.nodes.remove(b)
    shutil.rmtree(b.sidecar.config.state_dir or "")
    new = await inner.node(b.id, ok(), does(), agent={"address": b.agent.url})
    new.agent_or_none, new.ver = b.agent, b.ver
    return new


@pytest.mark.parametrize("when", ["while it runs", "while the first waits to try again"])
async def test_a_second_call_makes_no_doubt_of_what_was_not_done(inner: Mesh, when: str) -> None:
    """The agent says once that it did nothing. Both calls try again, and it runs once."""
    gate = Gate(NOT_DONE)
    a, b = await inner.pair(in_turn(gate, ok(b"done")), does())
    first = await under_way(inner, a, b, "/to/pay/x", KEY)
    if when != "while it runs":
        gate.open()
        await until(lambda: not b.sidecar.local.running and not a.peer("b").in_flight, "the first answer")
    second = asyncio.ensure_future(inner.ask(a, "/to/pay/x", KEY, body=b"work"))
    await until(lambda: second.done() or a.sidecar.metrics.in_flight["out"] == 2, "the second call")
    gate.open()
    assert [(one.status, one.body) for one in (await first, await second)] == [(200, b"done")] * 2
    repeat = await inner.ask(a, "/to/pay/x", KEY, body=b"work")
    assert (repeat.body, len(b.agent.asked)) == (b"done", 2)


async def test_nobody_runs_again_what_a_lost_store_would_know(inner: Mesh) -> None:
    """The first answer ever is lost, and with it all that the agent's side knew."""
    a, b = await inner.pair(Gate(), does())
    async with wire_between(a, b) as wire:
        calls = [await under_way(inner, a, b, "/to/pay/x", KEY)]
        calls.append(asyncio.ensure_future(inner.ask(a, "/to/pay/x", KEY, body=b"work")))
        await until(lambda: a.sidecar.metrics.in_flight["out"] == 2, "the second call")
        wire.down()
        new = await lost_its_store(inner, b)
        a.learn(new.entry())
        answers = [await call for call in calls] + [await inner.ask(a, "/to/pay/x", KEY, body=b"work")]
    assert [(one.code, one.json["executed"]) for one in answers] == [("outcome_unknown", "unknown")] * 3
    assert len(b.agent.asked) == 1


async def test_an_id_that_came_with_a_refusal_to_work_counts_afterwards(inner: Mesh) -> None:
    """Not done, says the agent first. Then it works, the answer is lost, and so is the store."""
    a, b = await inner.pair(in_turn(NOT_DONE, Gate()), does())
    async with wire_between(a, b) as wire:
        call = await under_way(inner, a, b, "/to/pay/x", KEY, runs=2)
        wire.down()
        new = await lost_its_store(inner, b)
        a.learn(new.entry())
        answers = [await call] + [await inner.ask(a, "/to/pay/x", KEY, body=b"work") for _ in range(2)]
    assert [(one.code, one.json["executed"]) for one in answers] == [("outcome_unknown", "unknown")] * 3
    assert len(b.agent.asked) == 2


# -- by whatever name the caller goes


def registers(a: Node) -> None:
    a.sidecar.local.declare("bot", address="http://127.0.0.1:9", capabilities=[])


async def test_a_caller_that_gets_its_name_between_two_attempts_is_the_same(inner: Mesh) -> None:
    gate = Valve()
    a = await inner.node("a", provisional=True)
    b = await inner.node("b", gate, does())
    inner.share()
    await knows_the_store(inner, a, b, gate, "/to/pay/warm")
    async with wire_between(a, b) as wire:
        call = await under_way(inner, a, b, "/to/pay/x", KEY)
        registers(a)
        wire.cut()
        await until(lambda: wire.taken == 2, "the second attempt")
        gate.open()
        assert said(await call) == "200 b in 2"
    assert [one.target for one in b.agent.asked] == ["/warm", "/x"]


@pytest.mark.parametrize("steps", [
    ("ask", "register", "ask"), ("register", "ask", "restart", "ask"), ("ask", "restart", "ask"),
    ("register", "ask", "restart", "register", "ask"), ("ask", "restart", "register", "ask", "restart", "ask"),
], ids=" ".join)
async def test_neither_a_registration_nor_a_restart_makes_another_caller(inner: Mesh, steps: tuple[str, ...]) -> None:
    made = await two(inner, provisional=True)
    answers: list[str] = []
    for step in steps:
        if step == "register":
            registers(made.a)
        elif step == "restart":
            await made.a.sidecar.stop(leave=False)
            made.a.sidecar = Sidecar(made.a.sidecar.config, {})
            await made.a.sidecar.start()
            made.learn()
        else:
            answers.append(await made.ask("b2" if answers else "b1"))
    assert answers == ["200 b1"] * len(answers)
    assert made.ran() == "1+0"


async def test_two_gateways_of_one_name_are_two_callers(inner: Mesh) -> None:
    """Else the client of one would get the answer that was kept for a client of the other."""
    one, other = await inner.node("one", id="gateway-h"), await inner.node("other", id="gateway-h")
    b = await inner.node("b", in_turn(ok(b"secret of one"), ok(b"of the other")), does(dedup="memory"))
    for gateway in (one, other):
        gateway.learn(b.entry())
    bodies = [(await inner.ask(gateway, "/to/pay/x", KEY, TOKEN, body=b"work")).body
              for gateway in (one, other, one, other)]
    assert bodies == [b"secret of one", b"of the other"] * 2


# -- by whatever name the capability is asked for


@pytest.mark.parametrize("mesh_wide", [False, True])
@pytest.mark.parametrize("names", [("pay", "charge"), ("charge", "pay"), ("charge", "bill", "Pay")], ids=" ".join)
async def test_all_names_of_a_capability_lead_to_one_agent(inner: Mesh, names: tuple[str, ...],
                                                           mesh_wide: bool) -> None:
    others = {} if mesh_wide else {"aliases": ["charge", "bill"]}
    made = await two(inner, others, others)
    made.a.sidecar.view.take_aliases({"pay": ["charge", "bill"]} if mesh_wide else {})
    prefer = ["b1", *["b2"] * (len(names) - 1)]
    assert [await made.ask(*one) for one in zip(prefer, (f"/to/{name}/x" for name in names), strict=True)] == [
        "200 b1"] * len(names)
    assert made.ran() == "1+0"


async def test_two_names_at_once_lead_to_one_run(inner: Mesh) -> None:
    gate = Gate(ok(b"b1"))
    others = {"aliases": ["charge"]}
    made = await two(inner, others, others, gate)
    first = asyncio.ensure_future(made.ask("b1", "/to/pay/x"))
    await until(lambda: made.b1.agent.asked)
    second = asyncio.ensure_future(made.ask("b2", "/to/charge/x"))
    await until(lambda: made.a.sidecar.metrics.in_flight["out"] == 2)
    gate.open()
    assert (await first, await second) == ("200 b1", "200 b1")
    assert made.ran() == "1+0"


async def test_an_agent_that_registers_anew_while_it_works_is_asked_for_the_same(inner: Mesh) -> None:
    """By its id a call means its one capability, until there are two."""
    gate = Valve()
    a, b = await inner.pair(gate, does("x"))
    await knows_the_store(inner, a, b, gate, "/to/@b/warm")
    async with wire_between(a, b) as wire:
        call = await under_way(inner, a, b, "/to/@b/other", KEY)
        b.sidecar.local.declare("b", capabilities=["x", "y"])
        wire.cut()
        await until(lambda: wire.taken == 2, "the second attempt")
        gate.open()
        assert said(await call) == "200 b in 2"
    assert [one.target for one in b.agent.asked] == ["/warm", "/other"]


# -- by the fallback


async def with_fallback(inner: Mesh, **own: Any) -> tuple[Two, Node]:
    """`x` stands in front of `b1` and `b2`, and is away."""
    made = await two(inner)
    x = await inner.node("x", ok(b"x"), does("x", fallback="pay", **own))
    made.a.learn(x.entry(flags=("draining",)))
    return made, x


@pytest.mark.parametrize("own", [{"dedup": "memory", "idempotent": True}, {"dedup": "off", "idempotent": True}, {}],
                         ids=["memory", "off", "durable"])
async def test_the_fallback_of_a_key_stays_one_agent(inner: Mesh, own: dict[str, Any]) -> None:
    made, _ = await with_fallback(inner, **own)
    assert [await made.ask(one, "/to/x/x") for one in ("b1", "b2", "b2")] == ["200 b1"] * 3
    assert made.ran() == "1+0"


@pytest.mark.parametrize("own", [{"dedup": "memory", "idempotent": True}, {}], ids=["memory", "durable"])
async def test_what_the_fallback_did_it_is_asked_for_when_the_first_is_back(inner: Mesh, own: dict[str, Any]) -> None:
    made, x = await with_fallback(inner, **own)
    assert await made.ask("b1", "/to/x/x") == "200 b1"
    made.a.learn(x.entry())
    assert await made.ask("b2", "/to/x/x") == "200 b1"
    assert (made.ran(), len(x.agent.asked)) == ("1+0", 0)


async def test_what_the_first_did_no_fallback_does_again(inner: Mesh) -> None:
    made, x = await with_fallback(inner)
    made.a.learn(x.entry())
    assert await made.ask("b1", "/to/x/x") == "200 x"
    made.a.learn(x.entry(flags=("draining",)))
    await made.ask("b1", "/to/x/x")
    assert (made.ran(), len(x.agent.asked)) == ("0+0", 1)


# -- by agents that declare it differently


@pytest.mark.parametrize("saying", ["b1", "b2"])
async def test_a_key_stands_where_any_of_the_agents_says(inner: Mesh, saying: str) -> None:
    """Who came to the table last makes no difference."""
    key: dict[str, Any] = {"key": "json:/id"}
    made = await two(inner, key if saying == "b1" else {}, key if saying == "b2" else {})
    answers = []
    for prefer, news in (("b1", made.b1), ("b2", made.b2), ("b2", made.b1)):
        answers.append(await made.ask(prefer, "/to/pay/x", "X-None: 1", body=b'{"id": "o7"}'))
        made.a.learn(news.entry())
    assert answers == ["200 b1"] * 3
    assert made.ran() == "1+0"


async def test_what_may_have_run_where_that_does_no_harm_is_not_repeated_where_it_does(inner: Mesh) -> None:
    made = await two(inner, {"idempotent": True}, script=FAILS)
    answer = await inner.ask(made.a, "/to/pay/x", "Reach-Prefer: at=b1", body=b"work")
    assert (answer.status, made.ran()) == (500, "1+0")


# -- by bodies that come in pieces

CHUNKED = request("/to/pay/x", KEY, "Transfer-Encoding: chunked", method="POST")
WORK = b"4\r\nwork\r\n0\r\n\r\n"


async def in_pieces(inner: Mesh, a: Node, b: Node, head: bytes = CHUNKED) -> "asyncio.Task[Answer]":
    """A call whose body comes when its head has reached the agent's side."""
    client = await inner.connect(a)
    before = b.sidecar.local.running
    await client.send(head)
    call = asyncio.ensure_future(client.final("POST"))
    await until(lambda: call.done() or b.sidecar.local.running > before, "the head")
    await client.send(WORK)
    return call


@pytest.mark.parametrize("dedup", ["memory", "durable"])
@pytest.mark.parametrize("slow_first", [True, False])
async def test_how_a_body_comes_makes_no_other_request_of_it(inner: Mesh, dedup: str, slow_first: bool) -> None:
    """A repeat that cannot be compared is told that the work was done, not that its key is another request's."""
    a, b = await inner.pair(ok(), does(dedup=dedup))
    for slow in (slow_first, not slow_first):
        answer = await (await in_pieces(inner, a, b)) if slow else await inner.raw(a, CHUNKED + WORK, method="POST")
        assert said(answer) in ("200 b in 1", "409 answer_not_kept (yes) answer_not_kept")
    assert len(b.agent.asked) == 1


async def test_another_path_is_another_request_in_pieces_too(inner: Mesh) -> None:
    a, b = await inner.pair(ok(), does())
    assert (await (await in_pieces(inner, a, b))).status == 200
    answer = await inner.raw(a, CHUNKED.replace(b"/x HTTP", b"/other HTTP") + WORK, method="POST")
    assert (answer.code, len(b.agent.asked)) == ("key_reused", 1)


async def test_a_call_whose_body_came_in_pieces_is_not_taken_for_another_one(inner: Mesh) -> None:
    """It runs, its connection breaks, and its body, which is whole by now, goes once more. Nobody may be told that
    nothing ran."""
    gate = Valve()
    a, b = await inner.pair(gate, does(dedup="memory"))
    await knows_the_store(inner, a, b, gate, "/to/pay/warm")
    async with wire_between(a, b) as wire:
        call = await in_pieces(inner, a, b, CHUNKED.replace(KEY.encode() + b"\r\n", b""))
        await until(lambda: len(b.agent.asked) == 2 and b.agent.last.body == b"work", "the run")
        wire.cut()
        await until(lambda: wire.taken == 2, "the second attempt")
        gate.open()
        answer = await call
    assert len(b.agent.asked) == 2
    assert answer.status == 200 or (answer.code != "key_reused" and answer.json["executed"] != "no"), said(answer)
