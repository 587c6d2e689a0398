"""A key still runs once when its caller goes away, its store fails, or its sidecar has crashed."""

import asyncio
from typing import Any

import pytest
from harness.sidecars import Asked, Mesh, Node, hangs, ok, says, until
from sidecar.forward.keyed import MADE, STORED, Gate, Slow, ask, begin, call, capability, once, settled

from reach_sidecar.config import CapabilityConfig, DedupConfig

# -- Reach-Journal

@STORED
@pytest.mark.parametrize(("journal", "status"), [("right", 200), ("-", 502), ("0123456789abcdef", 502), (None, 200)])
@pytest.mark.parametrize("known", [False, True])
async def test_the_journal_counts_where_the_key_is_not_known(inner: Mesh, dedup: str, journal: str | None, status: int,
                                                             known: bool) -> None:
    b = await inner.node("b", ok(), capability(dedup))
    own = (await ask(inner, b, "another")).header("Reach-Journal")
    if known:
        await ask(inner, b)
    said = own if journal == "right" else journal
    answer = await ask(inner, b, "order-1", *([f"Reach-Journal: {said}"] if said else []))
    assert answer.status == (200 if known else status)
    if answer.status == 502:
        assert (answer.code, answer.json["executed"]) == ("outcome_unknown", "unknown")
    assert len(b.agent.asked) == 1 + (known or status == 200)


async def test_without_a_store_a_doubtful_call_does_not_run(inner: Mesh) -> None:
    b = await inner.node("b", ok(), capability("off"))
    assert (await ask(inner, b)).header("Reach-Journal") is None
    assert (await ask(inner, b)).status == 200
    assert len(b.agent.asked) == 2
    assert (await ask(inner, b, "order-1", "Reach-Journal: x")).code == "outcome_unknown"
    assert len(b.agent.asked) == 2


async def test_what_ran_when_the_sidecar_crashed_stays_in_doubt(inner: Mesh) -> None:
    b = await inner.node("b", hangs, capability("durable"), CapabilityConfig(name="again", dedup="durable",
                                                                              idempotent=True))
    clients = [await begin(inner, b, call(target=target)) for target in ("pay", "again")]
    await until(lambda: len(b.agent.asked) == 2)
    assert len(once(b)) == 2
    once(b)._runs.clear()  # as a new process begins
    b.agent.script = says(ok(b"twice"))
    answer = await ask(inner, b)
    assert (answer.code, answer.json["executed"]) == ("outcome_unknown", "unknown")
    assert (await ask(inner, b, body=b"other")).code == "key_reused"
    assert (await ask(inner, b, target="again")).body == b"twice"  # that does no harm
    assert (await ask(inner, b, target="again")).body == b"twice"
    assert len(b.agent.asked) == 3
    b.sidecar._mesh.service.abandon_after_s = 0.01
    for client in clients:
        client.close()


# -- who goes away

@STORED
async def test_a_given_key_runs_to_its_end_without_its_caller(inner: Mesh, dedup: str) -> None:
    gate = Gate(ok(b"late"))
    b = await inner.node("b", gate, capability(dedup))
    b.sidecar._mesh.service.abandon_after_s = 0.02
    client = await begin(inner, b, call())
    await until(lambda: b.agent.asked)
    client.close()
    await asyncio.sleep(0.1)
    assert b.agent.gone == 0
    gate.open.set()
    await settled(b)
    await inner.idle()
    assert (await ask(inner, b)).body == b"late"
    assert len(b.agent.asked) == 1


@STORED
async def test_a_stream_is_recorded_to_its_end_without_its_caller(inner: Mesh, dedup: str) -> None:
    go = asyncio.Event()
    size = 400_000

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * 1000)
        await go.wait()
        writer.write(b"y" * (size - 1000))

    b = await inner.node("b", script, capability(dedup))
    b.sidecar._mesh.service.abandon_after_s = 0.02
    client = await begin(inner, b, call())
    async with asyncio.timeout(5):
        await client.reader.readuntil(b"xx")
    joiner = asyncio.ensure_future(ask(inner, b))
    client.reset()
    await asyncio.sleep(0.1)
    go.set()
    expected = b"x" * 1000 + b"y" * (size - 1000)
    assert (await joiner).body == expected
    await settled(b)
    await inner.idle()
    assert (await ask(inner, b)).body == expected
    assert len(b.agent.asked) == 1


@STORED
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_made_key_ends_with_its_caller_and_leaves_doubt(inner: Mesh, dedup: str, streaming: bool) -> None:
    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if streaming:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        await asyncio.sleep(60)

    b = await inner.node("b", script, capability(dedup))
    b.sidecar._mesh.service.abandon_after_s = 0.02
    client = await begin(inner, b, call(MADE))
    await until(lambda: b.agent.asked)
    if streaming:
        async with asyncio.timeout(5):
            await client.reader.readuntil(b"half")
    client.close()
    await until(lambda: b.agent.gone == 1)
    await settled(b)
    await inner.idle()
    assert (await ask(inner, b, MADE)).code == "outcome_unknown"


