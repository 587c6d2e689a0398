"""The design's table "Errors" (§2): each code with its cause, over real sockets, and what every problem says of itself."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest
from harness.delivery import Gate, in_turn, under_way
from harness.sidecars import Asked, Mesh, Node, Script, hangs, hangs_up, ok, until
from sidecar.http1.raw import Answer

from reach_sidecar.config import CapabilityConfig, DedupConfig

Cause = Callable[[Mesh], Awaitable[Answer]]
CAPABILITY = "/to/summarize/x"
LONG = b"x" * ((256 << 10) + 1)  # a body that is not looked into
NOT_DONE = b"HTTP/1.1 503 No\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
EVENTS = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
          b"9\r\ndata: 1\n\n\r\n0\r\n\r\n")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off of 10 to 20 ms and a doubling."""
    monkeypatch.setattr("reach_sidecar.policy.backoff.FIRST_S", 0.01)
    monkeypatch.setattr("reach_sidecar.policy.backoff.JITTER_S", 0.01)


# -- what leads to them


def asks(target: str = CAPABILITY, *fields: str, script: Script | bytes = b"", body: bytes | None = b"work",
         host: str | None = None, repeat: int = 1, **declared: object) -> Cause:
    """A call to an agent that does `script`; the answer to the last of `repeat`."""

    async def cause(inner: Mesh) -> Answer:
        a, _ = await pair(inner, script, **declared)
        for _ in range(repeat - 1):
            await inner.ask(a, target, *fields, body=body, host=host)
        return await inner.ask(a, target, *fields, body=body, host=host)

    return cause


async def pair(inner: Mesh, script: Script | bytes, **declared: object) -> tuple[Node, Node]:
    capability = CapabilityConfig(name="summarize", **declared)  # type: ignore[arg-type]
    return await inner.pair(script, capability)


def outcome(word: str, answer: bytes = b"no paper", *fields: str) -> bytes:
    return ok(answer, f"Reach-Outcome: {word}".encode(), *(field.encode() for field in fields))


async def draining(inner: Mesh) -> Answer:
    a, b = await inner.pair()
    a.learn(b.entry(flags=("draining",)))
    return await inner.ask(a, CAPABILITY, body=b"work")


async def all_busy(inner: Mesh) -> Answer:
    a, b = await inner.pair(hangs, agent={"max_concurrency": 1, "queue": 0})
    await under_way(inner, a, b, CAPABILITY)
    return await inner.ask(a, CAPABILITY, body=b"work")


