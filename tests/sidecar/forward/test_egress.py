"""Calls to hosts outside the mesh: forwarded untouched, and never back to where they could do harm."""

import asyncio
import contextlib
import socket

import pytest
from harness.sidecars import Agent, Asked, Mesh, Node, closed_port, ok, request
from sidecar.http1.raw import Answer

from reach_sidecar.forward.route import Upstream


async def out(inner: Mesh, *, env: dict[str, str] | None = None) -> tuple[Node, Agent]:
    """A sidecar, and a server that has nothing to do with it."""
    return await inner.node("a", env=env), await inner.agent(ok(b"outside", b"X-Mine: 1"))


async def test_forwarded_untouched(inner: Mesh) -> None:
    a, outside = await out(inner)
    answer = await inner.ask(a, f"{outside.url}/x//y?z=%2F", "accept: 1", "X-Thing: 2", "x-thing: 3",
                             "Connection: X-Hop", "X-Hop: 1", "Proxy-Authorization: Basic eDp5", "Authorization: mine",
                             "traceparent: odd", "Reach-Timeout: odd", body=b"hello", host="whatever")
    assert (answer.status, answer.body, answer.header("X-Mine")) == (200, b"outside", "1")
    got = outside.last
    assert (got.method, got.target, got.body) == ("POST", "/x//y?z=%2F", b"hello")
    assert got.headers == [("Host", f"127.0.0.1:{outside.port}"), ("accept", "1"), ("X-Thing", "2"), ("x-thing", "3"),
                           ("Authorization", "mine"), ("traceparent", "odd"), ("Reach-Timeout", "odd"),
                           ("Content-Length", "5")]
    assert not any(name.lower().startswith("reach-") for name, _ in answer.headers)
    [line] = await a.log(event="egress")
    assert (line["target"], line["status"], line["method"]) == (f"127.0.0.1:{outside.port}", 200, "POST")


async def test_the_sidecars_token_stays_here(inner: Mesh) -> None:
    a, outside = await out(inner, env={"REACH_API_TOKEN": "s3cret"})
    assert (await inner.ask(a, f"{outside.url}/x", "Reach-Api-Token: s3cret")).status == 200
    assert (await inner.ask(a, f"{outside.url}/x", "Proxy-Authorization: Bearer s3cret")).status == 200
    assert "s3cret" not in repr([got.headers for got in outside.asked])


async def test_streams_both_ways(inner: Mesh) -> None:
    async def echo(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\nX-T: 1\r\n\r\n"
                     % (len(asked.body), asked.body))

    a = await inner.node("a")
    outside = await inner.agent(echo)
    data = b"x" * 500_000
    answer = await inner.ask(a, f"{outside.url}/", "Transfer-Encoding: chunked",
                             body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
    assert (answer.body, answer.trailers) == (data, [("X-T", "1")])


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "[::ffff:127.0.0.1]"])
async def test_every_address_of_a_name_is_tried(inner: Mesh, host: str) -> None:
    """`localhost` is ::1 and 127.0.0.1, and most servers listen on one of them."""
    a, outside = await out(inner)
    assert (await inner.ask(a, f"http://{host}:{outside.port}/x")).body == b"outside"


OWN = ["127.0.0.1", "127.1", "127.0.0.2", "localhost", "0.0.0.0", "0", "2130706433", "0x7f000001", "017700000001",
       "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]", "localhost."]


@pytest.mark.parametrize("door", ["outbound", "mesh", "admin"])
async def test_never_to_the_sidecars_own_listeners(inner: Mesh, door: str) -> None:
    a, _ = await out(inner)
    for host in OWN:
        if door == "outbound" and host in ("127.0.0.1", "127.0.0.2", "localhost", "[::1]", "127.1",
                                               "[0:0:0:0:0:0:0:1]", "localhost."):
            continue  # a client that sends even loopback through its proxy means this door
        answer = await inner.ask(a, f"http://{host}:{a.port(door)}/v1/drain", method="POST", body=b"")
        assert (answer.status, answer.code) in [(403, "not_allowed"), (502, "bad_gateway")], host
        client = await inner.connect(a)
        await client.send(request(f"{host}:{a.port(door)}", method="CONNECT", host=f"{host}:1"))
        answer = await client.final()
        assert answer.status in (403, 502, 400), host
    assert not a.sidecar.local.draining


