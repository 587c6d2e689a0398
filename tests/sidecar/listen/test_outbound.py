"""The outbound door: four ways in, who may come in, and what goes elsewhere."""

import asyncio

import pytest
from harness.sidecars import Asked, Mesh, Node, ok, request, until
from sidecar.http1.raw import Answer

from reach_sidecar.config import ListenConfig


@pytest.mark.parametrize("raw", [
    request("/process?a=1", "Reach-Target: summarize"),
    request("/process?a=1", "reach-target: SUMMARIZE", host="anything.reach"),
    request("/process?a=1", "Reach-Target: @b"),
    request("http://summarize.reach/process?a=1", host="summarize.reach"),
    request("http://Summarize.Reach.:80/process?a=1", host="other.reach"),
    request("http://b.agent.reach/process?a=1"),
    request("/process?a=1", host="summarize.reach"),
    request("/process?a=1", host="SUMMARIZE.reach:7070"),
    request("/process?a=1", host="b.agent.reach"),
    request("/to/summarize/process?a=1"),
    request("/to/@b/process?a=1"),
    request("/to/summarize/process?a=1", host="localhost"),
    request("http://127.0.0.1:PORT/to/summarize/process?a=1"),
    request("http://localhost:PORT/process?a=1", "Reach-Target: summarize"),
    request("http://example.org/process?a=1", "Reach-Target: summarize"),
    request("/process?a=1", "Reach-Target: summarize", host="[::1]:PORT"),
], ids=lambda raw: raw.split(b"\r\n")[0].decode() + " " + raw.split(b"\r\n")[2].decode())
async def test_four_ways_same_result(inner: Mesh, raw: bytes) -> None:
    a, b = await inner.pair(ok(b"done"))
    answer = await inner.raw(a, raw.replace(b"PORT", str(a.port("outbound")).encode()))
    assert (answer.status, answer.body, answer.header("Reach-Agent")) == (200, b"done", "b")
    assert b.agent.last.target == "/process?a=1"
    assert b.agent.last.one("Host") == f"127.0.0.1:{b.agent.port}"
    assert "summarize" not in repr(b.agent.last.headers).lower()


async def test_asterisk_and_odd_methods(inner: Mesh) -> None:
    a, b = await inner.pair()
    assert (await inner.ask(a, "*", "Reach-Target: summarize", method="OPTIONS")).status == 200
    assert (b.agent.last.method, b.agent.last.target) == ("OPTIONS", "*")
    assert (await inner.ask(a, "*", method="OPTIONS")).code == "not_found"
    assert (await inner.ask(a, "/to/summarize/x", method="BREW")).status == 501
    for method in ("PATCH", "PROPFIND", "PURGE"):
        assert (await inner.ask(a, "/to/summarize/x", method=method)).status == 200
        assert b.agent.last.method == method


async def test_both_loopbacks(inner: Mesh) -> None:
    a, _ = await inner.pair()
    try:
        client = await inner.connect(a, host="::1")
    except OSError:
        pytest.skip("no IPv6 here")
    await client.send(request("/to/summarize/x", host=f"[::1]:{a.port('outbound')}"))
    assert (await client.final()).status == 200
    await client.send(request("/v1/self", host=f"[::1]:{a.port('outbound')}"))
    assert (await client.final()).status == 200