async def too_short(inner: Mesh) -> Answer:
    """Nobody ever answered in the time that is left."""
    async def takes_its_time(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        writer.write(ok())

    a, b = await inner.pair(takes_its_time)
    await asyncio.gather(*(inner.ask(a, CAPABILITY, body=b"work") for _ in range(10)))
    answer = await inner.ask(a, CAPABILITY, "Reach-Timeout: 50ms", body=b"work")
    assert len(b.agent.asked) == 10, "it was not sent"
    return answer


async def other_request(inner: Mesh) -> Answer:
    a, b = await inner.pair()
    await inner.ask(a, CAPABILITY, "Idempotency-Key: k", body=b"work")
    answer = await inner.ask(a, CAPABILITY, "Idempotency-Key: k", body=b"other work")
    assert len(b.agent.asked) == 1
    return answer


async def still_running(inner: Mesh) -> Answer:
    """A repeat of a long request cannot be told from another one of that length, so it does not join."""
    a, b = await inner.pair(hangs)
    await under_way(inner, a, b, CAPABILITY, "Idempotency-Key: k", body=LONG)
    answer = await inner.ask(a, CAPABILITY, "Idempotency-Key: k", body=LONG)
    assert len(b.agent.asked) == 1
    return answer


async def store_is_full(inner: Mesh) -> Answer:
    """It never forgets early: what was promised to be kept is kept, and the next call is refused."""
    a = await inner.node("a")
    b = await inner.node("b", ok(b"x" * 200_000), "summarize", dedup=DedupConfig(memory=1 << 20))
    inner.share()
    for number in range(8):
        answer = await inner.ask(a, CAPABILITY, f"Idempotency-Key: k{number}", body=b"work")
        if answer.status != 200:
            break
    ran = len(b.agent.asked)
    assert 3 <= ran < 8
    again = await inner.ask(a, CAPABILITY, "Idempotency-Key: k0", body=b"work")
    assert (again.status, len(again.body), len(b.agent.asked)) == (200, 200_000, ran)
    return answer


async def not_allowed_by_the_called_side(inner: Mesh) -> Answer:
    a, b = await inner.pair()
    other = await inner.agent(b"HTTP/1.1 403 No\r\nReach-Refused: not_allowed\r\nContent-Length: 0\r\n\r\n")
    a.learn(b.entry(address=f"127.0.0.1:{other.port}"))
    return await inner.ask(a, CAPABILITY, body=b"work")


# -- the table: code, cause, status, executed, Retry-After, the agent that is named

TABLE: list[tuple[str, Cause, int, str, bool, str | None]] = [
    ("bad_request", asks(CAPABILITY, "Reach-Timeout: soon"), 400, "no", False, None),
    ("bad_request", asks(CAPABILITY, "Reach-Require: >=3"), 400, "no", False, None),
    ("header_too_large", asks(CAPABILITY, *[f"X-{n}: {'x' * 9000}" for n in range(8)]), 431, "no", False, None),
    ("uri_too_long", asks("/to/summarize/" + "x" * 17_000), 414, "no", False, None),
    ("body_too_large", asks("/agents/register", body=b'{"agent_id": "' + b"x" * (2 << 20)), 413, "no", False, None),
    ("bad_host", asks("/v1/self", host="rebound.example", body=None), 421, "no", False, None),
    ("no_such_capability", asks("/to/sumarize/x"), 404, "no", False, None),
    ("no_such_agent", asks("/to/@c/x"), 404, "no", False, None),
    ("no_agent_available", draining, 503, "no", True, None),
    ("no_agent_available", asks(CAPABILITY, "Reach-Require: language=zh"), 503, "no", True, None),
    ("backpressure", all_busy, 503, "no", True, None),
    ("breaker_open", asks(script=hangs_up, repeat=11), 503, "no", True, None),
    ("deadline_too_short", too_short, 504, "no", False, None),
    ("deadline_exceeded", asks(CAPABILITY, "Reach-Timeout: 150ms", script=hangs), 504, "unknown", False, "b"),
    ("deadline_exceeded", asks(script=hangs, timeout=0.1), 504, "unknown", False, "b"),
    ("retries_exhausted", asks(script=NOT_DONE), 502, "no", False, "b"),
    ("retries_exhausted", asks(script=in_turn(hangs_up, NOT_DONE), idempotent=True), 502, "unknown", False, "b"),
    ("outcome_unknown", asks(script=hangs_up), 502, "unknown", False, "b"),
    ("agent_failure", asks(script=outcome("failure")), 502, "yes", False, "b"),
    ("agent_invalid_request", asks(script=outcome("invalid_request")), 422, "yes", False, "b"),
    ("bad_agent_response", asks(script=b"what?\r\n\r\n"), 502, "unknown", False, "b"),
    ("key_reused", other_request, 422, "no", False, "b"),
    ("in_progress", still_running, 409, "unknown", False, "b"),
    ("answer_not_kept", asks(CAPABILITY, "Idempotency-Key: k", script=EVENTS, repeat=2), 409, "yes", False, "b"),
    ("store_unavailable", store_is_full, 503, "no", True, "b"),
    ("not_allowed", not_allowed_by_the_called_side, 403, "no", False, "b"),
    ("not_allowed", asks("/v1/self", "Origin: http://elsewhere.example", body=None), 403, "no", False, None),
]


@pytest.mark.parametrize(("code", "cause", "status", "executed", "retry_after", "agent"), TABLE,
                         ids=[f"{number}-{row[0]}" for number, row in enumerate(TABLE)])
async def test_errors(inner: Mesh, code: str, cause: Cause, status: int, executed: str, retry_after: bool,
                      agent: str | None) -> None:
    answer = await cause(inner)
    document = answer.json
    assert (document["type"], answer.status, document["executed"]) == (f"urn:reach:{code}", status, executed), document
    assert answer.header("Content-Type") == "application/problem+json"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"].endswith((".", "?")), "a sentence"
    assert document["agent"] == agent
    assert all(set(one) == {"agent", "result", "ms"} for one in document["attempts"])
    assert document["trace_id"] == answer.header("Reach-Trace-Id")
    assert re.fullmatch("[0-9a-f]{32}", document["trace_id"])
    # RFC 9209: who says it; one of the registered error types; our own word
    assert re.fullmatch(rf'"?[\w.-]+"?; error=[a-z_]+; details="{code}"', answer.header("Proxy-Status") or "")
    waits = answer.header("Retry-After")
    assert (waits is not None) == retry_after
    assert waits is None or int(waits) >= 1


# -- what some of them say besides


async def test_near_names_are_said(inner: Mesh) -> None:
    assert "summarize" in (await asks("/to/sumarize/x")(inner)).json["detail"]


async def test_the_same_words_in_another_order_are_pointed_at(inner: Mesh) -> None:
    """Not matched; the 404 points at them and proposes the alias."""
    a = await inner.node("a")
    b = await inner.node("b", ok(), "message.push")
    inner.share()
    answer = await inner.ask(a, "/to/push.message/x", body=b"work")
    assert (answer.code, len(b.agent.asked)) == ("no_such_capability", 0)
    assert "message.push" in answer.json["detail"]
    assert "alias" in answer.json["detail"]


async def test_nobody_available_says_why_for_each(inner: Mesh) -> None:
    a = await inner.node("a")
    attributes = [{"language": ["zh"]}, {"language": ["zh"]}, {"language": ["en"]}]
    nodes = [await inner.node(f"b{number}", ok(), CapabilityConfig(name="summarize", attributes=these))
             for number, these in enumerate(attributes)]
    inner.share()
    a.learn(nodes[0].entry(flags=("draining",)), nodes[1].entry(flags=("unfit",)))
    answer = await inner.ask(a, CAPABILITY, "Reach-Require: language=zh", body=b"work")
    assert answer.code == "no_agent_available"
    parts = re.findall(r"(b\d): ([^;]+)", answer.json["detail"])
    assert sorted(name for name, _ in parts) == ["b0", "b1", "b2"]
    assert len({why for _, why in parts}) == 3
    assert "language=zh" in dict(parts)["b2"]


JSON_FIELD = "Content-Type: application/json"


@pytest.mark.parametrize(("script", "outcome_in", "status", "body"), [
    (outcome("failure"), "header", 200, "no paper"),
    (outcome("failure", b'{"why": "no paper"}', JSON_FIELD), "header", 200, {"why": "no paper"}),
    (ok(b'{"status": "failure", "why": "no paper"}', JSON_FIELD.encode()), "json", 200,
     {"status": "failure", "why": "no paper"}),
    (ok(b'{"success": false}', JSON_FIELD.encode()).replace(b"200 OK", b"201 Made"), "json", 201, {"success": False}),
])
async def test_a_failure_shows_the_agents_own_answer(inner: Mesh, script: bytes, outcome_in: str, status: int,
                                                     body: object) -> None:
    answer = await asks(script=script, outcome=outcome_in)(inner)
    assert (answer.code, answer.json["answer"]) == ("agent_failure", {"status": status, "body": body})
    assert [one["result"] for one in answer.json["attempts"]] == ["failure"]


@pytest.mark.parametrize(("body", "kind", "fails"), [
    (b'{"status": "success", "success": false}', "application/json", False),  # the finer word wins
    (b'{"result": 1}', "application/json", False),  # a missing field is success
    (b'{"success": true}', "application/json; charset=utf-8", False),
    (b'{"success": false}', "application/problem+json", True),
    (b'{"success": false}', "text/plain", False),
    (b'{"success": false', "application/json", False),
    (b'{"success": false, "more": "' + b"x" * (1 << 20) + b'"}', "application/json", False),  # longer than 1 MiB
])
async def test_the_outcome_in_json(inner: Mesh, body: bytes, kind: str, fails: bool) -> None:
    answer = await asks(script=ok(body, f"Content-Type: {kind}".encode()), outcome="json")(inner)
    assert answer.code == ("agent_failure" if fails else None)
    assert fails or answer.body == body


async def test_json_is_not_looked_into_where_the_status_says_enough(inner: Mesh) -> None:
    error = ok(b'{"success": true}', JSON_FIELD.encode()).replace(b"200 OK", b"500 No")
    answer = await asks(script=error, outcome="json", idempotent=True)(inner)
    assert (answer.code, answer.json["answer"]["status"]) == ("retries_exhausted", 500)


@pytest.mark.parametrize("pause_s", [0.0, 0.02])
async def test_json_without_a_length_is_not_looked_into(inner: Mesh, pause_s: float) -> None:
    """Whether it comes in one piece or in several."""
    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\n{JSON_FIELD}\r\nTransfer-Encoding: chunked\r\n\r\n"
        for piece in (head.encode(), b'12\r\n{"success": false}\r\n', b"0\r\n\r\n"):
            writer.write(piece)
            if pause_s:
                await asyncio.sleep(pause_s)

    answer = await asks(script=script, outcome="json")(inner)
    assert (answer.status, answer.body) == (200, b'{"success": false}')


async def test_json_is_not_looked_into_unless_it_is_declared(inner: Mesh) -> None:
    answer = await asks(script=ok(b'{"success": false}', JSON_FIELD.encode()))(inner)
    assert (answer.status, answer.body) == (200, b'{"success": false}')


async def test_an_agent_cannot_pretend_to_be_refused(inner: Mesh) -> None:
    """Only a sidecar says `Reach-Refused`: an agent's own field is taken away, and its answer is an answer."""
    a, b = await pair(inner, ok(b"done", b"Reach-Refused: busy", b"Reach-Load: 0"))
    answer = await inner.ask(a, CAPABILITY, body=b"work")
    assert (answer.status, answer.body, answer.header("Reach-Refused")) == (200, b"done", None)
    assert len(b.agent.asked) == 1


SPOKEN_BETWEEN_SIDECARS = ("Reach-Refused", "Reach-Load", "Reach-Journal", "Reach-Scope", "Reach-Fault")


@pytest.mark.parametrize("dedup", ["off", "memory", "durable"])
async def test_what_is_between_sidecars_stays_there(inner: Mesh, dedup: str) -> None:
    """Neither agent sees it, and neither can say it: not in a call, in an answer, in a repeat, nor in a problem."""
    lies = [f"{name}: 1" for name in SPOKEN_BETWEEN_SIDECARS]
    fields = [*lies, "Reach-Caller: somebody", "Reach-Attempt: 7", "Authorization: Bearer one"]
    script = in_turn(ok(b"done", *(lie.encode() for lie in lies)), ok(), hangs_up)
    a, b = await pair(inner, script, dedup=dedup)
    for key in ("k", "k", "l", "m"):
        answer = await inner.ask(a, CAPABILITY, f"Idempotency-Key: {key}", *fields, body=b"work")
        assert [name for name in SPOKEN_BETWEEN_SIDECARS if answer.header(name)] == []
    for asked in b.agent.asked:
        assert [name for name in SPOKEN_BETWEEN_SIDECARS if asked.all(name)] == []
        assert (asked.all("Reach-Caller"), asked.all("Reach-Attempt")) == (["a"], ["1"])


async def test_a_busy_agent_is_no_longer_so(inner: Mesh) -> None:
    """What was refused may simply be sent again."""
    gate = Gate()
    a, b = await inner.pair(in_turn(gate, ok()), agent={"max_concurrency": 1, "queue": 0})
    first = await under_way(inner, a, b, CAPABILITY)
    assert (await inner.ask(a, CAPABILITY, "Idempotency-Key: k", body=b"work")).code == "backpressure"
    gate.open()
    await first
    await until(lambda: b.sidecar.local.running == 0)
    await asyncio.sleep(0.3)  # as long as it is believed to be full
    assert (await inner.ask(a, CAPABILITY, "Idempotency-Key: k", body=b"work")).status == 200