async def test_nor_by_this_machines_other_addresses(inner: Mesh) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect(("192.0.2.1", 9))
        address = probe.getsockname()[0]
    if address in ("0.0.0.0", "127.0.0.1"):
        pytest.skip("this machine has no other address")
    a, _ = await out(inner)
    answer = await inner.ask(a, f"http://{address}:{a.port('admin')}/v1/self")
    assert (answer.status, answer.code) == (403, "not_allowed")


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "2852039166", "224.0.0.1",
                                  "[ff02::1]", "0xa9fea9fe", "[::ffff:a9fe:a9fe]"])
async def test_never_to_where_clouds_serve_credentials(inner: Mesh, host: str) -> None:
    for env in ({}, {"http_proxy": f"http://127.0.0.1:{closed_port()}"}):
        a = await inner.node(f"a{len(env)}", env=env)
        answer = await inner.ask(a, f"http://{host}/latest/meta-data")
        assert (answer.status, answer.code, answer.json["executed"]) == (403, "not_allowed", "no")
        [line] = await a.log(event="egress")
        assert line["status"] == 403


async def test_mesh_only(inner: Mesh) -> None:
    a = await inner.node("a", egress="mesh-only")
    b = await inner.node("b", ok(), "summarize")
    outside = await inner.agent(ok())
    inner.share()
    for target, method in ((f"{outside.url}/x", "GET"), (f"127.0.0.1:{outside.port}", "CONNECT")):
        answer = await inner.raw(a, request(target, method=method))
        assert (answer.status, answer.code) == (403, "not_allowed")
        assert "mesh-only" in answer.json["detail"]
    assert not outside.asked
    assert (await inner.ask(a, "http://summarize.reach/x")).status == 200
    assert len(b.agent.asked) == 1


@pytest.mark.parametrize(("host", "status", "code"), [
    ("no-such-host.invalid", 502, "bad_gateway"), ("a..b", 502, "bad_gateway"), ("x" * 70, 502, "bad_gateway"),
    ("127.0.0.1:0", 400, "bad_request"), ("127.0.0.1:99999", 400, "bad_request"),
])
async def test_hosts_that_are_none(inner: Mesh, host: str, status: int, code: str) -> None:
    a, _ = await out(inner)
    answer = await inner.ask(a, f"http://{host}/")
    assert (answer.status, answer.code) == (status, code), answer.body
    assert not await a.log(event="defect")


async def test_nobody_there(inner: Mesh) -> None:
    a, _ = await out(inner)
    answer = await inner.ask(a, f"http://127.0.0.1:{closed_port()}/")
    assert (answer.status, answer.code, answer.json["executed"]) == (502, "bad_gateway", "no")