@STORED
async def test_who_is_cancelled_while_it_waits_for_a_place_leaves_nothing_behind(inner: Mesh, dedup: str) -> None:
    gate = Gate()
    b = await inner.node("b", gate, capability(dedup), agent={"max_concurrency": 1})
    b.sidecar._mesh.service.abandon_after_s = 0.02
    first = asyncio.ensure_future(ask(inner, b, "other"))
    await until(lambda: b.agent.asked)
    client = await begin(inner, b, call(MADE))
    await until(lambda: b.sidecar.local.queued == 1)
    client.close()
    await until(lambda: b.sidecar.local.queued == 0)
    await settled_but_one(b)
    gate.open.set()
    assert (await first).status == 200
    assert (await ask(inner, b, MADE)).status == 200
    assert len(b.agent.asked) == 2


async def settled_but_one(node: Node) -> None:
    await until(lambda: len(once(node)) == 1)


async def test_a_made_key_that_is_joined_is_still_wanted(inner: Mesh) -> None:
    gate = Gate(ok(b"joined"))
    b = await inner.node("b", gate, capability("memory"))
    b.sidecar._mesh.service.abandon_after_s = 0.05
    client = await begin(inner, b, call(MADE))
    await until(lambda: b.agent.asked)
    joiner = asyncio.ensure_future(ask(inner, b, MADE))
    await until(lambda: next(iter(once(b)._runs.values()))._waiting)
    client.close()
    await asyncio.sleep(0.15)
    gate.open.set()
    assert (await joiner).body == b"joined"
    assert b.agent.gone == 0
    await inner.idle()


# -- the store

async def test_a_full_store_refuses_new_keys_and_knows_the_old_ones(inner: Mesh) -> None:
    b = await inner.node("b", ok(bytes(200_000)), capability("memory"), dedup=DedupConfig(memory=1 << 20))
    answers = [await ask(inner, b, f"order-{number}") for number in range(6)]
    assert [answer.status for answer in answers] == [200] * 5 + [503]
    assert (answers[5].header("Reach-Refused"), answers[5].json["executed"]) == ("store_unavailable", "no")
    assert len((await ask(inner, b, "order-0")).body) == 200_000
    assert (await ask(inner, b, MADE)).status == 200  # calls without keys of their own still find room
    assert len(b.agent.asked) == 6


async def test_a_store_that_cannot_write_refuses(inner: Mesh) -> None:
    b = await inner.node("b", ok(), capability("durable"))
    await ask(inner, b)
    await b.sidecar.stores._journal.close()  # type: ignore[union-attr]
    answer = await ask(inner, b, "order-2")
    assert (answer.code, answer.header("Reach-Refused")) == ("store_unavailable", "store_unavailable")
    assert (await ask(inner, b)).code == "store_unavailable"
    assert len(b.agent.asked) == 1
    assert len(once(b)) == 0


def _full(part: object) -> OSError:
    return OSError(28, "No space left on device")


async def test_a_disk_that_is_full_refuses_before_the_agent_is_asked(inner: Mesh) -> None:
    b = await inner.node("b", ok(), capability("durable"))
    await ask(inner, b)
    writer = b.sidecar.stores._journal._writer  # type: ignore[union-attr]
    write = writer._transaction
    writer._transaction = _full  # type: ignore[method-assign]
    answer = await ask(inner, b, "order-2")
    assert (answer.code, answer.header("Reach-Refused")) == ("store_unavailable", "store_unavailable")
    assert (await ask(inner, b)).status == 200  # what was noted before is still known
    writer._transaction = write  # type: ignore[method-assign]
    assert (await ask(inner, b, "order-2")).status == 200
    assert len(b.agent.asked) == 2


async def test_an_end_that_cannot_be_noted_leaves_doubt_and_not_a_second_run(inner: Mesh) -> None:
    gate = Gate(ok(b"answered"))
    b = await inner.node("b", gate, capability("durable"))
    first = asyncio.ensure_future(ask(inner, b))
    await until(lambda: b.agent.asked)
    writer = b.sidecar.stores._journal._writer  # type: ignore[union-attr]
    write = writer._transaction
    writer._transaction = _full  # type: ignore[method-assign]
    gate.open.set()
    assert (await first).body == b"answered"
    writer._transaction = write  # type: ignore[method-assign]
    assert (await ask(inner, b)).code == "outcome_unknown"
    assert len(b.agent.asked) == 1


async def test_a_hundred_at_once_share_commits(inner: Mesh) -> None:
    b = await inner.node("b", ok(), capability("durable"), agent={"max_concurrency": 100})
    clients = [await inner.connect(b, "mesh") for _ in range(100)]
    journal = b.sidecar.stores._journal
    assert journal is not None
    before = journal.commits
    for number, client in enumerate(clients):
        client.writer.write(call(f"order-{number}"))
    answers = await asyncio.gather(*[client.final("POST") for client in clients])
    assert all(answer.status == 200 for answer in answers)
    assert journal.commits - before < 60  # of 200 writes


