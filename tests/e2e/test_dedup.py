"""One key, one run: what a repeat gets, what sets keys apart, and when a run ends early (design §3, "Dedup", "Cancelling").

The called side decides. `a` calls, `b` is called; both are real sidecars.
"""

import asyncio
import time

import pytest
from harness.delivery import Gate, in_turn, under_way, wire_between
from harness.sidecars import Asked, Mesh, Node, Script, hangs, hangs_up, ok, request, says, until
from sidecar.http1.raw import Answer

from reach_sidecar.config import CapabilityConfig

URL = "/to/work/x"
KEY = "Idempotency-Key: order-7"
LONG = b"x" * ((256 << 10) + 1)  # a request that is not compared
JSON = "Content-Type: application/json"
NOT_DONE = b"HTTP/1.1 503 No\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
STORES = pytest.mark.parametrize("dedup", ["memory", "durable"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off of 10 to 20 ms and a doubling."""
    monkeypatch.setattr("reach_sidecar.policy.backoff.FIRST_S", 0.01)
    monkeypatch.setattr("reach_sidecar.policy.backoff.JITTER_S", 0.01)


async def pair(inner: Mesh, script: Script | bytes, dedup: str = "memory", **declared: object) -> tuple[Node, Node]:
    return await inner.pair(script, CapabilityConfig(name="work", dedup=dedup, **declared))  # type: ignore[arg-type]


async def counts(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Each run has an answer of its own."""
    counts.runs += 1  # type: ignore[attr-defined]
    writer.write(ok(b"run %d" % counts.runs, b"X-Own: 1", b"X-Own: 2"))  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _from_one() -> None:
    counts.runs = 0  # type: ignore[attr-defined]


# -- joining and replaying


@pytest.mark.parametrize(("dedup", "idempotent", "runs"), [
    ("off", False, 2), ("memory", False, 1), ("memory", True, 1), ("durable", False, 1), ("durable", True, 1),
])
async def test_two_at_once_run_once(inner: Mesh, dedup: str, idempotent: bool, runs: int) -> None:
    gate = Gate(ok(b"the answer", b"X-Own: 1"))
    a, b = await pair(inner, gate, dedup, idempotent=idempotent)
    first = await under_way(inner, a, b, URL, KEY)
    second = asyncio.ensure_future(inner.ask(a, URL, KEY, body=b"work"))
    third = asyncio.ensure_future(inner.ask(a, URL, KEY, body=b"work"))
    await until(lambda: a.sidecar.metrics.in_flight["out"] == 3)
    await asyncio.sleep(0.03)
    gate.open()
    for got in await asyncio.gather(first, second, third):
        assert (got.status, got.body, got.header("X-Own"), got.header("Reach-Agent")) == (200, b"the answer", "1", "b")
    assert len(b.agent.asked) == (3 if dedup == "off" else runs)
    await inner.idle()


@pytest.mark.parametrize(("dedup", "runs"), [("off", 2), ("memory", 1), ("durable", 1)])
async def test_a_repeat_gets_the_same_answer(inner: Mesh, dedup: str, runs: int) -> None:
    a, b = await pair(inner, counts, dedup)
    first = await inner.ask(a, URL, KEY, body=b"work")
    again = await inner.ask(a, URL, KEY, body=b"work")
    assert (first.body, again.body) == (b"run 1", b"run %d" % runs)
    assert [value for name, value in again.headers if name == "X-Own"] == ["1", "2"]
    assert len(b.agent.asked) == runs
    assert first.header("Reach-Trace-Id") != again.header("Reach-Trace-Id")
    [deliver] = await b.log(again.header("Reach-Trace-Id"), "deliver")
    assert deliver["status"] == 200


@STORES
async def test_repeats_that_come_while_it_ends(inner: Mesh, dedup: str) -> None:
    """Before, at and after its end: there is no moment at which a repeat does not find the run or its answer."""
    a, b = await pair(inner, ok(b"the answer"), dedup)
    for number in range(6):
        asking = []
        for _ in range(20):
            asking.append(asyncio.ensure_future(inner.ask(a, URL, f"Idempotency-Key: k{number}", body=b"work")))
            await asyncio.sleep(0.0005)
        got = await asyncio.gather(*asking)
        assert {(one.status, one.body) for one in got} == {(200, b"the answer")}
        assert len(b.agent.asked) == number + 1
    await inner.idle()


# what the agent answered: is it kept for the repeat?
ANSWERS: dict[str, tuple[bytes, bool, bool]] = {  # not repeatable, repeatable
    "200": (ok(b"yes"), True, True),
    "404": (ok(b"no").replace(b"200 OK", b"404 No"), True, True),
    "500": (ok(b"no").replace(b"200 OK", b"500 No"), True, False),
    "failure": (ok(b"no", b"Reach-Outcome: failure"), True, True),
    "invalid_request": (ok(b"no", b"Reach-Outcome: invalid_request"), True, True),
    "retryable_failure": (ok(b"no", b"Reach-Outcome: retryable_failure"), False, False),
    "503 with Retry-After": (NOT_DONE, False, False),
    "429 with Retry-After": (NOT_DONE.replace(b"503", b"429"), False, False),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", True, True),
}


@STORES
@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
@pytest.mark.parametrize("said", ANSWERS)
async def test_what_is_kept(inner: Mesh, said: str, idempotent: bool, dedup: str) -> None:
    """An answer that says "not done" deletes the row: the repeat runs."""
    first, *kept = ANSWERS[said]
    a, b = await pair(inner, in_turn(first, ok(b"the second run")), dedup, idempotent=idempotent)
    once = await inner.ask(a, URL, KEY, "Reach-Retries-Left: 0", body=b"work")
    again = await inner.ask(a, URL, KEY, "Reach-Retries-Left: 0", body=b"work")
    if kept[idempotent]:
        assert (again.status, again.code, len(b.agent.asked)) == (once.status, once.code, 1)
        assert once.code is not None or again.body == once.body
    else:
        assert (again.status, again.body, len(b.agent.asked)) == (200, b"the second run", 2)


@STORES
async def test_a_run_that_ended_without_an_answer(inner: Mesh, dedup: str) -> None:
    """Nobody knows, and nobody runs it again."""
    a, b = await pair(inner, in_turn(hangs_up, ok()), dedup)
    for _ in range(2):
        got = await inner.ask(a, URL, KEY, body=b"work")
        assert (got.code, got.json["executed"]) == ("outcome_unknown", "unknown")
    assert len(b.agent.asked) == 1


# -- what is the same request, what is the same key

CHANGES: dict[str, tuple[str, tuple[str, ...], bytes, str]] = {
    "method": (URL, (), b"work", "PUT"),
    "path": ("/to/work/y", (), b"work", "POST"),
    "query": ("/to/work/x?fast=1", (), b"work", "POST"),
    "content type": (URL, ("Content-Type: text/html",), b"work", "POST"),
    "body": (URL, (), b"warp", "POST"),
    "length of a long body": (URL, (), LONG + b"x", "POST"),
}


@STORES
@pytest.mark.parametrize("changed", CHANGES)
async def test_another_request_with_the_key(inner: Mesh, changed: str, dedup: str) -> None:
    a, b = await pair(inner, counts, dedup)
    target, fields, body, method = CHANGES[changed]
    await inner.ask(a, URL, KEY, body=LONG if body.startswith(LONG) else b"work")
    got = await inner.ask(a, target, KEY, *fields, body=body, method=method)
    assert (got.status, got.code, got.json["executed"], len(b.agent.asked)) == (422, "key_reused", "no", 1)


async def test_another_request_while_the_first_runs(inner: Mesh) -> None:
    a, b = await pair(inner, hangs)
    await under_way(inner, a, b, URL, KEY)
    assert (await inner.ask(a, URL, KEY, body=b"other")).code == "key_reused"


async def test_keys_of_others_are_other_keys(inner: Mesh) -> None:
    """Another caller, another capability, another user of a gateway: each its own run, and each its own replay."""
    a, c = await inner.node("a"), await inner.node("c")
    b = await inner.node("b", counts, "work", "play")
    inner.share()
    askers: list[tuple[Node, str, tuple[str, ...]]] = [
        (a, URL, ()), (c, URL, ()), (a, "/to/play/x", ()), (a, URL, ("Authorization: Bearer one",)),
        (a, URL, ("Authorization: Bearer two",)),
    ]
    for _ in range(2):
        for number, (node, target, fields) in enumerate(askers):
            assert (await inner.ask(node, target, KEY, *fields, body=b"work")).body == b"run %d" % (number + 1)
    assert len(b.agent.asked) == len(askers)


@pytest.mark.parametrize(("place", "same", "other"), [
    ("json:/order_id", ((JSON,), b'{"order_id": 7}'), ((JSON,), b'{"order_id": 8}')),
    ("json:/order/id", ((JSON,), b'{"order": {"id": "x"}}'), ((JSON,), b'{"order": {"id": "y"}}')),
    ("header:X-Order", (("X-Order: 7",), b"work"), (("X-Order: 8",), b"work")),
])
async def test_a_key_that_is_found_where_it_was_declared(inner: Mesh, place: str, same: tuple[tuple[str, ...], bytes],
                                                         other: tuple[tuple[str, ...], bytes]) -> None:
    a, b = await pair(inner, counts, key=place)

    async def ask(what: tuple[tuple[str, ...], bytes], *more: str) -> Answer:
        return await inner.ask(a, URL, *what[0], *more, body=what[1])

    assert [(await ask(what)).body for what in (same, same, other)] == [b"run 1", b"run 1", b"run 2"]
    first, second = (asked.one("Idempotency-Key") for asked in b.agent.asked)
    assert first != second
    # the same key, but another request
    assert (await ask((same[0], same[1].replace(b"}", b', "more": 1}') if b"}" in same[1] else b"more"))).code == \
        "key_reused"


async def test_a_key_that_is_not_where_it_was_declared(inner: Mesh) -> None:
    """Then it is a call without a key of its own, and runs."""
    a, b = await pair(inner, counts, key="json:/order_id")
    for body in (b'{"other": 1}', b"no JSON", b'{"order_id": {}}'):
        assert (await inner.ask(a, URL, JSON, body=body)).status == 200
        assert (await inner.ask(a, URL, JSON, body=body)).status == 200
    assert len(b.agent.asked) == 6


async def test_keys_that_sidecars_make(inner: Mesh) -> None:
    """One for each call; the agent sees it; nobody can hit another's."""
    a, b = await pair(inner, counts)
    for number in range(5):
        assert (await inner.ask(a, URL, body=b"work")).body == b"run %d" % (number + 1)
    keys = {asked.one("Idempotency-Key") for asked in b.agent.asked}
    assert len(keys) == 5
    assert len({key[:12] for key in keys}) == 1 or all(len(key) >= 16 for key in keys)


# -- what cannot be replayed

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ALL_AT_ONCE = STREAM + b"9\r\ndata: 1\n\n\r\n0\r\n\r\n"
WITH_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\ndata: 1\n\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n3\r\ns \x00\r\n0\r\n\r\n"
BIG = ok(b"z" * ((1 << 20) + 1))


async def events(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM)
    for _ in range(3):
        await asyncio.sleep(0.01)
        writer.write(b"9\r\ndata: 1\n\n\r\n")
    writer.write(b"0\r\n\r\n")


# what the agent answered: the repeat's status and code, in memory and durable
REPLAYED: dict[str, tuple[Script | bytes, str | None, str | None]] = {
    "event stream": (events, "answer_not_kept", "answer_not_kept"),
    "event stream, all at once": (ALL_AT_ONCE, "answer_not_kept", "answer_not_kept"),
    "event stream with a length": (WITH_LENGTH, "answer_not_kept", "answer_not_kept"),
    "over 1 MiB": (BIG, "answer_not_kept", None),
    "1 MiB": (ok(b"z" * (1 << 20)), None, None),
    "chunked": (CHUNKED, None, None),
}


@STORES
@pytest.mark.parametrize("said", REPLAYED)
async def test_what_can_be_replayed(inner: Mesh, said: str, dedup: str) -> None:
    answer, *codes = REPLAYED[said]
    a, b = await pair(inner, answer, dedup)
    first = await inner.ask(a, URL, KEY, body=b"work")
    assert first.status == 200
    await until(lambda: b.sidecar.local.running == 0)
    again = await inner.ask(a, URL, KEY, body=b"work")
    code = codes[dedup == "durable"]
    assert (again.status, again.code, len(b.agent.asked)) == (409 if code else 200, code, 1)
    assert again.json["executed"] == "yes" if code else again.body == first.body


@STORES
async def test_a_connection_that_became_a_tunnel(inner: Mesh, dedup: str) -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: websocket")
    agreed = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    a, b = await pair(inner, says(agreed, close=True), dedup)
    assert (await inner.ask(a, URL, KEY, *upgrade)).status == 101
    await inner.idle()
    again = await inner.ask(a, URL, KEY, *upgrade)
    assert (again.code, again.json["executed"], len(b.agent.asked)) == ("answer_not_kept", "yes", 1)


@STORES
async def test_a_long_request(inner: Mesh, dedup: str) -> None:
    """Two of one length cannot be told apart, so a repeat neither joins nor is given an answer that may be another's."""
    gate = Gate(ok(b"the answer"))
    a, b = await pair(inner, gate, dedup)
    first = await under_way(inner, a, b, URL, KEY, body=LONG)
    got = await inner.ask(a, URL, KEY, body=LONG)
    assert (got.code, got.json["executed"]) == ("in_progress", "unknown")
    gate.open()
    assert (await first).status == 200
    for body in (LONG, LONG.replace(b"x", b"y")):
        again = await inner.ask(a, URL, KEY, body=body)
        assert (again.code, again.json["executed"]) == ("answer_not_kept", "yes")
    assert len(b.agent.asked) == 1


# -- cancelling


async def leaves(inner: Mesh, a: Node, b: Node, *fields: str) -> None:
    """A caller whose call has reached the agent goes away."""
    before = len(b.agent.asked)
    client = await inner.connect(a)
    await client.send(request(URL, *fields, method="POST", body=b"work"))
    await until(lambda: len(b.agent.asked) == before + 1)
    client.close()


async def test_a_caller_that_goes_away_ends_the_run(inner: Mesh) -> None:
    a, b = await pair(inner, hangs)
    left = time.monotonic()
    await leaves(inner, a, b)
    await until(lambda: b.agent.gone == 1)
    assert time.monotonic() - left < 2.0, "it was told, not noticed 5 s later"
    await inner.idle()


@STORES
async def test_not_while_another_waits_for_the_key(inner: Mesh, dedup: str) -> None:
    gate = Gate(ok(b"the answer"))
    a, b = await pair(inner, gate, dedup)
    first = await inner.connect(a)
    await first.send(request(URL, KEY, method="POST", body=b"work"))
    await until(lambda: b.agent.asked)
    second = asyncio.ensure_future(inner.ask(a, URL, KEY, body=b"work"))
    await until(lambda: a.sidecar.metrics.in_flight["out"] == 2)
    first.close()
    await asyncio.sleep(0.1)
    gate.open()
    assert ((await second).body, b.agent.gone, len(b.agent.asked)) == (b"the answer", 0, 1)
    await inner.idle()


@STORES
async def test_not_where_the_agent_gave_the_key(inner: Mesh, dedup: str) -> None:
    """It may come back for the answer, and gets it."""
    gate = Gate(ok(b"the answer"))
    a, b = await pair(inner, gate, dedup)
    await leaves(inner, a, b, KEY)
    await asyncio.sleep(0.3)
    assert b.agent.gone == 0
    again = asyncio.ensure_future(inner.ask(a, URL, KEY, body=b"work"))
    await until(lambda: b.sidecar.metrics.in_flight["in"] >= 2)
    gate.open()
    assert ((await again).body, len(b.agent.asked)) == (b"the answer", 1)
    await inner.idle()


@STORES
async def test_a_broken_connection_leaves_the_run_for_whoever_comes_back(inner: Mesh, dedup: str) -> None:
    """Its own caller has given up, and another with the same key joins the run a while later."""
    gate = Gate(ok(b"the answer"))
    a, b = await pair(inner, gate, dedup)
    async with wire_between(a, b) as wire:
        asking = await under_way(inner, a, b, URL, KEY, "Reach-Timeout: 500ms")
        wire.down()
        assert (await asking).code == "outcome_unknown"
        assert (b.sidecar.local.running, b.agent.gone) == (1, 0)
        await wire.up()
        a.learn(b.entry(address=wire.address))
        again = asyncio.ensure_future(inner.ask(a, URL, KEY, body=b"work"))
        await until(lambda: b.sidecar.metrics.in_flight["in"] == 2)
        gate.open()
        assert ((await again).body, len(b.agent.asked)) == (b"the answer", 1)
    await inner.idle()