async def test_the_local_api_and_what_is_nowhere(inner: Mesh) -> None:
    a, _ = await inner.pair()
    assert (await inner.ask(a, "/v1/agents")).json["agents"][0]["agent_id"] == "b"
    assert (await inner.ask(a, f"http://127.0.0.1:{a.port('outbound')}/v1/agents")).status == 200
    nowhere = await inner.ask(a, "/process")
    assert (nowhere.status, nowhere.code, nowhere.json["executed"]) == (404, "not_found", "no")
    assert "/to/<capability>/" in nowhere.json["detail"]
    assert nowhere.header("Proxy-Status") == 'a; error=http_request_error; details="not_found"'
    assert nowhere.json["trace_id"] == nowhere.header("Reach-Trace-Id")
    traced = await inner.ask(a, "/process", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    assert traced.json["trace_id"] == "0af7651916cd43dd8448eb211c80319c"


# -- who may come in

DOOR: list[tuple[list[str], str | None, int]] = [
    ([], "127.0.0.1:7070", 200), ([], "127.8.9.1", 200), ([], "localhost", 200), ([], "LOCALHOST:1", 200),
    ([], "[::1]", 200), ([], "summarize.reach", 200),
    ([], "evil.example", 421), ([], "evil.example:7070", 421), ([], "127.0.0.1.evil.example", 421),
    ([], "10.0.0.1", 421), ([], "0.0.0.0", 421), ([], "2130706433", 421), ([], "reach", 421), ([], "[::2]", 421),
    ([], "summarize.reach.evil.example", 421), ([], "", 421),
    (["Origin: http://evil.example"], None, 403), (["Origin: null"], None, 403),
    (["Origin: http://127.0.0.1:7070"], None, 200), (["Origin: http://127.0.0.1:5173"], None, 403),
    (["Origin: http://localhost:3000"], None, 403), (["Origin: http://evil.localhost:9"], None, 403),
    (["Origin: http://localhost.evil.example"], None, 403),
    (["Sec-Fetch-Site: cross-site"], None, 403), (["Sec-Fetch-Site: CROSS-SITE"], None, 403),
    (["Sec-Fetch-Site: same-origin"], None, 200), (["Sec-Fetch-Site: none"], None, 200),
]


async def test_web_pages_stay_outside(inner: Mesh) -> None:
    a, b = await inner.pair()
    for lines, host, status in DOOR:
        for target in ("/to/summarize/x", "/v1/self"):
            if host == "summarize.reach" and target == "/v1/self":
                continue  # that is a call
            asked = len(b.agent.asked)
            name = b"127.0.0.1:7070" if host is None else host.encode()
            answer = await inner.raw(a, request(target, *lines).replace(b"Host: 127.0.0.1:7070", b"Host: " + name))
            assert answer.status == status, (lines, host, answer.body)
            if status != 200:
                assert answer.code == {421: "bad_host", 403: "not_allowed"}[status]
                assert answer.json["executed"] == "no"
                assert len(b.agent.asked) == asked


@pytest.mark.parametrize("lines", [["Reach-Target: summarize"], []])
async def test_naming_a_target_opens_no_door(inner: Mesh, lines: list[str]) -> None:
    """A rebound name in Host and a page of another origin are refused whatever they ask for."""
    a, b = await inner.pair()
    for raw in (request("/to/summarize/x", *lines, host="evil.example"),
                request("/to/summarize/x", *lines, "Origin: http://evil.example"),
                request("http://summarize.reach/x", *lines, "Origin: http://evil.example"),
                request("http://summarize.reach/x", *lines, "Sec-Fetch-Site: cross-site"),
                request("/x", *lines, "Origin: http://evil.example", host="summarize.reach")):
        assert (await inner.raw(a, raw)).status in (403, 421)
    assert not b.agent.asked


async def test_hosts_and_origins_that_are_allowed(inner: Mesh) -> None:
    a = await inner.node("a", allowed_hosts=["host.docker.internal"], allowed_origins=["https://app.example"])
    await inner.node("b", ok(), "summarize")
    inner.share()
    for host, lines, status in (("host.docker.internal:7070", [], 200), ("Host.Docker.Internal", [], 200),
                                ("other.internal", [], 421),
                                ("localhost", ["Origin: https://app.example"], 200),
                                ("localhost", ["Origin: https://app.example", "Sec-Fetch-Site: cross-site"], 200),
                                ("localhost", ["Origin: http://app.example"], 403)):
        assert (await inner.ask(a, "/to/summarize/x", *lines, host=host)).status == status


@pytest.mark.parametrize("line", ["Reach-Api-Token: s3cret", "Proxy-Authorization: Bearer s3cret",
                                  "Proxy-Authorization: Basic czNjcmV0Og==", "Proxy-Authorization: basic OnMzY3JldA==",
                                  "Proxy-Authorization: Basic cmVhY2g6czNjcmV0"])
async def test_a_token_that_fits(inner: Mesh, line: str) -> None:
    """Proxy clients send `http://token@host` or `http://user:token@host` as Basic."""
    a, b = await token_asked(inner)
    for target in ("/to/summarize/x", "http://summarize.reach/x", "/v1/self"):
        assert (await inner.ask(a, target, line)).status == 200
    assert "s3cret" not in repr([got.headers for got in b.agent.asked]), "it is ours and not the agent's"
    assert not any("authorization" in name.lower() for got in b.agent.asked for name, _ in got.headers)


@pytest.mark.parametrize("line", ["X: 1", "Reach-Api-Token: ", "Reach-Api-Token: s3cre", "Reach-Api-Token: s3cret2",
                                  "Proxy-Authorization: s3cret", "Proxy-Authorization: Bearer no",
                                  "Proxy-Authorization: Basic s3cret", "Proxy-Authorization: Basic %%%",
                                  "Authorization: Bearer s3cret", "Reach-Api-Token: \xe9"])
async def test_a_token_that_does_not(inner: Mesh, line: str) -> None:
    a, b = await token_asked(inner)
    for target in ("/to/summarize/x", "http://summarize.reach/x", "/v1/self", "http://127.0.0.1:9/x"):
        answer = await inner.ask(a, target, line)
        assert (answer.status, answer.code) == (403, "not_allowed")
        assert "s3cret" not in answer.body.decode()
    assert not b.agent.asked


async def token_asked(inner: Mesh) -> tuple[Node, Node]:
    a = await inner.node("a", env={"REACH_API_TOKEN": "s3cret"})
    b = await inner.node("b", ok(), "summarize")
    inner.share()
    return a, b


# -- CONNECT

async def connected(inner: Mesh, a: Node, authority: str, *lines: str) -> tuple[object, Answer]:
    client = await inner.connect(a)
    await client.send(request(authority, *lines, method="CONNECT", host=authority))
    answer = await client.answer("CONNECT")
    assert answer is not None
    return client, answer


async def test_connect_to_a_name_of_ours_and_then_http(inner: Mesh) -> None:
    """Several requests inside, as a client that keeps the connection sends them."""
    a, b = await inner.pair()
    client, answer = await connected(inner, a, "summarize.reach:80")
    assert answer.status == 200
    assert answer.header("Content-Length") is None
    for number in range(3):
        await client.send(request(f"/x?n={number}", host="summarize.reach", method="POST", body=b"hi"))  # type: ignore[attr-defined]
        inside = await client.final()  # type: ignore[attr-defined]
        assert (inside.status, inside.header("Reach-Agent")) == (200, "b")
        assert (b.agent.last.target, b.agent.last.body) == (f"/x?n={number}", b"hi")
    await client.send(request("/y", "Reach-Target: @b"))  # type: ignore[attr-defined]
    assert (await client.final()).status == 200  # type: ignore[attr-defined]
    assert len(b.agent.asked) == 4
    await inner.idle()


async def test_connect_names_the_target_whatever_host_says_inside(inner: Mesh) -> None:
    a, b = await inner.pair()
    client, _ = await connected(inner, a, "b.agent.reach:80")
    await client.send(request("/x", host="evil.example"))  # type: ignore[attr-defined]
    assert (await client.final()).status == 200  # type: ignore[attr-defined]
    assert b.agent.last.target == "/x"


async def test_a_websocket_inside_connect(inner: Mesh) -> None:
    async def echoes(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        while data := await asked.reader.read(100):
            writer.write(data)
        writer.close()

    a, _ = await inner.pair(echoes)
    client, _ = await connected(inner, a, "summarize.reach:80")
    await client.send(request("/ws", "Connection: Upgrade", "Upgrade: websocket"))  # type: ignore[attr-defined]
    answer = await client.answer()  # type: ignore[attr-defined]
    assert answer.status == 101
    await client.send(b"\x81\x02hi")  # type: ignore[attr-defined]
    async with asyncio.timeout(5):
        assert await client.reader.readexactly(4) == b"\x81\x02hi"  # type: ignore[attr-defined]
    client.half_close()  # type: ignore[attr-defined]
    await inner.idle()


@pytest.mark.parametrize(("authority", "status", "code", "hint"), [
    ("summarize.reach:443", 400, "bad_request", "http://"), ("b.agent.reach:443", 400, "bad_request", "http://"),
    (".reach:80", 400, "bad_request", ""), ("summarize.reach", 400, "bad_request", ""),
    ("summarize.reach:0", 400, "bad_request", ""), ("summarize.reach:99999", 400, "bad_request", ""),
])
async def test_connect_that_cannot_be(inner: Mesh, authority: str, status: int, code: str, hint: str) -> None:
    a, _ = await inner.pair()
    client = await inner.connect(a)
    await client.send(request(authority, method="CONNECT", host=authority))
    answer = await client.final()
    assert (answer.status, answer.code) == (status, code)
    assert hint in answer.json["detail"]


async def test_a_token_given_to_connect_counts_inside(inner: Mesh) -> None:
    """A WebSocket client authorises itself to its proxy once."""
    a, b = await token_asked(inner)
    client, answer = await connected(inner, a, "summarize.reach:80", "Proxy-Authorization: Bearer s3cret")
    assert answer.status == 200
    await client.send(request("/x", host="summarize.reach"))  # type: ignore[attr-defined]
    assert (await client.final()).status == 200  # type: ignore[attr-defined]
    _, answer = await connected(inner, a, "summarize.reach:80")
    assert answer.status == 403
    assert len(b.agent.asked) == 1


async def test_beyond_loopback_any_address_is_a_host_and_egress_is_off(inner: Mesh) -> None:
    a = await inner.node("a", insecure=True, listen=ListenConfig(
        outbound="0.0.0.0:0", mesh="127.0.0.1:0", admin="127.0.0.1:0"))
    outside = await inner.agent(ok())
    await inner.node("b", ok(), "summarize")
    inner.share()
    assert (await inner.ask(a, "/to/summarize/x", host="192.168.7.7:7070")).status == 200
    assert (await inner.ask(a, "/to/summarize/x", host="evil.example")).status == 421
    answer = await inner.ask(a, f"{outside.url}/x")
    assert (answer.status, answer.code) == (403, "not_allowed")
    assert not outside.asked


async def test_a_page_in_an_agents_browser_may_go_outside(inner: Mesh) -> None:
    """Egress is for the agent's own clients; a browser among them sends Origin to whomever it calls."""
    a = await inner.node("a")
    outside = await inner.agent(ok(b"out"))
    answer = await inner.ask(a, f"{outside.url}/x", "Origin: http://site.example", "Sec-Fetch-Site: cross-site")
    assert (answer.status, answer.body) == (200, b"out")
    assert outside.last.one("Origin") == "http://site.example"


async def test_the_local_apis_own_calls(inner: Mesh) -> None:
    a, b = await inner.pair(ok(b'{"x": 1}', b"Content-Type: application/json"))
    answer = await inner.ask(a, "/tasks/run", "Content-Type: application/json",
                             body=b'{"capability": "summarize", "task": "t"}')
    assert (answer.status, answer.json) == (200, {"x": 1})
    assert b.agent.last.target == "/process"
    await until(lambda: not any(a.slots().values()))
