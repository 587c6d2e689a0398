"""`dedup: durable`: what is on disk outlives the process, and a key goes to one agent only (design §3, "Dedup").

`a` calls, `b`, `b1` and `b2` are called. Sidecars are stopped and started again on their state directories; where one has to
die, it is a process of its own and is killed.
"""

import asyncio
import signal
import sqlite3
import threading
import time
from pathlib import Path

import orjson
import pytest
from harness.delivery import Scene, Way, in_turn, said, scene, under_way
from harness.mesh import Mesh as Processes
from harness.mesh import until as wait_until
from harness.sidecars import Mesh, Node, hangs, hangs_up, ok
from harness.wire import Answer as WireAnswer
from harness.wire import exchange

from reach_sidecar.config import CapabilityConfig

URL = "/to/work/x"
KEY = "Idempotency-Key: order-7"
DURABLE = Way(False, "durable")
ONCE = CapabilityConfig(name="work", dedup="durable")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off of 10 to 20 ms and a doubling."""
    monkeypatch.setattr("reach_sidecar.policy.backoff.FIRST_S", 0.01)
    monkeypatch.setattr("reach_sidecar.policy.backoff.JITTER_S", 0.01)


async def again(inner: Mesh, node: Node) -> Node:
    """Its sidecar stops and starts on the same state; its agent, if it has one, lives on."""
    await node.sidecar.stop(leave=False)
    inner.nodes.remove(node)
    if node.agent_or_none is None:
        return await inner.node(node.id)
    new = await inner.node(node.id, ok(), ONCE, agent={"address": node.agent.url})
    new.agent_or_none, new.ver = node.agent, node.ver
    return new


# -- the called side


async def test_an_answer_outlives_the_process(inner: Mesh) -> None:
    a, b = await inner.pair(in_turn(ok(b"run 1", b"X-Own: 1"), ok(b"run 2")), ONCE)
    first = await inner.ask(a, URL, KEY, body=b"work")
    b = await again(inner, b)
    a.learn(b.entry())
    repeat = await inner.ask(a, URL, KEY, body=b"work")
    assert (repeat.status, repeat.body, repeat.header("X-Own")) == (200, first.body, "1")
    assert (await inner.ask(a, URL, KEY, body=b"other")).code == "key_reused"
    assert len(b.agent.asked) == 1


async def test_a_doubt_outlives_it_too(inner: Mesh) -> None:
    a, b = await inner.pair(in_turn(hangs_up, ok()), ONCE)
    for _ in range(2):
        assert said(await inner.ask(a, URL, KEY, body=b"work")).startswith("502 outcome_unknown (unknown)")
        b = await again(inner, b)
        a.learn(b.entry())
    assert len(b.agent.asked) == 1


async def test_what_was_not_done_is_free_after_it(inner: Mesh) -> None:
    not_done = b"HTTP/1.1 503 No\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
    a, b = await inner.pair(in_turn(not_done, ok(b"run 2")), ONCE)
    assert (await inner.ask(a, URL, KEY, "Reach-Retries-Left: 0", body=b"work")).status == 503
    b = await again(inner, b)
    a.learn(b.entry())
    assert (await inner.ask(a, URL, KEY, body=b"work")).body == b"run 2"


async def test_a_store_that_cannot_be_written(inner: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs that could not be noted first. The next agent is asked, and where there is none the caller is told."""
    monkeypatch.setattr("reach_sidecar.journal.file._BUSY_S", 0.1)
    stage = await scene(inner, ok(), DURABLE)
    await stage.ask("Idempotency-Key: before")
    with locked(Path(stage.b1.sidecar.config.state_dir or "")):
        got = await stage.ask()
        assert stage.verdict(got) == "200 b2 in 2, ran 1+1"
        alone = await inner.ask(stage.a, "/to/@b1/process", body=b"work")
        assert said(alone) == "503 store_unavailable (no) store_unavailable"
        assert int(alone.header("Retry-After") or 0) >= 1
    assert stage.ran() == "1+1"
    assert (await inner.ask(stage.a, "/to/@b1/process", body=b"work")).status == 200


class locked:
    """Somebody else writes to every SQLite file in the folder, and does not end."""

    def __init__(self, folder: Path) -> None:
        self._files = [path for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:6] == b"SQLite"]

    def __enter__(self) -> None:
        self._held = []
        for path in self._files:
            held = sqlite3.connect(path, isolation_level=None)
            held.execute("BEGIN IMMEDIATE")
            self._held.append(held)

    def __exit__(self, *_: object) -> None:
        for held in self._held:
            held.rollback()
            held.close()


@pytest.mark.parametrize(("journal", "ran"), [("its own", 1), ("another", 0), ("-", 0), ("", 1)])
@pytest.mark.parametrize("dedup", ["memory", "durable"])
async def test_the_id_of_the_store(inner: Mesh, dedup: str, journal: str, ran: int) -> None:
    """A repeat says in which store the first call was noted: where that is another one, it may have run."""
    _, b = await inner.pair(ok(), CapabilityConfig(name="work", dedup=dedup))  # type: ignore[arg-type]
    first = await inner.deliver(b, target="work", body=b"first")
    ids = {"its own": first.header("Reach-Journal"), "another": "0123456789abcdef", "-": "-", "": None}
    assert ids["its own"]
    field = [f"Reach-Journal: {ids[journal]}"] if ids[journal] is not None else []
    got = await inner.deliver(b, *field, target="work", key="order-7", body=b"work")
    assert (got.code, len(b.agent.asked)) == (None if ran else "outcome_unknown", 1 + ran)


