"""The outermost layer: one trace through all hops, one line a hop, the counters."""

import asyncio
from random import Random
from typing import Any

import pytest
from harness.sidecars import Mesh, Node, hangs, hangs_up, ok, request, until
from sidecar.http1.raw import Answer

from reach_core.trace import parse_traceparent
from reach_sidecar.config import CapabilityConfig
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.observe import take_trace, traceparent
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Request, field

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GIVEN = f"00-{TRACE}-00f067aa0ba902b7-01"
FIELDS = {"ts", "level", "event", "trace_id", "span_id", "key", "agent", "caller", "target", "capability", "attempt",
          "status", "outcome", "ms", "bytes_in", "bytes_out"}


async def test_a_trace_is_taken_over_and_every_hop_has_a_span(inner: Mesh) -> None:
    a, b = await inner.pair()
    answer = await inner.ask(a, "/to/summarize/x", f"traceparent: {GIVEN}", "tracestate: x=1", "tracestate: y=2")
    assert answer.header("Reach-Trace-Id") == TRACE
    arrived = parse_traceparent(b.agent.last.one("traceparent").encode())
    assert arrived is not None
    assert arrived.trace_id == TRACE
    assert b.agent.last.all("tracestate") == ["x=1", "y=2"]
    [call], [deliver] = await a.log(TRACE, "call"), await b.log(TRACE, "deliver")
    spans = {"00f067aa0ba902b7", call["span_id"], deliver["span_id"], deliver["parent_id"]}
    assert len(spans) == 4, "the caller's, this hop's, this attempt's, the next hop's"
    assert arrived.span_id == deliver["span_id"]
    assert call["parent_id"] == "00f067aa0ba902b7"


@pytest.mark.parametrize("flags", ["00", "01"])
async def test_the_sampled_flag_is_kept(inner: Mesh, flags: str) -> None:
    a, b = await inner.pair()
    await inner.ask(a, "/to/summarize/x", f"traceparent: {GIVEN[:-2]}{flags}")
    assert b.agent.last.one("traceparent").endswith(f"-{flags}")


@pytest.mark.parametrize("lines", [
    [], [f"traceparent: {GIVEN}", f"traceparent: {GIVEN}"], [f"Traceparent: {GIVEN}", f"TRACEPARENT: 00-{'1' * 32}"],
    ["traceparent: "], [f"traceparent: {GIVEN.upper()}"], [f"traceparent: 00-{'0' * 32}-00f067aa0ba902b7-01"],
    [f"traceparent: 00-{TRACE}-{'0' * 16}-01"], [f"traceparent: ff-{TRACE}-00f067aa0ba902b7-01"],
    [f"traceparent: {GIVEN}-more"], [f"traceparent: {GIVEN}, {GIVEN}"], ["traceparent: nonsense"],
])
async def test_one_that_is_not_valid_is_replaced_and_its_state_dropped(inner: Mesh, lines: list[str]) -> None:
    a, b = await inner.pair()
    answer = await inner.ask(a, "/to/summarize/x", *lines, "tracestate: x=1", "X-Kept: 1")
    context = parse_traceparent(b.agent.last.one("traceparent").encode())
    assert context is not None
    assert context.trace_id == answer.header("Reach-Trace-Id")
    assert context.trace_id != TRACE
    assert context.sampled
    assert not b.agent.last.all("tracestate")
    assert b.agent.last.one("X-Kept") == "1"


async def test_a_later_version_is_read_as_far_as_ours_goes(inner: Mesh) -> None:
    a, _ = await inner.pair()
    answer = await inner.ask(a, "/to/summarize/x", f"traceparent: 01-{TRACE}-00f067aa0ba902b7-01-new")
    assert answer.header("Reach-Trace-Id") == TRACE


def test_taking_over_by_itself() -> None:
    request = Request(b"GET", b"/", 11, [field("Traceparent", GIVEN)], Body())
    call = Call(request, 0.0, 0.0)
    take_trace(call, Random(1))
    assert (call.trace.trace_id, call.parent_id) == (TRACE, "00f067aa0ba902b7")
    assert call.span_id not in ("", call.parent_id)
    assert traceparent(call.trace, "b" * 16)[2] == f"00-{TRACE}-{'b' * 16}-01".encode()


