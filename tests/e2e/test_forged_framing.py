"""`Connection` names fields that end at this hop. What frames a body is not among them, whoever says so.

Else a body would be the next request on a connection between sidecars, with a caller of its own choice, and an
answer's body the next call's answer. Each body here is such a message; it has to arrive as a body, and the next
message on the same connection has to be the one that was sent.
"""

import asyncio
from collections.abc import Iterator

import pytest
from harness.sidecars import Agent, Asked, Mesh, Node, Script, ok, request
from sidecar.http1.raw import Answer, Peer

FRAMING = ["Content-Length", "Transfer-Encoding", "Content-Type", "Content-Encoding", "Trailer", "TE", "Expect", "Host",
           "Upgrade", "Connection"]
FORGED_CALL = request("/forged", "Reach-Target: summarize", "Reach-Agent: b", "Reach-Caller: somebody-else",
                      "Idempotency-Key: forged", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                      method="POST", body=b"evil")
FORGED_ANSWER = ok(b"forged", b"Reach-Agent: somebody-else")
SIDECAR = "Reach-Load: 1 0 4 0 0"  # without it an answer on the mesh is no sidecar's
TYPED = ("Content-Type: a/b", "Content-Encoding: x-own")
CHUNKED = b"%x\r\n%b\r\n0\r\nX-Sum: 1\r\n\r\n"


def ways(*names: str) -> Iterator[tuple[str, ...]]:
    """Every manner of naming each of them."""
    for name in names:
        yield (f"Connection: {name}",)
        yield (f"Connection: keep-alive , {name.lower()},,\t{name.upper()}",)
        yield ("Connection: keep-alive", f"cOnnection: {name}, X-Hop", "X-Hop: 1")


async def two_calls(client: Peer, first: bytes, second: bytes) -> tuple[Answer, Answer]:
    """One after the other on one connection; both are POST."""
    await client.send(first)
    one = await client.final("POST")
    await client.send(second)
    return one, await client.final("POST")


class Hop:
    """A way from a client to an agent: `door` of `node`, and what a call looks like there."""

    def __init__(self, inner: Mesh, name: str, node: Node, agent: Agent) -> None:
        self.inner, self.name, self.node, self.agent = inner, name, node, agent

    async def connect(self) -> Peer:
        return await self.inner.connect(self.node, "mesh" if self.name == "mesh" else "outbound")

    def call(self, path: str, *fields: str, body: bytes = b"") -> bytes:
        if self.name == "mesh":
            return self.inner.delivery(self.node, *fields, path=path, method="POST", body=body)
        target = f"{self.agent.url}{path}" if self.name == "egress" else f"/to/summarize{path}"
        return request(target, *fields, method="POST", body=body)


async def hop(inner: Mesh, name: str, script: Script | bytes = b"") -> Hop:
    if name == "egress":
        return Hop(inner, name, await inner.node("a"), await inner.agent(script))
    a, b = await inner.pair(script)
    return Hop(inner, name, b if name == "mesh" else a, b.agent)


def seen(asked: list[Asked]) -> list[tuple[str, bytes, list[str]]]:
    return [(one.target, one.body, one.all("Content-Length")) for one in asked]


@pytest.mark.parametrize("name", ["outbound", "mesh", "egress"])
async def test_a_body_stays_the_body_of_its_request(inner: Mesh, name: str) -> None:
    way = await hop(inner, name)
    length = [str(len(FORGED_CALL))]
    client = await way.connect()
    for named in ways(*FRAMING):
        way.agent.asked.clear()
        answers = await two_calls(client, way.call("/x", *named, *TYPED, body=FORGED_CALL), way.call("/next"))
        assert [(one.status, one.body) for one in answers] == [(200, b"done")] * 2, named
        assert seen(way.agent.asked) == [("/x", FORGED_CALL, length), ("/next", b"", ["0"])], named
        first = way.agent.asked[0]
        assert (first.one("Content-Type"), first.one("Content-Encoding")) == ("a/b", "x-own"), named
        assert len(first.all("Host")) == 1, named
        assert not first.all("X-Hop") + first.all("Transfer-Encoding"), named
        assert [one.all("Reach-Caller") for one in way.agent.asked] == [[] if name == "egress" else ["a"]] * 2, named


@pytest.mark.parametrize("name", ["outbound", "mesh", "egress"])
async def test_a_chunked_body_stays_one(inner: Mesh, name: str) -> None:
    way = await hop(inner, name)
    client = await way.connect()
    body = CHUNKED % (len(FORGED_CALL), FORGED_CALL)
    for named in ways(*FRAMING):
        way.agent.asked.clear()
        first = way.call("/x", "Transfer-Encoding: chunked", "Trailer: X-Sum", *named, body=body)
        answers = await two_calls(client, first, way.call("/next"))
        assert [one.status for one in answers] == [200, 200], named
        assert [(one.target, one.body) for one in way.agent.asked] == [("/x", FORGED_CALL), ("/next", b"")], named


