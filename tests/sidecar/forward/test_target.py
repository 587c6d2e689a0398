"""From a name to the agents that offer it, and what a call brings along: key, time, retries."""

import asyncio
import time
from collections.abc import Callable

import msgspec
import pytest
from harness.sidecars import Asked, Mesh, Node, closed_port, ok, until

from reach_core.peer import Rank
from reach_sidecar.config import CapabilityConfig
from reach_sidecar.forward.target import Keys


@pytest.mark.parametrize("name", ["summarize", "Summarize", "text_summarize", "TEXT-Summarize", "text%20summarize",
                                  "text%2Fsummarize", "text.summarize"])
async def test_names_are_folded_on_both_sides(inner: Mesh, name: str) -> None:
    a, b = await inner.pair(ok(), "summarize", "Text Summarize")
    answer = await inner.ask(a, f"/to/{name}/x")
    assert (answer.status, answer.header("Reach-Matched")) == (200, "exact")
    assert b.agent.last.target == "/x"


async def test_an_alias_is_said_to_be_one(inner: Mesh) -> None:
    a, _ = await inner.pair(ok(), CapabilityConfig(name="summarize", aliases=["text.shorten"]))
    assert (await inner.ask(a, "/to/TEXT_shorten/x")).header("Reach-Matched") == "alias"


@pytest.mark.parametrize("target", ["/to/@b/x", "http://b.agent.reach/x"])
async def test_one_agent_by_its_id(inner: Mesh, target: str) -> None:
    a, b = await inner.pair(ok(), "summarize")
    answer = await inner.ask(a, target)
    assert (answer.status, answer.header("Reach-Agent")) == (200, "b")
    assert b.agent.last.target == "/x"


async def test_hosts_have_no_case_ids_have(inner: Mesh) -> None:
    """URL parsers fold host names, so `Summarizer-01` is meant by `summarizer-01.agent.reach`."""
    a = await inner.node("a")
    await inner.node("Summarizer-01", ok(), "summarize")
    inner.share()
    assert (await inner.ask(a, "http://Summarizer-01.agent.reach/x")).header("Reach-Agent") == "Summarizer-01"
    assert (await inner.ask(a, "/x", host="summarizer-01.agent.reach")).header("Reach-Agent") == "Summarizer-01"


async def test_the_capabilitys_own_path_is_that_of_the_agent_that_is_called(inner: Mesh) -> None:
    a = await inner.node("a")
    one = await inner.node("one", ok(), CapabilityConfig(name="summarize", path="/v1/run"))
    two = await inner.node("two", ok(), CapabilityConfig(name="summarize"))
    inner.share()
    for _ in range(12):
        assert (await inner.ask(a, "/to/summarize?x=1")).status == 200
    assert {got.target for got in one.agent.asked} == {"/v1/run?x=1"}
    assert {got.target for got in two.agent.asked} == {"/process?x=1"}
    assert (await inner.ask(a, "/to/@one?y=2")).status == 200
    assert one.agent.last.target == "/v1/run?y=2", "the path of its only capability"


async def test_another_agents_entry_cannot_write_requests(inner: Mesh) -> None:
    a, b = await inner.pair()
    entry = b.entry()
    evil = msgspec.structs.replace(entry.capabilities[0], path="/x HTTP/1.1\r\nEvil: 1\r\n\r\nGET /second")
    a.learn(msgspec.structs.replace(entry, ver=9, capabilities=(evil,)))
    assert (await inner.ask(a, "/to/summarize")).status == 200
    assert b.agent.last.target.startswith("/x%20HTTP")
    assert not b.agent.last.all("Evil")


async def test_no_such_capability_names_what_is_near(inner: Mesh) -> None:
    a, _ = await inner.pair(ok(), "message.push", "summarize")
    answer = await inner.ask(a, "/to/push.message/x")
    assert (answer.status, answer.code) == (404, "no_such_capability")
    assert answer.json["near"] == ["message.push"]
    assert "Did you mean 'message.push'?" in answer.json["detail"]
    assert answer.json["executed"] == "no"
    assert answer.json["attempts"] == []
    assert answer.header("Proxy-Status") == 'a; error=destination_not_found; details="no_such_capability"'
    assert answer.json["trace_id"] == answer.header("Reach-Trace-Id")
    nothing = await inner.ask(a, "/to/qqqqqq/x")
    assert nothing.json["near"] == []
    assert "reach peers" in nothing.json["detail"]


