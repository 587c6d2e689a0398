"""Whom to try, and whether to try another: what the caller gets, and what is left behind."""

import asyncio
import time

import pytest
from harness.sidecars import Asked, Mesh, Node, closed_port, hangs, hangs_up, ok, until

from reach_core.peer import Rank
from reach_sidecar.config import CapabilityConfig
from reach_sidecar.forward.send import Send
from reach_sidecar.membership import peer as peer_module

IDEMPOTENT = CapabilityConfig(name="summarize", idempotent=True)


async def trio(inner: Mesh, first: object, second: object, *, declared: object = "summarize") -> tuple[Node, Node, Node]:
    """A caller that always tries `b1` first: `b2` says that it is busy."""
    a = await inner.node("a")
    b1 = await inner.node("b1", first, declared)  # type: ignore[arg-type]
    b2 = await inner.node("b2", second, declared)  # type: ignore[arg-type]
    inner.share()
    a.peer("b2").hear_load(60, 60, asyncio.get_running_loop().time())
    return a, b1, b2


def tries(answer: object) -> list[tuple[str, str]]:
    return [(one["agent"], one["result"]) for one in answer.json["attempts"]]  # type: ignore[attr-defined]


async def test_the_idler_agent_gets_the_call(inner: Mesh) -> None:
    a, b1, b2 = await trio(inner, ok(), ok())
    for _ in range(6):
        assert (await inner.ask(a, "/to/summarize/x")).header("Reach-Agent") == "b1"
        a.peer("b2").hear_load(60, 60, asyncio.get_running_loop().time())
    assert (len(b1.agent.asked), len(b2.agent.asked)) == (6, 0)


async def test_an_address_that_refuses_is_skipped_in_the_same_call(inner: Mesh) -> None:
    a, b1, _ = await trio(inner, ok(), ok())
    port = closed_port()
    a.learn(b1.entry(address=f"127.0.0.1:{port}"))
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.header("Reach-Agent"), answer.header("Reach-Attempts")) == (200, "b2", "2")
    assert a.peer("b1").excluded(asyncio.get_running_loop().time()).reason == "unreachable"
    # left alone from now on, and named with its reason when nobody else is there
    assert (await inner.ask(a, "/to/summarize/x")).header("Reach-Attempts") == "1"
    alone = await inner.ask(a, "/to/@b1/x")
    assert (alone.code, tries(alone)) == ("no_agent_available", [])
    assert f"127.0.0.1:{port}" in alone.json["detail"]
    # until a newer entry
    a.learn(b1.entry())
    assert (await inner.ask(a, "/to/@b1/x")).status == 200


async def test_or_for_five_seconds(inner: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "ADDRESS_OUT_S", 0.15)
    a, b = await inner.pair()
    a.learn(b.entry(address=f"127.0.0.1:{closed_port()}"))
    for _ in range(2):
        refused = await inner.ask(a, "/to/summarize/x", body=b"work")
        assert (refused.status, refused.code, refused.json["executed"]) == (503, "no_agent_available", "no")
        await until(lambda: a.peer("b").excluded(asyncio.get_running_loop().time()) is None)
    assert tries(refused) == [("b", "connect_failed")], "it was tried again"
    assert refused.header("Retry-After") == "1"
    assert refused.header("Reach-Attempts") == "1"
    assert refused.json["agent"] == "b"


async def test_a_restart_at_the_old_address_is_tried_at_once(inner: Mesh) -> None:
    a, b = await inner.pair()
    a.peer("b").put_out("refused", asyncio.get_running_loop().time())
    assert (await inner.ask(a, "/to/summarize/x")).status == 503
    a.learn(b.entry(rank=Rank.UP))
    assert (await inner.ask(a, "/to/summarize/x")).status == 200


@pytest.mark.parametrize("address", ["", "nonsense", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:-1",
                                     "a..b:80", f"{'x' * 70}:80", "no-such-host.invalid:80", "[::1:80", "\u00fc:80"])
async def test_an_address_that_is_none_is_skipped_too(inner: Mesh, address: str) -> None:
    a, b1, _ = await trio(inner, ok(), ok())
    a.learn(b1.entry(address=address))
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.header("Reach-Agent")) == (200, "b2"), answer.body


