"""Retries count for the whole chain: those that an answer cost further down are lacking further up."""

import asyncio

import pytest
from harness.sidecars import Asked, Mesh, closed_port, ok, request

from reach_sidecar.config import CapabilityConfig
from reach_sidecar.forward.chain import MAX_TRACES, Chains, read_left
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Request, field

TRACE = "ab" * 16
PARENT = f"00-{TRACE}-{'cd' * 8}-01"


def asked(left: str | None = "2", parent: str | None = PARENT) -> Request:
    fields = [("Reach-Retries-Left", left), ("traceparent", parent)]
    return Request(b"GET", b"/", 11, [field(name, value) for name, value in fields if value is not None], Body())


@pytest.mark.parametrize(("value", "left"), [(None, None), (b"", None), (b"x", None), (b"-1", None), (b"0", 0),
                                             (b"1", 1), (b"2", 2), (b"9999999", 2)])
def test_reading(value: bytes | None, left: int | None) -> None:
    assert read_left(value) == left


def test_what_was_spent_is_taken_off_once() -> None:
    chains = Chains()
    assert chains.left_after(asked("1"))[2] == b"1"
    assert chains.left_after(asked(None, None))[2] == b"2"
    chains.spend(TRACE, 1)
    assert chains.left_after(asked(parent=PARENT.replace("ab", "ef")))[2] == b"2", "another chain"
    assert chains.left_after(asked())[2] == b"1"
    assert chains.left_after(asked())[2] == b"2"
    chains.spend(TRACE, 1)
    chains.spend(TRACE, 5)
    assert chains.left_after(asked())[2] == b"0"


def test_where_chains_begin_nothing_piles_up() -> None:
    chains = Chains()
    for number in range(2 * MAX_TRACES):
        chains.spend(f"{number:032x}", 1)
    assert len(chains._spent) == MAX_TRACES
    assert chains.left_after(asked(parent=f"00-{2 * MAX_TRACES - 1:032x}-{'cd' * 8}-01"))[2] == b"1"


async def test_an_answer_between_sidecars_carries_what_is_left(inner: Mesh) -> None:
    """The agent of `b` calls on in the same trace, and `b` needs two attempts for it."""
    async def plans(asked: Asked, writer: asyncio.StreamWriter) -> None:
        answer = await inner.ask(b, "/to/work/x", f"traceparent: {asked.one('traceparent')}",
                                 f"Reach-Retries-Left: {asked.one('Reach-Retries-Left')}")
        assert answer.header("Reach-Attempts") == "2"
        assert answer.header("Reach-Retries-Left") is None, "that is said between sidecars only"
        writer.write(ok(b"planned", b"Reach-Retries-Left: 9"))

    b = await inner.node("b", plans, "plan")
    gone = await inner.node("gone", ok(), "work")
    await inner.node("c", ok(), "work")
    inner.share()
    b.peer("c").hear_load(60, 60, asyncio.get_running_loop().time())
    b.learn(gone.entry(address=f"127.0.0.1:{closed_port()}"))
    answer = await inner.raw(b, request("/x", "Reach-Target: plan", "Reach-Agent: b", "Reach-Caller: a",
                                        f"traceparent: {PARENT}", "Reach-Retries-Left: 2"), door="mesh")
    assert (answer.status, answer.body, answer.header("Reach-Retries-Left")) == (200, b"planned", "1")


async def test_the_caller_takes_the_smaller(inner: Mesh) -> None:
    """`b1` spent a retry further down before its agent broke: one is left, and this is it."""
    async def spends(asked: Asked, writer: asyncio.StreamWriter) -> None:
        b1.sidecar.chains.spend(asked.one("traceparent").split("-")[1], 1)
        writer.close()

    declared = CapabilityConfig(name="summarize", idempotent=True)
    a = await inner.node("a")
    b1 = await inner.node("b1", spends, declared)
    b2 = await inner.node("b2", ok(), declared)
    inner.share()
    a.peer("b2").hear_load(60, 60, asyncio.get_running_loop().time())
    answer = await inner.ask(a, "/to/summarize/x", f"traceparent: {PARENT}")
    assert (answer.status, answer.header("Reach-Attempts")) == (200, "2")
    assert b1.agent.last.one("Reach-Retries-Left") == "2"
    assert b2.agent.last.one("Reach-Retries-Left") == "0"
    assert a.sidecar.chains.left_after(asked())[2] == b"0", "whoever called the agent of `a` is told so in turn"
