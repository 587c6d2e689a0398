"""The called side's door: whose call it is, for whom, and by which of its capabilities' rules it goes."""

import pytest
from harness.sidecars import Mesh, ok, request
from sidecar.http1.raw import Answer

from reach_core.peer import Capability
from reach_sidecar.config import CapabilityConfig
from reach_sidecar.forward.authorise import Authorise
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.failure import Refusal
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Request, Response, field
from reach_sidecar.membership.local import LocalAgent

CAPABILITIES = (Capability(name="Text_Summarize", path="/short", timeout_s=3.0, dedup="off"),
                Capability(name="translate", path="/other", idempotent=True),
                Capability(name="book", path="/book", dedup="durable"))


async def read(*fields: str, agent: str = "b", path: bytes = b"/x",
               declared: tuple[Capability, ...] = CAPABILITIES) -> Call:
    """The call as the next layer gets it. Raises Refusal."""
    local = LocalAgent("b", address="http://127.0.0.1:1", declared=declared)
    seen: list[Call] = []

    async def inner(call: Call) -> Response:
        seen.append(call)
        return Response(200, [])

    headers = [field(*line.split(": ", 1)) for line in (f"Reach-Agent: {agent}", *fields)]
    call = Call(Request(b"POST", path, 11, headers, Body.whole(b"")), 100.0)
    await Authorise(inner, local=local, default_timeout_s=600.0)(call)
    assert seen == [call]
    return call


async def test_what_the_calling_sidecar_says_is_read() -> None:
    call = await read("Reach-Target: text.summarize", "Reach-Caller: a", "Idempotency-Key: k", "Reach-Session: s",
                      "Reach-Attempt: 3", "Reach-Retries-Left: 1", "Reach-Timeout: 1500ms")
    assert (call.caller, call.key, call.session, call.attempt, call.retries_left) == ("a", b"k", b"s", 3, 1)
    assert call.deadline == 101.5
    assert (call.target, call.capability) == ("b", "text.summarize")


async def test_what_it_leaves_out_is_not_made_up() -> None:
    call = await read("Reach-Target: text.summarize")
    assert (call.caller, call.key, call.session, call.attempt, call.retries_left) == ("", b"", b"", 0, 2)
    assert call.deadline == 700.0


@pytest.mark.parametrize(("target", "path", "name", "dedup"), [
    ("text.summarize", b"/x", "text.summarize", "off"),
    ("TEXT-summarize", b"/x", "text.summarize", "off"),
    ("translate", b"/short", "translate", "memory"),  # the name counts, not the path
    ("@b", b"/short?x=1", "text.summarize", "off"),
    ("@b", b"/other", "translate", "memory"),
    ("@b", b"/nothing", "-", "durable"),  # which one is not said: the most careful of all rules
])
async def test_the_capabilitys_own_settings_are_the_local_ones(target: str, path: bytes, name: str,
                                                               dedup: str) -> None:
    call = await read(f"Reach-Target: {target}", path=path)
    assert (call.offered.name, call.offered.dedup) == (name, dedup)
    assert call.capability == ("" if target == "@b" else name)


async def test_a_call_to_an_agent_is_for_its_only_capability() -> None:
    only = await read("Reach-Target: @b", path=b"/nothing", declared=CAPABILITIES[:1])
    assert (only.offered.name, only.offered.timeout_s) == ("text.summarize", 3.0)
    none = await read("Reach-Target: @b", path=b"/nothing", declared=())
    assert (none.offered.name, none.offered.dedup, none.offered.idempotent) == ("-", "memory", False)


@pytest.mark.parametrize(("agent", "fields"), [
    ("b", ["Reach-Target: gone"]), ("b", ["Reach-Target: "]), ("b", ["Reach-Target: \xff\xfe"]), ("b", []),
    ("c", ["Reach-Target: @c"]), ("c", ["Reach-Target: @b"]), ("B", ["Reach-Target: translate"]),
    ("", ["Reach-Target: translate"]),
])
async def test_what_is_not_here_has_not_run(agent: str, fields: list[str]) -> None:
    with pytest.raises(Refusal) as refusal:
        await read(*fields, agent=agent)
    assert (refusal.value.reason, refusal.value.executed) == ("not_here", "no")


# -- with real calls

def refused(answer: Answer) -> str | None:
    assert answer.code is not None
    assert answer.header("Reach-Load") is not None, "load comes with every answer"
    return answer.header("Reach-Refused")


async def test_only_what_lives_here(inner: Mesh) -> None:
    b = await inner.node("b", ok(), "summarize")
    assert (await inner.deliver(b)).status == 200
    for answer in (await inner.deliver(b, agent="c"), await inner.deliver(b, agent=""),
                   await inner.deliver(b, target="x"), await inner.deliver(b, target="@b", agent="c"),
                   await inner.raw(b, request("/x", "Reach-Target: summarize"), door="mesh")):
        assert refused(answer) == "not_here"
        assert answer.json["executed"] == "no"
    assert (await inner.deliver(b, target="@b")).status == 200
    assert (await inner.deliver(b, target="SUMMARIZE")).status == 200
    assert len(b.agent.asked) == 3


async def test_a_gateway_serves_nobody(inner: Mesh) -> None:
    a = await inner.node("a")
    assert refused(await inner.deliver(a, target="@a")) == "not_here"


async def test_a_capability_that_is_declared_no_more(inner: Mesh) -> None:
    b = await inner.node("b", ok(), "summarize")
    b.sidecar.local.declare("b", capabilities=["other"])
    assert refused(await inner.deliver(b)) == "not_here"
    assert (await inner.deliver(b, target="other")).status == 200


async def test_one_agent_is_called_by_the_rules_of_what_the_path_means(inner: Mesh) -> None:
    """As with a call by name, for its own time does not end because the agent was named."""
    b = await inner.node("b", ok(), CapabilityConfig(name="quick", path="/quick", timeout=2.0),
                         CapabilityConfig(name="slow", path="/slow", timeout=200.0))
    for path, at_most_ms in (("/quick", 2_000), ("/slow", 200_000), ("/else", 600_000)):
        assert (await inner.deliver(b, target="@b", path=path)).status == 200
        left_ms = int(b.agent.last.one("Reach-Timeout").removesuffix("ms"))
        assert at_most_ms * 0.8 < left_ms <= at_most_ms


@pytest.mark.parametrize("value", ["", "x", "0s", "-1s"])
async def test_a_time_that_cannot_be_read(inner: Mesh, value: str) -> None:
    b = await inner.node("b", ok(), "summarize")
    answer = await inner.deliver(b, f"Reach-Timeout: {value}")
    assert (answer.status, answer.code, answer.header("Reach-Fault")) == (400, "bad_request", "bad_request")
    assert not b.agent.asked
    await inner.idle()


@pytest.mark.parametrize("value", ["", "x", "-1", "9" * 400])
async def test_an_attempt_that_cannot_be_read_is_none(inner: Mesh, value: str) -> None:
    b = await inner.node("b", ok(), "summarize")
    assert (await inner.deliver(b, f"Reach-Attempt: {value}")).status == 200
    await inner.idle()