async def test_an_agent_that_does_not_listen(inner: Mesh) -> None:
    """Said by its own sidecar, which also tells the mesh; the next one runs the call."""
    a, b1, _ = await trio(inner, ok(), ok())
    await b1.agent.close()
    b1.sidecar.deliver.close()
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.header("Reach-Agent"), answer.header("Reach-Attempts")) == (200, "b2", "2")
    assert b1.sidecar.local.unfit
    alone = await inner.ask(a, "/to/@b1/x", body=b"work")
    assert (alone.status, alone.code, alone.json["executed"]) == (503, "no_agent_available", "no")
    assert tries(alone) == [("b1", "agent_unreachable")]
    await inner.idle()


async def test_broken_before_the_answer_is_told(inner: Mesh) -> None:
    """The agent may have worked: nobody else gets the call."""
    a, b1, b2 = await trio(inner, hangs_up, ok())
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.code, answer.json["executed"]) == (502, "outcome_unknown", "unknown")
    assert tries(answer) == [("b1", "agent_broke")]
    assert answer.json["agent"] == "b1"
    assert (len(b1.agent.asked), len(b2.agent.asked)) == (1, 0)
    await inner.idle()


@pytest.mark.parametrize(("declared", "method"), [(IDEMPOTENT, "POST"), ("summarize", "GET")])
async def test_broken_and_repeatable_goes_to_the_next(inner: Mesh, declared: object, method: str) -> None:
    a, b1, b2 = await trio(inner, hangs_up, ok(), declared=declared)
    answer = await inner.ask(a, "/to/summarize/x", method=method, body=b"work" if method == "POST" else None)
    assert (answer.status, answer.header("Reach-Agent"), answer.header("Reach-Attempts")) == (200, "b2", "2")
    first, second = b1.agent.last, b2.agent.last
    assert first.one("Idempotency-Key") == second.one("Idempotency-Key"), "one logical call"
    assert (first.one("Reach-Attempt"), second.one("Reach-Attempt")) == ("1", "2")
    assert (first.one("Reach-Retries-Left"), second.one("Reach-Retries-Left")) == ("2", "1")
    assert first.body == second.body
    assert first.one("traceparent")[:35] == second.one("traceparent")[:35]
    assert first.one("traceparent") != second.one("traceparent")
    await inner.idle()


async def test_a_peer_that_goes_away_is_asked_until_the_deadline_and_nobody_else(inner: Mesh) -> None:
    """Not the agent but its sidecar is gone, in the middle of a call that may not run twice."""
    a, b1, b2 = await trio(inner, hangs, ok())
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x", "Reach-Timeout: 2500ms", body=b"work"))
    await until(lambda: b1.agent.asked)
    began = time.monotonic()
    await b1.sidecar._mesh.stop(0.0)
    answer = await asking
    assert (answer.status, answer.code, answer.json["executed"]) == (502, "outcome_unknown", "unknown")
    assert answer.json["agent"] == "b1"
    assert tries(answer)[0] == ("b1", "broken")
    assert {result for _, result in tries(answer)[1:]} == {"connect_failed"}
    assert len(tries(answer)) >= 3, "after back-off, and not only once"
    assert time.monotonic() - began < 2.6
    assert (len(b1.agent.asked), b2.agent.asked) == (1, [])
    await inner.idle()


async def test_a_connection_that_breaks_is_no_answer_and_the_run_is_joined(inner: Mesh) -> None:
    gate = asyncio.Event()

    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(ok(b"once"))

    a, b1, b2 = await trio(inner, slow, ok())
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x", "Reach-Retries-Left: 0", body=b"work"))
    await until(lambda: b1.agent.asked)
    for _ in range(2):
        a.peer("b1").pool.close()
        await until(lambda: b1.slots()["in"] == 2)
    gate.set()
    answer = await asking
    assert (answer.status, answer.body, answer.header("Reach-Agent")) == (200, b"once", "b1")
    assert (len(b1.agent.asked), b2.agent.asked) == (1, []), "asking again is no work, so the chain has retries enough"
    assert a.sidecar.chains._spent == {}
    await inner.idle()


async def test_where_no_keys_are_kept_nobody_is_asked_again(inner: Mesh) -> None:
    """The run could not be told from a new one."""
    a, b1, b2 = await trio(inner, hangs, ok(), declared=CapabilityConfig(name="summarize", dedup="off"))
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x", body=b"work"))
    await until(lambda: b1.agent.asked)
    a.peer("b1").pool.close()
    answer = await asking
    assert (answer.status, answer.code, tries(answer)) == (502, "outcome_unknown", [("b1", "broken")])
    assert (len(b1.agent.asked), b2.agent.asked) == (1, [])


