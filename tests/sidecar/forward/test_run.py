"""One run of a key by itself: who waits for it, and what is left of it in either store."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reach_core.problem import Problem
from reach_sidecar.config import DedupConfig
from reach_sidecar.forward.failure import Refusal
from reach_sidecar.forward.run import Run, Store
from reach_sidecar.forward.stores import Stores
from reach_sidecar.http1.message import Response, field
from reach_sidecar.journal.answer import Answer
from reach_sidecar.journal.runs import KeyExists

KEY, MARK = b"key", b"fingerprint"
STORED = pytest.mark.parametrize("dedup", ["memory", "durable"])


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    stores = Stores(tmp_path / "state" / "delivery.db", DedupConfig())
    yield stores
    await stores.close()


async def store_of(stores: Stores, dedup: str) -> Store:
    return stores.memory if dedup == "memory" else await stores.durable()


def new(store: Store, among: dict[bytes, Run], *, made: bool = False, repeatable: bool = False,
        within_s: float = 5.0) -> Run:
    deadline = asyncio.get_running_loop().time() + within_s
    run = among[KEY] = Run(store, among, KEY, MARK, made, repeatable, True, deadline)
    return run


async def left(store: Store) -> str | None:
    await store.settle()
    if not store.durable:
        found = store.state(KEY)
        return None if found is None else found[0]
    row = await store.look(KEY, asyncio.get_running_loop().time() + 5.0)
    return None if row is None else row.state


def response(body: bytes = b"done") -> Response:
    return Response(200, [field("X-A", "1")], body)


ANSWER = Answer(200, b"OK", ((b"x-a", b"X-A", b"1"),), b"done")
NOT_RUN = Problem("no_agent_available", "no", executed="no")
TOO_LATE = Problem("deadline_exceeded", "no place", executed="no")
BUSY = Refusal("busy", "full")
BROKEN = Problem("outcome_unknown", "broke")


async def end(run: Run, how: str) -> None:
    match how:
        case "answered" | "answered not done":
            await run.answered(response(), b"done", forget=how != "answered")
        case "streamed" | "stream broke" | "stream too long":
            add = run.record(response())
            add(b"do")
            add(b"ne")
            if how == "stream too long":
                for _ in range(65 if run.store.durable else 1):
                    add(bytes(1 << 20))
            run.streamed(None if how != "stream broke" else ConnectionError("x"))
        case "not kept" | "not done":
            await run.not_kept(forget=how == "not done")
            if how == "not kept":
                run.passed()
        case "cancelled":
            run.broke()
        case _:
            await run.failed({"not run": NOT_RUN, "busy": BUSY, "too late": TOO_LATE, "broken": BROKEN}[how])


@STORED
@pytest.mark.parametrize(("how", "reached", "repeatable", "state", "told"), [
    ("answered", True, False, "done", ANSWER),
    ("answered not done", True, False, None, ANSWER),
    ("streamed", True, False, "done", ANSWER),
    ("stream broke", True, False, "unknown", "outcome_unknown"),
    ("stream too long", True, False, "not_kept", "answer_not_kept"),
    ("not kept", True, False, "not_kept", "answer_not_kept"),
    ("not done", True, False, None, None),
    ("cancelled", True, False, "unknown", "outcome_unknown"),
    ("cancelled", False, False, None, None),
    ("not run", True, False, None, "no_agent_available"),
    ("not run", False, False, None, "no_agent_available"),
    ("busy", False, False, None, "backpressure"),
    ("too late", False, False, None, None),
    ("broken", True, False, "unknown", "outcome_unknown"),
    ("broken", True, True, None, "outcome_unknown"),
])
async def test_its_end(stores: Stores, dedup: str, how: str, reached: bool, repeatable: bool, state: str | None,
                       told: object) -> None:
    store = await store_of(stores, dedup)
    among: dict[bytes, Run] = {}
    run = new(store, among, repeatable=repeatable)
    if reached:
        await run.begin()
    joined = [asyncio.ensure_future(run.join(run.deadline)) for _ in range(3)]
    await asyncio.sleep(0)
    await end(run, how)
    results = await asyncio.gather(*joined, return_exceptions=True)
    if isinstance(told, str):
        assert [result.code for result in results if isinstance(result, Problem)] == [told] * 3
        assert len({id(result) for result in results}) == 3  # the layers above write into it
    elif how == "streamed" and store.durable:
        assert results == [None] * 3  # the store has it
    else:
        assert results == [told] * 3
    assert await left(store) == state
    assert among == {}


@STORED
async def test_the_store_knows_before_the_run_is_over(stores: Stores, dedup: str) -> None:
    """Else a repeat between the two would find neither."""
    store = await store_of(stores, dedup)
    for how in ("answered", "streamed", "not kept", "broken", "cancelled", "stream too long"):
        among: dict[bytes, Run] = {}
        run = new(store, among)
        await run.begin()
        ending = asyncio.ensure_future(end(run, how))
        while among:
            await asyncio.sleep(0)
        assert await left_now(store) not in (None, "running"), how
        await ending
        await store.settle()
        if store.memory is not None:
            store.memory.forget(KEY)
        else:
            await store.forget(KEY)


async def left_now(store: Store) -> str | None:
    if not store.durable:
        found = store.state(KEY)
        return None if found is None else found[0]
    row = await store.look(KEY, asyncio.get_running_loop().time() + 5.0)
    return None if row is None else row.state


async def test_who_joins_waits_to_the_deadline_at_most(stores: Stores) -> None:
    run = new(stores.memory, {})
    loop = asyncio.get_running_loop()
    for late_s in (0.0, -1.0, 0.05):
        with pytest.raises(Problem) as caught:
            await run.join(loop.time() + late_s)
        assert (caught.value.code, caught.value.executed) == ("deadline_exceeded", "unknown")
    assert not run._waiting


async def test_who_is_cancelled_while_it_waits_leaves_no_place(stores: Stores) -> None:
    run = new(stores.memory, {}, made=True)
    joined = [asyncio.ensure_future(run.join(run.deadline)) for _ in range(3)]
    await asyncio.sleep(0)
    assert run.wanted()
    for one in joined[:2]:
        one.cancel()
    await asyncio.gather(*joined[:2], return_exceptions=True)
    assert (len(run._waiting), run.wanted()) == (1, True)
    joined[2].cancel()
    await asyncio.gather(joined[2], return_exceptions=True)
    assert not run.wanted()
    run.over(ANSWER)


@pytest.mark.parametrize(("made", "kept", "wanted"), [
    (True, True, False), (False, True, True), (False, False, False), (True, False, False),
])
async def test_whether_it_goes_on_without_its_caller(stores: Stores, made: bool, kept: bool, wanted: bool) -> None:
    run = new(stores.memory, {}, made=made)
    if not kept:
        await run.not_kept(forget=False)
    assert run.wanted() == wanted


async def test_cancelled_while_its_end_is_noted_it_ends_all_the_same(stores: Stores) -> None:
    store = await stores.durable()
    among: dict[bytes, Run] = {}
    run = new(store, among)
    await run.begin()
    joined = asyncio.ensure_future(run.join(run.deadline))
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(run.answered(response(), b"done", forget=False))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert await joined == ANSWER
    assert (await left(store), among) == ("done", {})


async def test_a_key_that_ran_meanwhile_is_not_touched(stores: Stores) -> None:
    store = await stores.durable()
    first = new(store, {})
    await first.begin()
    await first.answered(response(), b"done", forget=False)
    late = new(store, {})
    with pytest.raises(KeyExists):
        await late.begin()
    late.over(None)
    late.broke()
    assert await left(store) == "done"


@pytest.mark.parametrize("crashed", [True, False])
async def test_a_repeatable_run_begins_again(stores: Stores, crashed: bool) -> None:
    store = await stores.durable()
    first = new(store, {}, repeatable=True)
    await first.begin()
    if not crashed:
        first.broke()
        assert await left(store) == "unknown"
    again = new(store, {}, repeatable=True)
    again.again = crashed
    await again.begin()
    assert await left(store) == "running"


async def test_an_old_run_does_not_take_a_new_one_out(stores: Stores) -> None:
    among: dict[bytes, Run] = {}
    old = new(stores.memory, among)
    young = new(stores.memory, among)
    old.over(None)
    assert among == {KEY: young}


async def test_a_store_that_is_closed(stores: Stores) -> None:
    store = await stores.durable()
    await stores.close()
    among: dict[bytes, Run] = {}
    run = new(store, among)
    with pytest.raises(Refusal) as caught:
        await run.begin()
    assert (caught.value.reason, caught.value.executed) == ("store_unavailable", "no")
    await run.failed(caught.value)
    with pytest.raises(Refusal):
        await store.look(KEY, run.deadline)
    assert among == {}