async def test_a_forged_caller_is_not_heard(inner: Mesh) -> None:
    """The whole of it: neither the agent nor the logs of either side know of a second call."""
    a, b = await inner.pair()
    answer = await inner.ask(a, "/to/summarize/x", "Connection: keep-alive, Content-Length", body=FORGED_CALL)
    assert (answer.status, answer.header("Reach-Agent")) == (200, "b")
    await inner.idle()
    assert seen(b.agent.asked) == [("/x", FORGED_CALL, [str(len(FORGED_CALL))])]
    assert {line["caller"] for node in (a, b) for line in await node.log(event="call")} == {"a"}
    assert not await b.log(trace_id="0af7651916cd43dd8448eb211c80319c")


async def test_what_says_whose_call_it_is_cannot_be_named_away(inner: Mesh) -> None:
    a, b = await inner.pair()
    own = ("Idempotency-Key: own", "Reach-Session: s", "Reach-Timeout: 9s", "Reach-Retries-Left: 1",
           "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    named = "Connection: " + ", ".join(field.partition(":")[0] for field in own)
    assert (await inner.ask(a, "/to/summarize/x", named, *own, body=b"w")).status == 200
    reached = ("Reach-Caller", "Reach-Attempt", "Reach-Target", "Reach-Agent")
    assert (await inner.deliver(b, f"{named}, {', '.join(reached)}", "Reach-Attempt: 1", *own[1:], key="own2",
                                body=b"w")).status == 200
    for asked, key in zip(b.agent.asked, ("own", "own2"), strict=True):
        assert (asked.one("Idempotency-Key"), asked.one("Reach-Session"), asked.one("Reach-Caller")) == (key, "s", "a")
        assert asked.one("traceparent").split("-")[1] == "0af7651916cd43dd8448eb211c80319c"
        assert (asked.one("Reach-Retries-Left"), asked.one("Reach-Attempt")) == ("1", "1")
        assert 8000 < int(asked.one("Reach-Timeout").removesuffix("ms")) <= 9000


class Answers:
    """Says each of `answers` in turn, from the first again after the last."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = answers
        self._said = 0

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(self.answers[self._said % len(self.answers)])
        self._said += 1


async def answered_by(inner: Mesh, name: str, script: Script) -> Hop:
    """`agent` answers by its sidecar, `egress` as a host outside, `mesh` as the sidecar of another agent."""
    if name != "mesh":
        return await hop(inner, "egress" if name == "egress" else "outbound", script)
    a, b = await inner.pair()
    other = await inner.agent(script)
    a.learn(b.entry(address=f"127.0.0.1:{other.port}"))
    return Hop(inner, "outbound", a, other)


ANSWERERS = pytest.mark.parametrize("name", ["agent", "mesh", "egress"])


@ANSWERERS
async def test_a_body_stays_the_body_of_its_answer(inner: Mesh, name: str) -> None:
    """It comes whole, at once, and not as what the next call gets."""
    script = Answers()
    way = await answered_by(inner, name, script)
    client = await way.connect()
    for named in ways(*FRAMING):
        fields = [field.encode() for field in (*named, *TYPED, SIDECAR)]
        script.answers = (ok(FORGED_ANSWER, *fields), ok(b"the next", SIDECAR.encode()))
        async with asyncio.timeout(3):
            first, second = await two_calls(client, way.call("/x"), way.call("/next"))
        assert (first.status, first.body, first.whole) == (200, FORGED_ANSWER, True), named
        assert first.header("Content-Length") == str(len(FORGED_ANSWER)), named
        assert (first.header("Content-Type"), first.header("Content-Encoding")) == ("a/b", "x-own"), named
        assert first.header("X-Hop") is None, named
        assert (second.status, second.body) == (200, b"the next"), named


@ANSWERERS
async def test_a_chunked_answer_stays_one(inner: Mesh, name: str) -> None:
    script = Answers()
    way = await answered_by(inner, name, script)
    client = await way.connect()
    for named in ways(*FRAMING):
        head = "\r\n".join(["HTTP/1.1 200 OK", *named, SIDECAR, "Transfer-Encoding: chunked", "Trailer: X-Sum", "", ""])
        script.answers = (head.encode() + CHUNKED % (len(FORGED_ANSWER), FORGED_ANSWER), ok(b"the next", SIDECAR.encode()))
        async with asyncio.timeout(3):
            first, second = await two_calls(client, way.call("/x"), way.call("/next"))
        assert (first.status, first.body, first.whole) == (200, FORGED_ANSWER, True), named
        assert (second.status, second.body) == (200, b"the next"), named


@ANSWERERS
async def test_a_length_without_a_body_stays(inner: Mesh, name: str) -> None:
    """As the answer to HEAD has it."""
    way = await answered_by(inner, name, Answers(
        b"HTTP/1.1 200 OK\r\nConnection: Content-Length, Content-Type\r\n%b\r\nContent-Type: a/b\r\n"
        b"Content-Length: 9\r\n\r\n" % SIDECAR.encode()))
    target = f"{way.agent.url}/x" if name == "egress" else "/to/summarize/x"
    answer = await inner.ask(way.node, target, method="HEAD")
    assert (answer.status, answer.header("Content-Length"), answer.header("Content-Type")) == (200, "9", "a/b")
