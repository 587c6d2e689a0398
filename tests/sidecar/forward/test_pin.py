"""A caller's own key goes to one agent only, where twice would do harm: over real sockets, seen from the caller."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from harness.sidecars import Asked, Mesh, Node, hangs, hangs_up, ok, until
from sidecar.forward.keyed import Gate, Slow, capability, once
from sidecar.http1.raw import Answer

from reach_core.peer import Rank
from reach_sidecar.forward.pin import Pin
from reach_sidecar.journal.notes import Note
from reach_sidecar.policy.dedup import row_key

BUSY = b"HTTP/1.1 503 X\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\nno"


def pay(inner: Mesh, a: Node, key: str = "k", *fields: str, target: str = "pay", **more: Any) -> Any:
    return inner.ask(a, f"/to/{target}/x", f"Idempotency-Key: {key}", *fields, body=b"work", **more)


async def note(a: Node, key: str = "k", asked: str = "pay") -> Note | None:
    notes = await a.sidecar.stores.notes()
    return await notes.get(row_key(b"", asked.encode(), b"", key.encode()))


def pin(a: Node) -> Pin:
    layer = a.sidecar._outbound.service.handler._call  # type: ignore[attr-defined]
    while not isinstance(layer, Pin):
        layer = layer._inner
    return layer


async def three(inner: Mesh, script: Any = b"", dedup: str = "durable") -> tuple[Node, Node, Node]:
    a = await inner.node("a")
    b, c = [await inner.node(name, script or ok(name.encode()), capability(dedup)) for name in "bc"]
    inner.share()
    return a, b, c


def asked(*nodes: Node) -> list[int]:
    return [len(node.agent.asked) for node in nodes]


@pytest.mark.parametrize(("dedup", "idempotent", "fields", "method", "noted"), [
    ("durable", False, ("Idempotency-Key: k",), "POST", True),
    ("durable", True, ("Idempotency-Key: k",), "POST", False),
    ("memory", False, ("Idempotency-Key: k",), "POST", False),
    ("off", False, ("Idempotency-Key: k",), "POST", False),
    ("durable", False, (), "POST", False),
    ("durable", False, ("Idempotency-Key: k",), "GET", False),
])
async def test_which_calls_are_noted(inner: Mesh, dedup: str, idempotent: bool, fields: tuple[str, ...], method: str,
                                     noted: bool) -> None:
    a, _ = await inner.pair(ok(), capability(dedup, idempotent=idempotent))
    assert (await inner.ask(a, "/to/pay/x", *fields, body=b"work", method=method)).status == 200
    assert a.sidecar.stores.is_open == noted
    if noted:
        found = await note(a)
        assert found is not None
        assert found.agent == "b"
    assert pin(a)._pinned == {}


async def test_nothing_is_sent_before_the_note_is_on_disk(inner: Mesh) -> None:
    a, b = await inner.pair(ok(), capability("durable"))
    await a.sidecar.stores.open()
    slow = Slow(a, "INTO note")
    asking = asyncio.ensure_future(pay(inner, a))
    await until(lambda: slow.waiting)
    await asyncio.sleep(0.05)
    assert asked(b) == [0]
    slow.go.set()
    assert (await asking).status == 200


async def test_a_note_that_takes_too_long(inner: Mesh) -> None:
    a, b = await inner.pair(ok(), capability("durable"))
    await a.sidecar.stores.open()
    slow = Slow(a, "INTO note")
    answer = await pay(inner, a, "k", "Reach-Timeout: 80ms")
    assert (answer.code, answer.json["executed"], asked(b)) == ("deadline_exceeded", "no", [0])
    slow.go.set()
    await until(lambda: not pin(a)._pinned)
    assert await note(a) is None, "it may be written late, and nothing was sent"
    assert (await pay(inner, a)).status == 200


async def test_without_a_disk_it_is_refused(inner: Mesh) -> None:
    a, b = await inner.pair(ok(), capability("durable"))
    await pay(inner, a)
    await a.sidecar.stores._journal.close()  # type: ignore[union-attr]
    answer = await pay(inner, a, "k2")
    assert (answer.code, answer.json["executed"], asked(b)) == ("store_unavailable", "no", [1])


async def test_repeats_go_to_the_same_agent_although_another_is_idle(inner: Mesh) -> None:
    a, b, c = await three(inner)
    for number in range(6):
        bodies = {(await pay(inner, a, f"k{number}")).body for _ in range(5)}
        assert len(bodies) == 1
    assert sum(asked(b, c)) == 6


async def test_the_key_moves_where_nothing_ran(inner: Mesh) -> None:
    a, b, c = await three(inner)
    b.agent.script = c.agent.script = first_refuses(b, c)
    answer = await pay(inner, a)
    found = await note(a)
    assert found is not None
    assert (answer.body, found.agent) == (answer.header("Reach-Agent").encode(), answer.header("Reach-Agent"))
    assert asked(b, c) == [1, 1]
    assert (await pay(inner, a)).body == answer.body
    assert asked(b, c) == [1, 1]


def first_refuses(*nodes: Node) -> Any:
    async def script(one: Asked, writer: asyncio.StreamWriter) -> None:
        if sum(asked(*nodes)) == 1:
            writer.write(BUSY)
        else:
            name = next(node.id for node in nodes if node.agent.asked and node.agent.last is one)
            writer.write(ok(name.encode()))
    return script


@pytest.mark.parametrize("why", ["draining", "retryable"])
async def test_where_nothing_ran_at_all_the_key_is_free_again(inner: Mesh, why: str) -> None:
    a, b = await inner.pair(BUSY if why == "retryable" else ok(), capability("durable"))
    b.sidecar.local.closing = why == "draining"
    answer = await pay(inner, a, "k", "Reach-Timeout: 3s")
    assert answer.json["executed"] == "no"
    await until(lambda: not pin(a)._pinned)  # it is dropped beside the answer
    assert await note(a) is None
    b.sidecar.local.closing = False
    b.agent.script = Gate(ok(b"now"))
    b.agent.script.open.set()
    assert (await pay(inner, a)).body == b"now"


async def test_a_key_in_doubt_waits_for_its_agent_and_asks_no_other(inner: Mesh) -> None:
    a, b, c = await three(inner, hangs_up)
    first = await pay(inner, a, "k", "Reach-Timeout: 2s")
    assert (first.code, first.json["executed"]) == ("outcome_unknown", "unknown")
    assert sorted(asked(b, c)) == [0, 1]
    again = await pay(inner, a, "k", "Reach-Timeout: 1s")
    assert (again.json["executed"], sorted(asked(b, c))) == ("unknown", [0, 1])
    assert await note(a) is not None


@pytest.mark.parametrize("how", ["left the table", "is down", "other offers only, which see no harm"])
async def test_its_agent_is_gone(inner: Mesh, how: str) -> None:
    a, b = await inner.pair(hangs_up, capability("durable"))
    await pay(inner, a, "k", "Reach-Timeout: 1s")
    c = await inner.node("c", ok(b"twice"), capability("memory" if how.startswith("other") else "durable"))
    a.learn(c.entry(), b.entry(rank=Rank.DOWN) if how == "is down" else
            b.entry(rank=Rank.LEFT, expires_ms=time.time_ns() // 1_000_000 + 60_000))
    answer = await pay(inner, a, "k", "Reach-Timeout: 1s")
    assert (answer.code, answer.json["executed"], asked(b, c)) == ("outcome_unknown", "unknown", [1, 0])
    assert (await pay(inner, a, "k2")).body == b"twice"  # other keys may go there


async def test_an_exact_name_that_comes_later_makes_no_other_key(inner: Mesh) -> None:
    a = await inner.node("a")
    b = await inner.node("b", hangs_up, capability("durable", aliases=["charge"]))
    inner.share()
    await pay(inner, a, "k", "Reach-Timeout: 1s", target="charge")
    c = await inner.node("c", ok(b"twice"), capability("durable", aliases=[]), "charge")
    inner.share()
    answer = await pay(inner, a, "k", "Reach-Timeout: 1s", target="charge")
    assert (answer.json["executed"], asked(b, c)) == ("unknown", [1, 0])


# -- two at once

async def test_the_second_waits_for_the_firsts_note_and_joins_it(inner: Mesh) -> None:
    a, b, c = await three(inner)
    gate = Gate(ok(b"once"))
    b.agent.script = c.agent.script = gate
    await a.sidecar.stores.open()
    slow = Slow(a, "INTO note")
    asking = [asyncio.ensure_future(pay(inner, a)) for _ in range(10)]
    await until(lambda: slow.waiting)
    await until(lambda: pin(a)._pinned and next(iter(pin(a)._pinned.values())).users == 10)
    slow.go.set()
    await until(lambda: sum(asked(b, c)) == 1)
    gate.open.set()
    answers: list[Answer] = await asyncio.gather(*asking)
    assert [answer.body for answer in answers] == [b"once"] * 10
    assert (sum(asked(b, c)), slow.waiting) == (1, 1)
    assert pin(a)._pinned == {}


async def test_the_second_does_not_wait_beyond_its_deadline(inner: Mesh) -> None:
    a, _ = await inner.pair(ok(), capability("durable"))
    await a.sidecar.stores.open()
    slow = Slow(a, "INTO note")
    first = asyncio.ensure_future(pay(inner, a))
    await until(lambda: slow.waiting)
    began = time.monotonic()
    answer = await pay(inner, a, "k", "Reach-Timeout: 100ms")
    assert (answer.code, time.monotonic() - began < 2.0) == ("in_progress", True)
    slow.go.set()
    assert (await first).status == 200
    assert pin(a)._pinned == {}


@pytest.mark.parametrize("others", [1, 2, 5])
async def test_the_first_goes_away_while_it_notes(inner: Mesh, others: int) -> None:
    """Whoever is next finds an agent; nobody is forgotten, and it runs once."""
    a, b, c = await three(inner)
    await a.sidecar.stores.open()
    slow = Slow(a, "INTO note")
    client = await inner.connect(a)
    await client.send(b"POST /to/pay/x HTTP/1.1\r\nHost: 127.0.0.1:7070\r\nIdempotency-Key: k\r\nContent-Length: 4\r\n"
                      b"\r\nwork")
    await until(lambda: slow.waiting == 1)
    asking = [asyncio.ensure_future(pay(inner, a)) for _ in range(others)]
    await until(lambda: next(iter(pin(a)._pinned.values())).users == others + 1)
    client.close()
    await until(lambda: slow.waiting == 2)
    slow.go.set()
    assert {answer.status for answer in await asyncio.gather(*asking)} == {200}
    assert sum(asked(b, c)) == 1
    assert pin(a)._pinned == {}


@pytest.mark.parametrize("others", [1, 2])
async def test_the_first_goes_away_while_it_reads_and_the_note_still_counts(inner: Mesh, others: int) -> None:
    a, b, c = await three(inner, hangs_up)
    await pay(inner, a, "k", "Reach-Timeout: 1s")
    before = asked(b, c)
    b.agent.script = c.agent.script = Gate(ok(b"twice"))
    journal = a.sidecar.stores._journal
    assert journal is not None
    read, go, reading = journal.read, asyncio.Event(), 0

    async def late(question: Any) -> Any:
        nonlocal reading
        reading += 1
        if reading == 1:
            await go.wait()
        return await read(question)

    journal.read = late  # type: ignore[method-assign]
    client = await inner.connect(a)
    await client.send(b"POST /to/pay/x HTTP/1.1\r\nHost: 127.0.0.1:7070\r\nIdempotency-Key: k\r\nContent-Length: 4\r\n"
                      b"\r\nwork")
    await until(lambda: reading == 1)
    asking = [asyncio.ensure_future(pay(inner, a, "k", "Reach-Timeout: 1s")) for _ in range(others)]
    await until(lambda: next(iter(pin(a)._pinned.values())).users == others + 1)
    client.close()
    answers = await asyncio.gather(*asking)
    assert {answer.json["executed"] for answer in answers} == {"unknown"}
    assert asked(b, c) == before
    go.set()


async def test_a_client_that_goes_away_leaves_the_note_and_no_slot(inner: Mesh) -> None:
    a, b = await inner.pair(hangs, capability("durable"))
    b.sidecar._mesh.service.abandon_after_s = 0.02
    client = await inner.connect(a)
    await client.send(b"POST /to/pay/x HTTP/1.1\r\nHost: 127.0.0.1:7070\r\nIdempotency-Key: k\r\nContent-Length: 4\r\n"
                      b"Reach-Timeout: 1s\r\n\r\nwork")
    await until(lambda: b.agent.asked)
    client.close()
    await inner.idle()
    assert await note(a) is not None
    assert pin(a)._pinned == {}


# -- while the called store's id is not known

LATER = b"HTTP/1.1 503 X\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nno"
MUCH_LATER = LATER.replace(b": 1", b": 30")


async def hung_up(inner: Mesh, a: Node, when: Callable[[], object]) -> None:
    """A call whose caller goes away then."""
    client = await inner.connect(a)
    await client.send(b"POST /to/pay/x HTTP/1.1\r\nHost: 127.0.0.1:7070\r\nIdempotency-Key: k\r\nContent-Length: 4\r\n"
                      b"\r\nwork")
    await until(when)
    client.close()
    await until(lambda: not pin(a)._pinned)


def users(a: Node) -> int:
    return sum(pinned.users for pinned in pin(a)._pinned.values())


async def test_who_waits_takes_over_where_the_first_gives_up(inner: Mesh) -> None:
    """Nothing ran, and the first one says so: the second has joined nothing."""
    a, b = await inner.pair(Gate(MUCH_LATER), capability("durable"))
    first = asyncio.ensure_future(pay(inner, a, "k", "Reach-Timeout: 3s"))
    await until(lambda: b.agent.asked)
    second = asyncio.ensure_future(pay(inner, a))
    await until(lambda: users(a) == 2)
    b.agent.script.open.set()  # type: ignore[attr-defined]
    b.agent.script = Gate(ok(b"now"))
    b.agent.script.open.set()
    assert ((await first).status, (await second).body) == (503, b"now")
    assert (asked(b), (await pay(inner, a)).body) == ([2], b"now")


async def test_who_waits_for_the_first_has_a_deadline(inner: Mesh) -> None:
    a, b = await inner.pair(Gate(), capability("durable"))
    first = asyncio.ensure_future(pay(inner, a))
    await until(lambda: b.agent.asked)
    answer = await pay(inner, a, "k", "Reach-Timeout: 100ms")
    assert (answer.code, answer.json["executed"]) == ("deadline_exceeded", "unknown")
    b.agent.script.open.set()  # type: ignore[attr-defined]
    assert (await first).status == 200


async def test_a_caller_that_goes_away_between_two_attempts_leaves_no_doubt(inner: Mesh) -> None:
    a, b = await inner.pair(LATER, capability("durable"))
    await hung_up(inner, a, lambda: b.agent.asked and not a.peer("b").in_flight)
    assert await note(a) is None
    b.agent.script = Gate(ok(b"now"))
    b.agent.script.open.set()
    assert ((await pay(inner, a)).body, asked(b)) == (b"now", [2])


async def test_who_comes_back_to_a_run_learns_that_it_was_none(inner: Mesh) -> None:
    """The first caller went away while its agent worked. Who repeats it hears with its own ears: not done."""
    a, b = await inner.pair(Gate(BUSY), capability("durable"))
    await hung_up(inner, a, lambda: b.agent.asked)
    again = asyncio.ensure_future(pay(inner, a))
    await until(lambda: next(iter(once(b)._runs.values()))._waiting)
    b.agent.script.open.set()  # type: ignore[attr-defined]
    b.agent.script = Gate(ok(b"now"))
    b.agent.script.open.set()
    assert ((await again).body, asked(b)) == (b"now", [2])
    found = await note(a)
    assert found is not None
    assert found.journal == b.sidecar.stores._durable.id  # type: ignore[union-attr]