# -- what the agent says of its work

RETRYABLE = b"HTTP/1.1 200 OK\r\nReach-Outcome: retryable_failure\r\nContent-Length: 5\r\n\r\nlater"


async def test_said_to_be_not_done_goes_to_the_next_after_a_while(inner: Mesh) -> None:
    a, b1, b2 = await trio(inner, RETRYABLE, ok())
    began = time.monotonic()
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.header("Reach-Agent"), answer.header("Reach-Attempts")) == (200, "b2", "2")
    assert time.monotonic() - began >= 0.5
    assert (b1.agent.last.one("Reach-Attempt"), b2.agent.last.one("Reach-Attempt")) == ("1", "2")
    await inner.idle()


async def test_an_agent_is_asked_again_after_the_time_it_named(inner: Mesh) -> None:
    answers = [b"HTTP/1.1 503 Soon\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", ok(b"now")]

    async def later(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(answers.pop(0))

    a, b = await inner.pair(later)
    began = time.monotonic()
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.body, answer.header("Reach-Attempts")) == (200, b"now", "2")
    assert 1.0 <= time.monotonic() - began < 3.0
    assert len(b.agent.asked) == 2, "the first answer said that nothing was done: its key was free again"


@pytest.mark.parametrize(("declared", "tries_b2"), [(IDEMPOTENT, 1), ("summarize", 0)])
async def test_a_plain_5xx_is_tried_elsewhere_only_where_twice_does_no_harm(inner: Mesh, declared: object,
                                                                            tries_b2: int) -> None:
    a, _b1, b2 = await trio(inner, b"HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nbad", ok(b"good"),
                            declared=declared)
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.body) == ((200, b"good") if tries_b2 else (500, b"bad"))
    assert len(b2.agent.asked) == tries_b2
    assert answer.header("Reach-Attempts") == str(1 + tries_b2)


async def test_a_5xx_passes_as_well_after_somebody_else_has_refused(inner: Mesh) -> None:
    a, b1, _b2 = await trio(inner, ok(), b"HTTP/1.1 500 No\r\nX-Own: 1\r\nContent-Length: 3\r\n\r\nbad")
    b1.sidecar.local.closing = True
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.body, answer.header("X-Own")) == (500, b"bad", "1")
    assert answer.header("Reach-Attempts") == "2"


@pytest.mark.parametrize(("word", "status", "code"), [("failure", 502, "agent_failure"),
                                                      ("invalid_request", 422, "agent_invalid_request")])
async def test_a_failure_that_the_agent_declares_is_final(inner: Mesh, word: str, status: int, code: str) -> None:
    said = b"HTTP/1.1 200 OK\r\nReach-Outcome: %b\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}"
    a, _b1, b2 = await trio(inner, said % word.encode(), ok(), declared=IDEMPOTENT)
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.code, answer.json["executed"]) == (status, code, "yes")
    assert answer.json["answer"] == {"status": 200, "body": {"a": 1}}
    assert tries(answer) == [("b1", word)]
    assert not b2.agent.asked


# -- bounds


async def test_chain_without_retries(inner: Mesh) -> None:
    a, _b1, _b2 = await trio(inner, hangs_up, ok(), declared=IDEMPOTENT)
    answer = await inner.ask(a, "/to/summarize/x", "Reach-Retries-Left: 0")
    assert (answer.status, answer.code, tries(answer)) == (502, "outcome_unknown", [("b1", "agent_broke")])


async def test_three_attempts_at_most(inner: Mesh) -> None:
    a = await inner.node("a")
    for number in range(4):
        await inner.node(f"b{number}", ok(), "summarize")
    inner.share()
    for node in inner.nodes[1:]:
        node.sidecar.local.closing = True
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.code, answer.json["executed"]) == (502, "retries_exhausted", "no")
    assert {result for _, result in tries(answer)} == {"draining"}
    assert len({agent for agent, _ in tries(answer)}) == 3
    await inner.idle()