# -- the commit under way

@pytest.mark.parametrize("key", [MADE, "order-1"])
async def test_cancelled_while_the_answer_is_noted(inner: Mesh, key: str) -> None:
    b = await inner.node("b", ok(b"noted"), capability("durable"), agent={"max_concurrency": 1})
    b.sidecar._mesh.service.abandon_after_s = 0.02
    slow = Slow(b, "'done'")
    client = await begin(inner, b, call(key))
    await until(lambda: slow.waiting)
    client.close()
    await asyncio.sleep(0.1)
    joiner = asyncio.ensure_future(ask(inner, b, key))
    await asyncio.sleep(0.05)
    slow.go.set()
    assert (await joiner).body == b"noted"
    await settled(b)
    await inner.idle()  # the place is free again
    assert (await ask(inner, b, key)).body == b"noted"
    assert len(b.agent.asked) == 1


async def test_cancelled_while_its_beginning_is_noted(inner: Mesh) -> None:
    b = await inner.node("b", ok(), capability("durable"), agent={"max_concurrency": 1})
    b.sidecar._mesh.service.abandon_after_s = 0.02
    slow = Slow(b, "INSERT INTO run")
    client = await begin(inner, b, call(MADE))
    await until(lambda: slow.waiting)
    client.close()
    await settled(b)
    await inner.idle()
    slow.go.set()
    assert b.agent.asked == []
    assert (await ask(inner, b, MADE)).status == 200


async def test_a_disk_that_is_slow_at_the_beginning_costs_no_more_than_the_deadline(inner: Mesh) -> None:
    b = await inner.node("b", ok(), capability("durable"))
    slow = Slow(b, "INTO run")
    answer = await ask(inner, b, "order-1", "Reach-Timeout: 100ms")
    assert (answer.code, answer.json["executed"]) == ("deadline_exceeded", "no")
    slow.go.set()
    await settled(b)
    assert (await ask(inner, b)).status == 200
    assert len(b.agent.asked) == 1


async def test_a_disk_that_is_slow_at_the_end_holds_nobody_beyond_the_deadline(inner: Mesh) -> None:
    b = await inner.node("b", ok(b"in time"), capability("durable"))
    slow = Slow(b, "'done'")
    answer = await ask(inner, b, "order-1", "Reach-Timeout: 200ms")
    assert answer.body == b"in time"
    assert len(once(b)) == 1  # until it is noted, a repeat joins
    joiner = await ask(inner, b, "order-1", "Reach-Timeout: 50ms")
    assert joiner.code == "deadline_exceeded"
    slow.go.set()
    await settled(b)
    assert (await ask(inner, b)).body == b"in time"
    assert len(b.agent.asked) == 1


async def test_a_look_that_is_late_runs_nothing_twice(inner: Mesh) -> None:
    """The row is read before another call with the key begins, and told after that one has ended."""
    b = await inner.node("b", ok(b"first"), capability("durable"))
    journal = b.sidecar.stores._journal
    assert journal is not None
    read, go = journal.read, asyncio.Event()
    held = 0

    async def late(question: Any) -> Any:
        nonlocal held
        answer = await read(question)
        held += 1
        if held == 1:
            await go.wait()
        return answer

    journal.read = late  # type: ignore[method-assign]
    slow = asyncio.ensure_future(ask(inner, b))
    await until(lambda: held)
    assert (await ask(inner, b)).body == b"first"
    go.set()
    assert (await slow).body == b"first"
    assert len(b.agent.asked) == 1
    await inner.idle()


# -- the whole way

@STORED
async def test_a_repeat_needs_no_place(inner: Mesh, dedup: str) -> None:
    gate = Gate()
    b = await inner.node("b", ok(b"known"), capability(dedup), agent={"max_concurrency": 1, "queue": 0})
    await ask(inner, b)
    b.agent.script = gate
    hanging = asyncio.ensure_future(ask(inner, b, "order-2"))
    await until(lambda: len(b.agent.asked) == 2)
    assert (await ask(inner, b)).body == b"known"
    assert (await ask(inner, b, "order-3")).code == "backpressure"
    gate.open.set()
    assert (await hanging).status == 200
    await inner.idle()


async def test_what_the_caller_sees_of_a_repeat(inner: Mesh) -> None:
    a, b = await inner.pair(ok(b"known", b"X-Y: z"), capability("memory"))
    first, again = [await inner.ask(a, "/to/pay/x", "Idempotency-Key: k", body=b"work") for _ in range(2)]
    assert again.body == first.body
    assert again.header("X-Y") == "z"
    assert again.header("Reach-Journal") is None
    assert len(b.agent.asked) == 1


async def test_keys_that_are_made_are_other_calls(inner: Mesh) -> None:
    a, b = await inner.pair(ok(), capability("memory"))
    for _ in range(3):
        assert (await inner.ask(a, "/to/pay/x", body=b"work")).status == 200
    assert len(b.agent.asked) == 3