@pytest.mark.parametrize(("reply", "code"), [(b"nonsense\r\n\r\n", "bad_agent_response"), (b"", "outcome_unknown")])
async def test_answers_that_are_none(inner: Mesh, reply: bytes, code: str) -> None:
    async def says(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        writer.close()

    a = await inner.node("a")
    outside = await inner.agent(says)
    answer = await inner.ask(a, f"{outside.url}/x", body=b"x")
    assert (answer.status, answer.code, answer.json["executed"]) == (502, code, "unknown")


async def test_a_request_that_breaks_off(inner: Mesh) -> None:
    a, outside = await out(inner)
    answer = await inner.ask(a, f"{outside.url}/x", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\nzz\r\n")
    assert (answer.status, answer.code) == (400, "bad_request")


async def test_connect_tunnels_bytes(inner: Mesh) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data.upper())
        writer.write(b"bye")
        writer.close()

    a = await inner.node("a")
    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    client = await inner.connect(a)
    await client.send(request(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", method="CONNECT") + b"early")
    answer = await client.answer("CONNECT")
    assert answer is not None
    assert (answer.status, answer.reason) == (200, "Connection established")
    async with asyncio.timeout(5):
        assert await client.reader.readexactly(5) == b"EARLY"
        await client.send(b"\x16\x03\x01\x00")
        assert await client.reader.readexactly(4) == b"\x16\x03\x01\x00"
        client.half_close()
        assert await client.reader.read() == b"bye"
    server.close()


# -- the next proxy

class NextProxy:
    """Notes what it is asked, answers itself; joins what a CONNECT asks for to an echo."""

    def __init__(self, refuse: bool = False) -> None:
        self.refuse = refuse

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.method != "CONNECT":
            writer.write(ok(b"by proxy"))
        elif self.refuse:
            writer.write(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while data := await asked.reader.read(100):
                writer.write(data)
            writer.close()


async def chained(inner: Mesh, proxy: NextProxy, no_proxy: str = "", user: str = "") -> tuple[Node, Agent]:
    agent = await inner.agent(proxy)
    env = {"http_proxy": f"http://{user}127.0.0.1:{agent.port}/", "no_proxy": no_proxy}
    return await inner.node("a", env=env), agent


async def test_an_inherited_proxy_is_chained(inner: Mesh) -> None:
    a, proxy = await chained(inner, NextProxy(), user="joe:s%40cret@")
    answer = await inner.ask(a, "http://example.invalid:81/x?y", "Proxy-Authorization: Basic bm8=")
    assert (answer.status, answer.body) == (200, b"by proxy")
    assert proxy.last.target == "http://example.invalid:81/x?y"
    assert proxy.last.one("Host") == "example.invalid:81"
    assert proxy.last.one("Proxy-Authorization") == "Basic am9lOnNAY3JldA=="
    assert "cret" not in repr(await a.log())


async def test_no_proxy_is_heeded(inner: Mesh) -> None:
    a, proxy = await chained(inner, NextProxy(), no_proxy="example.org, 127.0.0.1")
    outside = await inner.agent(ok(b"direct"))
    assert (await inner.ask(a, f"{outside.url}/x")).body == b"direct"
    assert not proxy.asked


@pytest.mark.parametrize("refuse", [False, True])
async def test_connect_through_the_next_proxy(inner: Mesh, refuse: bool) -> None:
    a, proxy = await chained(inner, NextProxy(refuse), user="joe:x@")
    client = await inner.connect(a)
    await client.send(request("example.invalid:443", method="CONNECT"))
    if refuse:
        answer: Answer = await client.final()
        assert (answer.status, answer.code) == (502, "bad_gateway")
        assert "407" in answer.json["detail"]
        return
    assert (await client.final("CONNECT")).status == 200
    assert (proxy.last.target, proxy.last.one("Proxy-Authorization")) == ("example.invalid:443", "Basic am9lOng=")
    await client.send(b"hello")
    async with asyncio.timeout(5):
        assert await client.reader.readexactly(5) == b"hello"
    client.half_close()


async def test_no_way_round_by_the_next_proxy(inner: Mesh) -> None:
    """It may run on this machine and would forward what this sidecar must not."""
    a, proxy = await chained(inner, NextProxy())
    for host in ("127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"):
        answer = await inner.ask(a, f"http://{host}:{a.port('admin')}/v1/drain", method="POST", body=b"")
        assert (answer.status, answer.code) == (403, "not_allowed")
    assert not proxy.asked


async def test_a_proxy_that_is_this_sidecar_itself(inner: Mesh) -> None:
    """Exported in the shell that starts it: calls must not go round for ever."""
    a, outside = await out(inner)
    a.sidecar.egress._routes.upstream = Upstream("127.0.0.1", a.port("outbound"))
    assert (await inner.ask(a, f"{outside.url}/x")).body == b"outside"


async def test_many_hosts_do_not_pile_up(inner: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reach_sidecar.forward.egress.MAX_POOLS", 2)
    a, outside = await out(inner)
    for last in range(2, 8):
        assert (await inner.ask(a, f"http://127.0.0.1:{outside.port}/")).status == 200
        await inner.ask(a, f"http://127.0.0.{last}:{closed_port()}/")
    assert len(a.sidecar.egress._pools) == 2
    a.sidecar.egress.prune(asyncio.get_running_loop().time() + 60)
    assert sum(pool.idle for pool in a.sidecar.egress._pools.values()) == 0


async def test_a_wrong_http_proxy_keeps_nobody_from_starting(inner: Mesh) -> None:
    a = await inner.node("a", env={"http_proxy": "socks5://127.0.0.1:1"})
    [line] = await a.log(event="http_proxy")
    assert line["level"] == "warn"