# -- lines

async def told(inner: Mesh, a: Node, b: Node, *fields: str, body: bytes | None = b"secret-in") -> tuple[
        Answer, dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """The answer, the one line of the caller, the lines of the called side, the failed attempts."""
    answer = await inner.ask(a, "/to/Summarize/x?token=secret-query", "Authorization: Bearer secret-header",
                             f"traceparent: {GIVEN}", *fields, body=body)
    await inner.idle()
    lines = await a.log(TRACE)
    calls = [line for line in lines if line["event"] == "call"]
    assert len(calls) == 1
    delivered = await b.log(TRACE, "deliver")
    for line in (*lines, *delivered):
        assert "secret" not in str(line)
    return answer, calls[0], delivered, [line for line in lines if line["event"] == "attempt"]


async def test_one_line_a_hop(inner: Mesh) -> None:
    a, b = await inner.pair(ok(b"secret-out!"))
    _, call, delivered, attempts = await told(inner, a, b, "Idempotency-Key: k-1")
    [deliver] = delivered
    assert not attempts
    for line, agent in ((call, "a"), (deliver, "b")):
        assert set(line) >= FIELDS
        assert line["agent"] == agent
        assert line["trace_id"] == TRACE
        assert (line["key"], line["caller"], line["target"], line["capability"]) == ("k-1", "a", "b", "summarize")
        assert (line["attempt"], line["status"], line["outcome"], line["level"]) == (1, 200, "success", "info")
        assert (line["bytes_in"], line["bytes_out"]) == (9, 11)
        assert 0.0 <= line["ms"] < 5000.0
    assert deliver["caller_proved"] is False, "no certificate says who calls"
    assert "caller_proved" not in call


async def test_failed_attempts_have_a_line_each(inner: Mesh) -> None:
    a, b = await inner.pair(hangs_up)
    _, call, [deliver], [attempt] = await told(inner, a, b)
    assert (call["status"], call["outcome"], call["level"]) == (502, "outcome_unknown", "warn")
    assert (deliver["status"], deliver["outcome"], deliver["level"]) == (502, "outcome_unknown", "warn")
    assert (attempt["outcome"], attempt["attempt"], attempt["target"], attempt["caller"]) == ("agent_broke", 1, "b", "a")
    assert attempt["level"] == "warn"
    assert attempt["key"] == call["key"]
    assert "closed the connection" in attempt["detail"]


async def test_what_nobody_was_called_for_has_a_line_too(inner: Mesh) -> None:
    a, b = await inner.pair(ok(), "other")
    answer, call, delivered, attempts = await told(inner, a, b)
    assert (call["status"], call["outcome"], call["attempt"], call["target"]) == (404, "no_such_capability", 0, "")
    assert call["level"] == "info"
    assert not delivered
    assert not attempts
    assert answer.json["trace_id"] == TRACE


async def test_an_answer_that_is_an_error_of_the_agents(inner: Mesh) -> None:
    a, b = await inner.pair(b"HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n")
    _, call, [deliver], _ = await told(inner, a, b)
    assert (call["status"], call["outcome"], call["level"]) == (422, "answered", "info")
    assert (deliver["status"], deliver["outcome"]) == (422, "answered")


@pytest.mark.parametrize("streaming", [False, True])
async def test_bytes_of_bodies_that_stream(inner: Mesh, streaming: bool) -> None:
    a, b = await inner.pair(ok(b"y" * 300_000))
    size = 400_000
    fields, body = ([], b"x" * size) if not streaming else (
        ["Transfer-Encoding: chunked"], b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"x" * size))
    _, call, [deliver], _ = await told(inner, a, b, *fields, body=body)
    for line in (call, deliver):
        assert (line["bytes_in"], line["bytes_out"]) == (size, 300_000)