async def test_agents_that_are_known_to_be_full_are_not_asked(inner: Mesh) -> None:
    a = await inner.node("a")
    nodes = [await inner.node(name, hangs, "summarize", agent={"max_concurrency": 1, "queue": 0})
             for name in ("b1", "b2")]
    inner.share()
    held = [asyncio.ensure_future(inner.ask(a, f"/to/@{node.id}/x")) for node in nodes]
    await until(lambda: all(node.agent.asked for node in nodes))
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.code, answer.json["executed"]) == (503, "backpressure", "no")
    assert tries(answer) == []
    assert answer.header("Retry-After") == "1"
    for name in ("b1", "b2"):
        assert f"{name}: all of its 1 places are taken" in answer.json["detail"]
        assert a.peer(name).excluded(asyncio.get_running_loop().time()).reason == "full"
    for task in held:
        task.cancel()


async def test_all_busy_for_somebody_else(inner: Mesh) -> None:
    """Then this sidecar does not know before it has asked."""
    a, c = await inner.node("a"), await inner.node("c")
    nodes = [await inner.node(name, hangs, "summarize", agent={"max_concurrency": 1, "queue": 0})
             for name in ("b1", "b2")]
    inner.share()
    held = [asyncio.ensure_future(inner.ask(c, f"/to/@{node.id}/x")) for node in nodes]
    await until(lambda: all(node.agent.asked for node in nodes))
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.code, answer.json["executed"]) == (503, "backpressure", "no")
    assert sorted(tries(answer)) == [("b1", "busy"), ("b2", "busy")]
    assert answer.header("Retry-After") == "1"
    for task in held:
        task.cancel()


@pytest.mark.parametrize("mine", [True, False])
async def test_busy_goes_to_the_next(inner: Mesh, mine: bool) -> None:
    """`mine`: it is known beforehand, so nothing is asked in vain."""
    a, c = await inner.node("a"), await inner.node("c")
    b1 = await inner.node("b1", hangs, "summarize", agent={"max_concurrency": 1, "queue": 0})
    await inner.node("b2", ok(), "summarize")
    inner.share()
    held = asyncio.ensure_future(inner.ask(a if mine else c, "/to/@b1/x"))
    await until(lambda: b1.agent.asked)
    for _ in range(4):
        answer = await inner.ask(a, "/to/summarize/x", body=b"work")
        assert answer.header("Reach-Agent") == "b2"
        assert answer.header("Reach-Attempts") == "1" or not mine
    held.cancel()


async def test_gone_elsewhere(inner: Mesh) -> None:
    """At the address lives another agent by now; the call is not run there."""
    a = await inner.node("a")
    b = await inner.node("b", ok(), "summarize")
    c = await inner.node("c", ok(), "summarize")
    a.learn(b.entry(address=c.sidecar.addresses["mesh"]))
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.code, answer.json["executed"]) == (503, "no_agent_available", "no")
    assert tries(answer) == [("b", "not_here")]
    assert not c.agent.asked


async def test_not_offered_any_more(inner: Mesh) -> None:
    a, b1, _ = await trio(inner, ok(), ok())
    b1.sidecar.local.declare("b1", capabilities=["other"])
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.header("Reach-Agent"), answer.header("Reach-Attempts")) == (200, "b2", "2")


async def test_out_of_time_at_the_caller(inner: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    a, _b = await inner.pair(hangs)
    monkeypatch.setattr("reach_sidecar.forward.send.format_timeout", lambda _: b"60s")  # its sidecar waits longer
    began = time.monotonic()
    answer = await inner.ask(a, "/to/summarize/x", "Reach-Timeout: 150ms", body=b"work")
    assert (answer.status, answer.code, answer.json["executed"]) == (504, "deadline_exceeded", "unknown")
    assert tries(answer) == [("b", "timeout")]
    assert time.monotonic() - began < 2.0
    assert a.peer("b").in_flight == 0


async def test_out_of_time_at_the_called_side(inner: Mesh) -> None:
    a, b = await inner.pair(hangs, CapabilityConfig(name="summarize", timeout=0.1))
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.code, answer.json["executed"]) == (504, "deadline_exceeded", "unknown")
    assert "may still have done the work" in answer.json["detail"]
    assert tries(answer) == [("b", "timeout")]
    await inner.idle()
    await until(lambda: b.agent.gone == 1)