# -- the calling side: an agent's own key goes to one agent


async def test_a_key_in_doubt_goes_nowhere_else(inner: Mesh) -> None:
    """Whatever becomes of that agent."""
    stage = await scene(inner, hangs_up, DURABLE)
    assert stage.verdict(await stage.ask(KEY)) == "502 outcome_unknown (unknown) agent_broke, ran 1+0"
    a, b1 = stage.a, stage.b1
    for entry in (b1.entry(flags=("draining",)), b1.entry(flags=("unfit",)), b1.entry().tombstone(time.time_ns() // 10**6)):
        a.learn(entry)
        got = await stage.ask(KEY, "Reach-Timeout: 400ms")
        assert (got.status >= 500, got.json["executed"], stage.ran()) == (True, "unknown", "1+0")
    # other keys do
    assert (await stage.ask("Idempotency-Key: order-8")).header("Reach-Agent") == "b2"


async def test_not_after_a_restart_of_the_caller_either(inner: Mesh) -> None:
    stage = await scene(inner, hangs_up, DURABLE)
    await stage.ask(KEY)
    a = await again(inner, stage.a)
    a.learn(stage.b1.entry(flags=("draining",)), stage.b2.entry())
    restarted = Scene(inner, a, stage.b1, stage.b2)
    got = await restarted.ask(KEY, "Reach-Timeout: 400ms")
    assert (got.json["executed"], restarted.ran()) == ("unknown", "1+0")
    a.learn(stage.b1.entry())
    assert said(await restarted.ask(KEY)).startswith("502 outcome_unknown (unknown)")
    assert restarted.ran() == "1+0"


async def test_an_answer_is_found_where_it_was_given(inner: Mesh) -> None:
    """Though another agent is preferred by now."""
    stage = await scene(inner, ok(b"from b1"), DURABLE)
    assert (await stage.ask(KEY)).body == b"from b1"
    for prefer in ("first=no", "first=yes"):
        got = await inner.ask(stage.a, URL, KEY, f"Reach-Prefer: {prefer}", body=b"work")
        assert (got.body, got.header("Reach-Agent")) == (b"from b1", "b1")
    assert stage.ran() == "1+0"


async def test_a_key_that_did_not_run_is_free(inner: Mesh) -> None:
    stage = await scene(inner, ok(b"from b1"), DURABLE)
    stage.b1.sidecar.local.closing = True
    assert stage.verdict(await stage.ask(KEY)) == "200 b2 in 2, ran 0+1"
    stage.b1.sidecar.local.closing = False
    assert (await stage.ask(KEY)).header("Reach-Agent") == "b2", "where its answer is"
    stage.b1.sidecar.local.closing = stage.b2.sidecar.local.closing = True
    assert (await stage.ask("Idempotency-Key: order-8")).json["executed"] == "no"
    stage.b1.sidecar.local.closing = False
    assert (await stage.ask("Idempotency-Key: order-8")).header("Reach-Agent") == "b1"
    assert stage.ran() == "1+1"


async def test_a_caller_that_is_stopped_in_the_middle(inner: Mesh) -> None:
    """The agent goes on for 5 s, and the repeat to the caller's next life joins the run."""
    a, b = await inner.pair(in_turn(hangs, ok(b"run 2")), ONCE)
    asking = await under_way(inner, a, b, URL, KEY)
    a = await again(inner, a)
    a.learn(b.entry())
    asking.cancel()
    got = await inner.ask(a, URL, KEY, "Reach-Timeout: 300ms", body=b"work")
    assert (got.json["executed"], len(b.agent.asked)) == ("unknown", 1)
    await asyncio.sleep(0)


# -- the called sidecar is killed while its agent works


@pytest.mark.parametrize(("dedup", "own_key"), [("durable", True), ("durable", False), ("memory", True)])
def test_a_crash_while_it_ran(mesh: Processes, dedup: str, own_key: bool) -> None:
    """The new process knows, or knows that its memory is gone: either way it is not run again."""
    control = mesh.control()
    caller = mesh.sidecar("caller", control)
    capability = {"name": "work", "dedup": dedup}
    called = mesh.serve("only", control, capability, script="counting.py")
    agent = mesh.find("only-agent")
    mesh.wait_usable(caller, "work")
    key = [("Idempotency-Key", "order-7")] if own_key else []

    def ask(timeout: str) -> WireAnswer:
        return exchange(f"{caller.url}/to/work/hang", [*key, ("Reach-Timeout", timeout)], b"work", timeout=30)

    answers: list[WireAnswer] = []
    thread = threading.Thread(target=lambda: answers.append(ask("8s")))
    thread.start()
    wait_until("it runs", lambda: runs(agent.ready["url"]) == 1)
    called.signal(signal.SIGKILL)
    called.popen.wait(10)
    section = {"address": agent.ready["url"], "capabilities": [capability]}
    listen = {door: called.ready[door] for door in ("outbound", "mesh", "admin")}
    mesh.sidecar("only", control, section, listen=listen)
    thread.join(20)
    assert answers, "the call hangs"
    assert (answers[0].problem, answers[0].json["executed"]) == ("outcome_unknown", "unknown")
    assert runs(agent.ready["url"]) == 1
    if dedup == "durable" and own_key:
        mesh.wait_usable(caller, "work")
        assert ask("3s").problem == "outcome_unknown"
        assert runs(agent.ready["url"]) == 1


def runs(url: str) -> int:
    return int(orjson.loads(exchange(f"{url}/count").body)["runs"])