async def test_keys_and_names_that_are_no_text(inner: Mesh) -> None:
    a, b = await inner.pair()
    answer = await inner.ask(a, "/to/summarize/x", "Idempotency-Key: caf\xe9\xff")
    assert answer.status == 200
    [line] = await b.log(event="deliver")
    assert line["key"] == "caf\xe9\xff"
    assert (await inner.ask(a, "/to/%ff%00%0a/x")).code == "no_such_capability"
    assert len(await a.log(event="call")) == 2


# -- counters

async def test_counted_on_both_sides(inner: Mesh) -> None:
    a, b = await inner.pair()
    for _ in range(3):
        await inner.ask(a, "/to/summarize/x", body=b"x")
    await inner.ask(a, "/to/other/x")
    await inner.idle()
    out, into = a.sidecar.metrics, b.sidecar.metrics
    assert out.calls["out", "summarize"].results == {(2, "success"): 3}
    assert out.calls["out", "other"].results == {(4, "no_such_capability"): 1}
    assert into.calls["in", "summarize"].results == {(2, "success"): 3}
    assert sum(out.calls["out", "summarize"].buckets) == 3
    assert out.attempts == {("b", "answered"): 3}


async def test_retries_are_counted(inner: Mesh) -> None:
    a = await inner.node("a")
    idempotent = CapabilityConfig(name="summarize", idempotent=True)
    await inner.node("b1", hangs_up, idempotent)
    await inner.node("b2", hangs_up, idempotent)
    inner.share()
    await inner.ask(a, "/to/summarize/x", body=b"x")
    assert a.sidecar.metrics.retries == {("summarize", "agent_broke"): 2}
    attempts = a.sidecar.metrics.attempts
    assert set(attempts) == {("b1", "agent_broke"), ("b2", "agent_broke")}
    assert sum(attempts.values()) == 3


async def test_a_key_that_was_seen_before_is_told_and_counted(inner: Mesh) -> None:
    a, b = await inner.pair()
    for _ in range(2):
        assert (await inner.ask(a, "/to/summarize/x", "Idempotency-Key: k", body=b"x")).status == 200
    first, second = await b.log(event="deliver")
    assert ("dedup" in first, second["dedup"]) == (False, "replay")
    assert b.sidecar.metrics.dedup == {"replay": 1}
    assert len(b.agent.asked) == 1


async def test_whom_the_call_could_not_go_to_is_told(inner: Mesh) -> None:
    a = await inner.node("a")
    b1, b2 = await inner.node("b1", ok(), "summarize"), await inner.node("b2", ok(), "summarize")
    a.learn(b1.entry(flags=("draining",)), b2.entry())
    trace_id = (await inner.ask(a, "/to/summarize/x")).header("Reach-Trace-Id")
    [call] = await a.log(trace_id, "call")
    assert call["not_picked"] == {"b1": "draining"}
    assert call["target"] == "b2"


async def test_under_way(inner: Mesh) -> None:
    a, b = await inner.pair(hangs)
    client = await inner.connect(a)
    await client.send(request("/to/summarize/x"))
    await until(lambda: b.agent.asked)
    assert a.slots() == {"running": 0, "queued": 0, "registered": 0, "out": 1, "in": 0, "peers": 1}
    assert b.slots() == {"running": 1, "queued": 0, "registered": 1, "out": 0, "in": 1, "peers": 0}
    client.close()
    await inner.idle()
    await asyncio.sleep(0)


async def test_the_lines_of_both_sides_are_tied_by_the_attempts_span(inner: Mesh) -> None:
    a, b = await inner.pair()
    trace_id = (await inner.ask(a, "/to/summarize/x")).header("Reach-Trace-Id")
    [call], [deliver] = await a.log(trace_id, "call"), await b.log(trace_id, "deliver")
    assert call["attempt_span_id"] == deliver["parent_id"]
    assert "attempt_span_id" not in deliver


async def test_a_call_that_was_sent_nowhere_has_no_attempts_span(inner: Mesh) -> None:
    a = await inner.node("a")
    trace_id = (await inner.ask(a, "/to/summarize/x")).header("Reach-Trace-Id")
    [call] = await a.log(trace_id, "call")
    assert call["attempt_span_id"] is None