async def test_no_such_agent_names_what_is_near(inner: Mesh) -> None:
    a, b = await inner.pair()
    answer = await inner.ask(a, "/to/@bb/x")
    assert (answer.status, answer.code, answer.json["executed"]) == (404, "no_such_agent", "no")
    a.learn(b.entry().tombstone(time.time_ns() // 1_000_000))
    assert (await inner.ask(a, "/to/@b/x")).code == "no_such_agent"
    assert (await inner.ask(a, "/to/summarize/x")).code == "no_such_capability"


@pytest.mark.parametrize("target", ["/to/summarize/x", "/to/@b/x"])
async def test_a_call_that_comes_before_the_first_table_waits_for_it(inner: Mesh, target: str) -> None:
    a = await inner.node("a", control=[f"http://127.0.0.1:{closed_port()}"])
    b = await inner.node("b", ok(), "summarize")
    asking = asyncio.ensure_future(inner.ask(a, target))
    await until(lambda: a.sidecar.metrics.in_flight["out"] == 1)
    await asyncio.sleep(0.05)
    assert not asking.done()
    a.learn(b.entry())
    a.sidecar.membership.synced.set()
    assert (await asking).status == 200


async def test_a_first_table_without_the_name_is_a_404(inner: Mesh) -> None:
    a = await inner.node("a", control=[f"http://127.0.0.1:{closed_port()}"])
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x"))
    await until(lambda: a.sidecar.metrics.in_flight["out"] == 1)
    a.sidecar.membership.synced.set()
    assert (await asking).code == "no_such_capability"


@pytest.mark.parametrize(("fields", "at_least", "at_most"), [([], 0.3, 1.5), (["Reach-Timeout: 100ms"], 0.08, 0.29)])
async def test_no_table_in_time_is_no_404(inner: Mesh, monkeypatch: pytest.MonkeyPatch, fields: list[str],
                                          at_least: float, at_most: float) -> None:
    monkeypatch.setattr("reach_sidecar.forward.target.TABLE_WAIT_S", 0.31)
    url = f"http://127.0.0.1:{closed_port()}"
    a = await inner.node("a", control=[url])
    began = time.monotonic()
    answer = await inner.ask(a, "/to/summarize/x", *fields)
    assert at_least < time.monotonic() - began < at_most
    assert (answer.status, answer.code, answer.json["executed"]) == (503, "no_agent_available", "no")
    assert answer.header("Retry-After") == "1"
    assert f"the control node at {url} has not been reached" in answer.json["detail"]
    assert "reach control" in answer.json["detail"]
    await inner.idle()


@pytest.mark.parametrize(("target", "fields", "code"), [
    ("/to/", [], "bad_request"),
    ("/to/@/x", [], "bad_request"),
    ("/x", ["Reach-Target: "], "bad_request"),
    ("/x", ["Reach-Target: @"], "bad_request"),
    ("/to/summarize/x", ["Reach-Timeout: soon"], "bad_request"),
    ("/to/summarize/x", ["Reach-Timeout: 0ms"], "bad_request"),
    ("/to/summarize/x", ["Reach-Timeout: -5s"], "bad_request"),
    ("/to/summarize/x", ["Reach-Timeout: "], "bad_request"),
    ("/to/summarize/x", ["Reach-Require: >=3"], "bad_request"),
])
async def test_what_cannot_be_understood(inner: Mesh, target: str, fields: list[str], code: str) -> None:
    a, b = await inner.pair()
    answer = await inner.ask(a, target, *fields)
    assert (answer.status, answer.code, answer.json["executed"]) == (400, code, "no")
    assert not b.agent.asked


async def test_required_attributes_must_match(inner: Mesh) -> None:
    a = await inner.node("a")
    for name, language in (("zh", "zh"), ("en", "en")):
        await inner.node(name, ok(), CapabilityConfig(name="summarize", attributes={"language": [language]}))
    inner.share()
    for _ in range(8):
        answer = await inner.ask(a, "/to/summarize/x", "Reach-Require: language=en")
        assert (answer.status, answer.header("Reach-Agent")) == (200, "en")
    both = await inner.ask(a, "/to/summarize/x", "Reach-Require: language=en", "Reach-Require: language=zh")
    for refused in (both, await inner.ask(a, "/to/summarize/x", "Reach-Require: language=fr")):
        assert (refused.status, refused.code, refused.json["executed"]) == (503, "no_agent_available", "no")
        assert "en: language=" in refused.json["detail"]
        assert "zh: language=" in refused.json["detail"]


async def test_known_but_none_fit_says_why_for_each(inner: Mesh) -> None:
    a = await inner.node("a")
    nodes = [await inner.node(name, ok(), "summarize") for name in ("b1", "b2", "b3")]
    a.learn(nodes[0].entry(rank=Rank.SUSPECT), nodes[1].entry(flags=("unfit",)), nodes[2].entry(flags=("draining",)))
    answer = await inner.ask(a, "/to/summarize/x")
    assert (answer.status, answer.code, answer.json["executed"]) == (503, "no_agent_available", "no")
    assert answer.header("Retry-After") == "1"
    for reason in ("b1: its status is suspect", "b2: its own sidecar finds", "b3: it is shutting down"):
        assert reason in answer.json["detail"]
    assert answer.json["attempts"] == []


# -- key

async def test_a_key_is_made_where_none_came(inner: Mesh) -> None:
    a, b = await inner.pair()
    for _ in range(3):
        await inner.ask(a, "/to/summarize/x")
    keys = [got.one("Idempotency-Key") for got in b.agent.asked]
    assert len(set(keys)) == 3
    assert all(len(key) >= 16 for key in keys)


async def test_a_key_that_came_arrives(inner: Mesh) -> None:
    a, b = await inner.pair()
    await inner.ask(a, "/to/summarize/x", "idempotency-KEY: order-7")
    assert ("idempotency-KEY", "order-7") in b.agent.last.headers
    assert b.agent.last.one("Idempotency-Key") == "order-7"


async def test_an_empty_key_is_none(inner: Mesh) -> None:
    a, b = await inner.pair()
    answer = await inner.ask(a, "/to/summarize/x", "Idempotency-Key: ")
    assert b.agent.last.one("Idempotency-Key") != ""
    [line] = await b.log(answer.header("Reach-Trace-Id"), "deliver")
    assert line["key"] == b.agent.last.one("Idempotency-Key")


def test_made_keys_never_meet() -> None:
    one, two = Keys(), Keys()
    assert len({keys.next() for keys in (one, two) for _ in range(1000)}) == 2000


# -- time and retries

def ms(text: str) -> int:
    assert text.endswith("ms")
    return int(text[:-2])


async def test_the_budget_shrinks_at_each_hop(inner: Mesh) -> None:
    a, b = await inner.pair()
    await inner.ask(a, "/to/summarize/x", "Reach-Timeout: 5s")
    assert 3000 < ms(b.agent.last.one("Reach-Timeout")) <= 4998  # a millisecond for each of two hops


async def test_without_one_the_sidecars_default_counts(inner: Mesh) -> None:
    a = await inner.node("a", default_timeout=7.0)
    b = await inner.node("b", ok(), "summarize", default_timeout=100.0)
    inner.share()
    await inner.ask(a, "/to/summarize/x")
    assert 5000 < ms(b.agent.last.one("Reach-Timeout")) <= 7000


async def test_time_beyond_reason_is_no_defect(inner: Mesh) -> None:
    a, _ = await inner.pair()
    for given in ("99999999999h", "1" * 30 + "s"):
        answer = await inner.ask(a, "/to/summarize/x", f"Reach-Timeout: {given}")
        assert answer.status in (200, 400), answer.body
    assert not [line for line in await a.log() if line["event"] == "defect"]


@pytest.mark.parametrize(("given", "expected"), [(None, "2"), ("2", "2"), ("1", "1"), ("0", "0"), ("9", "2"),
                                                 ("-1", "2"), ("x", "2"), ("9" * 50, "2")])
async def test_retries_left_reach_the_agent(inner: Mesh, given: str | None, expected: str) -> None:
    a, b = await inner.pair()
    answer = await inner.ask(a, "/to/summarize/x", *([f"Reach-Retries-Left: {given}"] if given else []))
    assert answer.status == 200
    assert b.agent.last.one("Reach-Retries-Left") == expected


async def test_a_call_without_time_fails_without_being_run(inner: Mesh) -> None:
    """A deadline so short that it is over before an agent could take the call hurts nobody else."""
    a, b = await inner.pair()
    answers = await asyncio.gather(*(inner.ask(a, "/to/summarize/x", "Reach-Timeout: 1ms") for _ in range(20)))
    assert {answer.status for answer in answers} <= {200, 503, 504}, [answer.body for answer in answers]
    assert {answer.json["executed"] for answer in answers if answer.status == 503} <= {"no"}
    await inner.idle()
    assert (await inner.ask(a, "/to/summarize/x")).status == 200
    assert not b.sidecar.local.unfit


# -- where the key stands

BY_ORDER = CapabilityConfig(name="summarize", key="json:/order_id")


async def test_a_key_in_the_body_travels_in_the_usual_header(inner: Mesh) -> None:
    a, b = await inner.pair(ok(), BY_ORDER)
    for fields in ([], ["Idempotency-Key: other"]):
        answer = await inner.ask(a, "/to/summarize/x", *fields, body=b'{"order_id": "o-1"}')
        assert answer.status == 200
    assert [got.one("Idempotency-Key") for got in b.agent.asked] == ["o-1"], "the second was answered from memory"
    assert (await inner.ask(a, "/to/summarize/x", body=b'{"order_id": "o-1", "changed": 1}')).code == "key_reused"
    [*_, line] = await b.log(event="deliver")
    assert line["key"] == "o-1"


@pytest.mark.parametrize(("body", "expected"), [(b"{}", "usual"), (b"not json", "usual")])
async def test_where_that_place_is_empty_the_usual_header_counts(inner: Mesh, body: bytes, expected: str) -> None:
    a, b = await inner.pair(ok(), BY_ORDER)
    await inner.ask(a, "/to/summarize/x", "idempotency-KEY: usual", body=body)
    assert b.agent.last.one("Idempotency-Key") == expected
    await inner.ask(a, "/to/summarize/x", body=body)
    assert b.agent.last.one("Idempotency-Key").startswith("reach-"), "and without that one is made"


@pytest.mark.parametrize("first", ["with", "without"])
async def test_agents_that_declare_its_place_differently_get_it_once_all_the_same(inner: Mesh, first: str) -> None:
    """As while a new version of the agent is rolled out: no call loses its key by where it goes."""
    a = await inner.node("a")
    names = ["with", "without"] if first == "with" else ["without", "with"]
    nodes = {name: await inner.node(name, ok(), BY_ORDER if name == "with" else "summarize") for name in names}
    inner.share()
    for number in range(24):
        body = b'{"order_id": "o-%d"}' % number
        assert (await inner.ask(a, "/to/summarize/x", f"Idempotency-Key: o-{number}", body=body)).status == 200
    seen = [got.one("Idempotency-Key") for node in nodes.values() for got in node.agent.asked]
    assert sorted(seen) == sorted(f"o-{number}" for number in range(24))
    assert all(node.agent.asked for node in nodes.values())


# -- what an agent's call inherits

class Works:
    """The agent of `b`: while it works, it calls on to `next` with what `fields` makes of its own request."""

    def __init__(self, inner: Mesh) -> None:
        self.inner = inner
        self.fields: Callable[[Asked], list[str]] = lambda asked: []
        self.node: Node | None = None

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        assert self.node is not None
        answer = await self.inner.ask(self.node, "/to/next/x", *self.fields(asked), body=b"go on")
        writer.write(ok(b"%d" % answer.status))


async def chain(inner: Mesh) -> tuple[Node, Works, Node]:
    works = Works(inner)
    a = await inner.node("a")
    works.node = await inner.node("b", works, "summarize")
    c = await inner.node("c", ok(), "next")
    inner.share()
    return a, works, c


def same_span(asked: Asked) -> list[str]:
    return [f"traceparent: {asked.one('traceparent')}"]


def own_span(asked: Asked) -> list[str]:
    """An agent with spans of its own names the trace only."""
    _, trace_id, _, flags = asked.one("traceparent").split("-")
    return [f"traceparent: 00-{trace_id}-{'ab' * 8}-{flags}"]


@pytest.mark.parametrize("passed_on", [same_span, own_span])
async def test_an_agents_call_inherits_time_retries_and_session(inner: Mesh,
                                                                passed_on: Callable[[Asked], list[str]]) -> None:
    a, works, c = await chain(inner)
    works.fields = passed_on
    answer = await inner.ask(a, "/to/summarize/x", "Reach-Timeout: 5s", "Reach-Retries-Left: 1", "Reach-Session: s1",
                             body=b"x")
    assert answer.body == b"200"
    got = c.agent.last
    assert 3000 < ms(got.one("Reach-Timeout")) < 5000
    assert (got.one("Reach-Retries-Left"), got.one("Reach-Session")) == ("1", "s1")


async def test_without_the_trace_nothing_is_inherited(inner: Mesh) -> None:
    a, _, c = await chain(inner)
    assert (await inner.ask(a, "/to/summarize/x", "Reach-Timeout: 5s", "Reach-Session: s1", body=b"x")).body == b"200"
    assert ms(c.agent.last.one("Reach-Timeout")) > 60_000
    assert not c.agent.last.all("Reach-Session")


@pytest.mark.parametrize(("given", "at_most_ms"), [("2s", 2_000), ("500s", 5_000)])
async def test_what_an_agent_says_itself_counts_within_what_the_chain_has(inner: Mesh, given: str,
                                                                          at_most_ms: int) -> None:
    a, works, c = await chain(inner)
    works.fields = lambda asked: [*same_span(asked), f"Reach-Timeout: {given}", "Reach-Retries-Left: 2",
                                  "Reach-Session: own"]
    await inner.ask(a, "/to/summarize/x", "Reach-Timeout: 5s", "Reach-Retries-Left: 1", "Reach-Session: s1", body=b"x")
    got = c.agent.last
    assert at_most_ms * 0.6 < ms(got.one("Reach-Timeout")) <= at_most_ms
    assert (got.one("Reach-Retries-Left"), got.one("Reach-Session")) == ("1", "own")


# -- many behind one gateway

async def test_users_of_a_gateway_have_keys_of_their_own(inner: Mesh) -> None:
    """Two of them may give the same key: only `Authorization` tells them apart."""
    a, b = await inner.pair()
    for user in ("one", "two", "one"):
        answer = await inner.ask(a, "/to/summarize/x", f"Authorization: Bearer {user}", "Idempotency-Key: k", body=b"x")
        assert answer.status == 200
    assert [got.one("Authorization") for got in b.agent.asked] == ["Bearer one", "Bearer two"]
    assert not b.agent.last.all("Reach-Scope")


async def test_an_agents_authorization_is_its_own_affair(inner: Mesh) -> None:
    """It may renew its token between a call and its repeat."""
    a = await inner.node("a", ok(), "other")
    b = await inner.node("b", ok(), "summarize")
    inner.share()
    for token in ("old", "new"):
        await inner.ask(a, "/to/summarize/x", f"Authorization: Bearer {token}", "Idempotency-Key: k", body=b"x")
    assert len(b.agent.asked) == 1


async def test_a_preference_that_cannot_be_read(inner: Mesh) -> None:
    a, b = await inner.pair()
    answer = await inner.ask(a, "/to/summarize/x", "Reach-Prefer: >=3")
    assert (answer.status, answer.code) == (400, "bad_request")
    assert answer.json["detail"].startswith("Reach-Prefer: ")
    assert not b.agent.asked