async def test_out_of_time_and_repeatable_goes_to_the_next(inner: Mesh) -> None:
    a = await inner.node("a")
    slow = CapabilityConfig(name="summarize", timeout=0.1, idempotent=True)
    await inner.node("b1", hangs, slow)
    await inner.node("b2", ok(), slow)
    inner.share()
    a.peer("b2").hear_load(60, 60, asyncio.get_running_loop().time())
    assert (await inner.ask(a, "/to/summarize/x", body=b"work")).header("Reach-Agent") == "b2"


@pytest.mark.parametrize("garbage", [b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
                                     b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
                                     b"HTTP/1.1 999 No\r\n\r\n", b"\x16\x03\x01\x02\x00\r\n\r\n"])
async def test_an_answer_that_is_not_http(inner: Mesh, garbage: bytes) -> None:
    """Never tried again: the agent did take the call."""
    a, _b1, b2 = await trio(inner, garbage, ok(), declared=IDEMPOTENT)
    answer = await inner.ask(a, "/to/summarize/x", body=b"work")
    assert (answer.status, answer.code, answer.json["executed"]) == (502, "bad_agent_response", "unknown")
    assert tries(answer) == [("b1", "bad_answer")]
    assert not b2.agent.asked
    await inner.idle()


async def test_a_long_body_is_not_sent_twice(inner: Mesh) -> None:
    a, _b1, b2 = await trio(inner, hangs_up, ok(), declared=IDEMPOTENT)
    answer = await inner.ask(a, "/to/summarize/x", body=b"x" * 300_000)
    assert (answer.status, answer.code) == (502, "outcome_unknown")
    assert not b2.agent.asked


async def test_a_long_body_goes_to_the_next_while_none_of_it_was_sent(inner: Mesh) -> None:
    a, b1, b2 = await trio(inner, ok(), ok())
    b1.sidecar.local.closing = True
    answer = await inner.ask(a, "/to/summarize/x", body=b"x" * 300_000)
    assert (answer.status, answer.header("Reach-Agent"), answer.header("Reach-Attempts")) == (200, "b2", "2")
    assert b2.agent.last.body == b"x" * 300_000
    assert not b2.agent.last.all("Expect")


async def test_a_chunked_body_that_fits_is_sent_again(inner: Mesh) -> None:
    a, b1, b2 = await trio(inner, hangs_up, ok(), declared=IDEMPOTENT)
    chunks = b"".join(b"%x\r\n%b\r\n" % (1000, bytes([65 + index]) * 1000) for index in range(20)) + b"0\r\n\r\n"
    answer = await inner.ask(a, "/to/summarize/x", "Transfer-Encoding: chunked", body=chunks)
    assert (answer.status, answer.header("Reach-Agent")) == (200, "b2")
    assert b1.agent.last.body == b2.agent.last.body
    assert len(b2.agent.last.body) == 20_000


async def test_a_defect_is_said_and_leaves_no_slot(inner: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    a, _ = await inner.pair()

    async def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Send, "_judge", fails)
    answer = await inner.ask(a, "/to/summarize/x")
    assert (answer.status, answer.code, answer.json["executed"]) == (500, "internal_error", "unknown")
    assert "ZeroDivisionError" in str(await a.log(event="defect"))
    await inner.idle()


async def test_each_attempt_is_logged_with_the_span_that_was_sent(inner: Mesh) -> None:
    a, b1, b2 = await trio(inner, hangs_up, ok(), declared=IDEMPOTENT)
    trace_id = (await inner.ask(a, "/to/summarize/x", body=b"x")).header("Reach-Trace-Id")
    [attempt], [call] = await a.log(trace_id, "attempt"), await a.log(trace_id, "call")
    [first], [second] = await b1.log(trace_id, "deliver"), await b2.log(trace_id, "deliver")
    assert (attempt["attempt_span_id"], call["attempt_span_id"]) == (first["parent_id"], second["parent_id"])
    assert attempt["span_id"] == call["span_id"]


async def test_an_attempt_that_sent_nothing_has_no_span(inner: Mesh) -> None:
    a, b1, _ = await trio(inner, ok(), ok())
    a.learn(b1.entry(address=f"127.0.0.1:{closed_port()}"))
    trace_id = (await inner.ask(a, "/to/summarize/x", body=b"x")).header("Reach-Trace-Id")
    [attempt], [call] = await a.log(trace_id, "attempt"), await a.log(trace_id, "call")
    assert attempt["attempt_span_id"] is None
    assert call["attempt_span_id"]
