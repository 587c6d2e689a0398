"""One sidecar as a whole: it starts or says why not, tells who it is, and ends without a trace."""

import asyncio
import http.client
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from harness.sidecars import Asked, Mesh, closed_port, ok, request, until

from reach_core import __version__
from reach_core.peer import Rank
from reach_os.ports import PortError
from reach_os.state_dir import StateDirError
from reach_sidecar import app as app_module
from reach_sidecar.app import InsecureListener, Sidecar
from reach_sidecar.config import DrainConfig, JoinConfig, ListenConfig, SidecarConfig, WeightsConfig

ANY = "127.0.0.1:0"


def config(folder: Path, **sections: Any) -> SidecarConfig:
    return SidecarConfig(**{"id": "a", "control": [], "state_dir": str(folder / "state"),
                            "listen": ListenConfig(outbound=ANY, mesh=ANY, admin=ANY),
                            "drain": DrainConfig(wait=0.0, grace=0.0), **sections})


@pytest.mark.parametrize("door", ["outbound", "mesh", "admin"])
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.168.1.5:7071", "example.org:7071"])
async def test_beyond_loopback_it_refuses_to_start(tmp_path: Path, door: str, address: str) -> None:
    sidecar = Sidecar(config(tmp_path, listen=ListenConfig(**{"outbound": ANY, "mesh": ANY, "admin": ANY,
                                                              door: address})), {})
    with pytest.raises(InsecureListener) as error:
        await sidecar.start()
    assert f"listen.{door} is {address}" in str(error.value)
    assert "insecure: true" in str(error.value)
    assert not (tmp_path / "state").exists()


async def test_unless_it_is_meant_and_then_loudly(inner: Mesh) -> None:
    a = await inner.node("a", insecure=True, listen=ListenConfig(outbound=ANY, mesh="0.0.0.0:0", admin=ANY))
    [line] = await a.log(event="insecure")
    assert line["level"] == "warn"
    assert a.sidecar._advertised().rpartition(":")[2] == str(a.port("mesh"))
    assert not a.sidecar._advertised().startswith("0.0.0.0")


@pytest.mark.parametrize("door", ["outbound", "mesh", "admin"])
async def test_a_port_in_use_is_named_with_its_holder_and_nothing_stays(tmp_path: Path, door: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        sections = {"outbound": ANY, "mesh": ANY, "admin": ANY, door: f"127.0.0.1:{port}"}
        with pytest.raises(PortError) as error:
            await Sidecar(config(tmp_path, listen=ListenConfig(**sections)), {}).start()
        assert f"port {port} is in use by pid {os.getpid()}" in str(error.value)
        assert str(error.value).endswith(f"The setting is `listen.{door}`.")
    # the state directory is free again, and so are the ports that were bound before
    sidecar = Sidecar(config(tmp_path, listen=ListenConfig(**sections)), {})
    await sidecar.start()
    await sidecar.stop()


async def test_what_a_failed_start_had_opened_is_closed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        sidecar = Sidecar(config(tmp_path, listen=ListenConfig(
            outbound=ANY, mesh=ANY, admin=f"127.0.0.1:{holder.getsockname()[1]}")), {})
        with pytest.raises(PortError):
            await sidecar.start()
    for door in ("mesh", "outbound"):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(sidecar.addresses[door].rpartition(":")[2]))


async def test_a_state_directory_in_use(inner: Mesh, tmp_path: Path) -> None:
    await inner.node("a")
    with pytest.raises(StateDirError) as error:
        await Sidecar(config(tmp_path, state_dir=str(tmp_path / "a")), {}).start()
    assert f"in use by pid {os.getpid()}" in str(error.value)


async def test_both_loopbacks_or_a_warning(inner: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "LOOPBACK_V6", "2001:db8::1")  # an address this machine does not have
    a = await inner.node("a")
    [line] = await a.log(event="no_ipv6_loopback")
    assert line["level"] == "warn"
    assert (await inner.ask(a, "/v1/self")).status == 200


async def test_stop_lets_running_calls_end_and_takes_no_more(inner: Mesh) -> None:
    go = asyncio.Event()

    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(ok(b"late"))

    a, b = await inner.pair(slow, drain=DrainConfig(wait=0.0, grace=20.0))
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x", body=b"x"))
    await until(lambda: b.agent.asked)
    stopping = asyncio.ensure_future(b.sidecar.stop())
    await until(lambda: b.sidecar._mesh.service.stopping)
    refused = await inner.ask(a, "/to/@b/x", body=b"x")
    assert (refused.status, refused.code, refused.json["executed"]) == (503, "no_agent_available", "no")
    go.set()
    assert (await asking).body == b"late"
    await stopping
    inner.nodes.remove(b)


async def test_stop_does_not_wait_for_ever(inner: Mesh) -> None:
    async def hangs(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    a, b = await inner.pair(hangs, drain=DrainConfig(wait=0.0, grace=0.1))
    asking = asyncio.ensure_future(inner.ask(a, "/to/summarize/x", "Reach-Timeout: 1s", body=b"x"))
    await until(lambda: b.agent.asked)
    inner.nodes.remove(b)
    async with asyncio.timeout(5):
        await b.sidecar.stop()
        answer = await asking  # it is looked for until the call's time is over
        assert (answer.code, answer.json["executed"]) == ("outcome_unknown", "unknown")
    await until(lambda: b.agent.gone)


async def test_idle_connections_do_not_hold_the_stop(inner: Mesh) -> None:
    a = await inner.node("a", drain=DrainConfig(wait=0.0, grace=30.0))
    client = await inner.connect(a)
    await client.send(request("/v1/self"))
    assert (await client.final()).status == 200
    inner.nodes.remove(a)
    async with asyncio.timeout(5):
        await a.sidecar.stop()
        assert await client.ended()


async def test_drain_through_admin_ends_it(inner: Mesh) -> None:
    a = await inner.node("a")
    waiting = asyncio.ensure_future(a.sidecar.wait_for_stop())
    answer = await inner.raw(a, request("/v1/drain", method="POST", body=b"", host="127.0.0.1"), door="admin")
    assert answer.status in (200, 202)
    async with asyncio.timeout(5):
        await waiting
    assert a.sidecar.local.draining


async def test_changes_of_the_table_are_logged_once(inner: Mesh) -> None:
    a, b = await inner.pair()
    a.learn(b.entry())
    a.learn(b.entry(rank=Rank.SUSPECT))
    a.learn(b.entry(rank=Rank.UP, flags=("unfit",)))
    lines = [(line["target"], line["status"], line.get("detail")) for line in await a.log(event="status")]
    assert lines == [("b", "up", None), ("b", "suspect", None), ("b", "up", "unfit")]


async def test_an_agent_that_calls_what_it_offers_itself(inner: Mesh) -> None:
    b = await inner.node("b", ok(b"me"), "summarize")
    inner.share()
    answer = await inner.ask(b, "/to/summarize/x")
    assert (answer.status, answer.body, answer.header("Reach-Agent")) == (200, b"me", "b")
    await inner.idle()


async def test_connections_that_grew_old_are_closed(inner: Mesh) -> None:
    a, _b = await inner.pair()
    await inner.ask(a, "/to/summarize/x")
    await until(lambda: a.peer("b").pool.idle == 1)
    a.peer("b").pool._idle[0].idle_since -= 3600
    a.sidecar._tidy()
    assert a.peer("b").pool.idle == 0
    assert (await inner.ask(a, "/to/summarize/x")).status == 200


async def test_an_agent_that_registers_itself_gives_the_log_its_name(inner: Mesh) -> None:
    a = await inner.node("gateway-x", id="gateway-x", provisional=True)
    agent = await inner.agent(ok(b"new"))
    body = b'{"agent_id": "late", "address": "%b", "capabilities": ["summarize"]}' % agent.url.encode()
    assert (await inner.ask(a, "/agents/register", "Content-Type: application/json", body=body)).status == 200
    a.sidecar.log.event("info", "test")
    [line] = await a.log(event="test")
    assert line["agent"] == "late"
    inner.share()
    answer = await inner.ask(a, "/to/summarize/x")
    assert (answer.body, answer.header("Reach-Agent")) == (b"new", "late")
    assert str((await inner.ask(a, "/to/no-such/x")).header("Proxy-Status")).startswith("late; ")


async def test_metrics_say_how_the_sidecar_stands(inner: Mesh) -> None:
    a, b = await inner.pair()
    client = await inner.connect(a)
    a.learn(b.entry(rank=Rank.SUSPECT))
    await until(lambda: a.sidecar._outbound.service.connections)
    text = (await inner.raw(a, request("/metrics", host="127.0.0.1"), door="admin")).body.decode()
    for line in ('reach_table_entries 1.0', 'reach_table_age_seconds 0.0', 'reach_peers{status="suspect"} 1.0',
                 'reach_peers{status="up"} 0.0', 'reach_connections{listener="outbound"} 1.0',
                 'reach_connections{listener="mesh"} 0.0', 'reach_log_lines_lost_total{sink="queue"} 0.0',
                 f'reach_build_info{{version="{__version__}"}} 1.0'):
        assert line in text.splitlines(), text
    client.close()


async def test_without_a_table_its_age_is_no_number(inner: Mesh) -> None:
    a = await inner.node("a", control=[f"http://127.0.0.1:{closed_port()}"])
    text = (await inner.raw(a, request("/metrics", host="127.0.0.1"), door="admin")).body.decode()
    assert "reach_table_age_seconds NaN" in text.splitlines()
    assert "reach_control_connected 0.0" in text.splitlines()


def ask(address: str, path: str, *, method: str = "GET", host: str = "10.1.2.3:9000") -> tuple[int, str]:
    """As a kubelet does: by an address that is no loopback name."""
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request(method, path, headers={"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


async def test_probe_shows_the_state_and_nothing_else(inner: Mesh) -> None:
    a = await inner.node("a", listen=ListenConfig(outbound=ANY, mesh=ANY, admin=ANY, probe="0.0.0.0:0"),
                         env={"REACH_API_TOKEN": "secret"})
    address = f"127.0.0.1:{a.port('probe')}"
    assert await asyncio.to_thread(ask, address, "/livez") == (200, "alive\n")
    status, text = await asyncio.to_thread(ask, address, "/readyz")
    assert (status, '"ready":true' in text.replace(" ", "")) == (200, True), text
    status, text = await asyncio.to_thread(ask, address, "/metrics")
    assert status == 200
    assert "reach_table_entries" in text
    for method, path in (("GET", "/v1/peers"), ("GET", "/v1/logs"), ("POST", "/v1/drain"), ("GET", "/v1/config")):
        assert (await asyncio.to_thread(ask, address, path, method=method))[0] == 404
    assert (await asyncio.to_thread(ask, address, "/livez", method="POST"))[0] == 405


async def test_without_it_there_is_no_probe(inner: Mesh) -> None:
    assert "probe" not in (await inner.node("a")).sidecar.addresses


async def test_a_probe_port_in_use_leaves_nothing_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = f"127.0.0.1:{holder.getsockname()[1]}"
        sidecar = Sidecar(config(tmp_path, listen=ListenConfig(outbound=ANY, mesh=ANY, admin=ANY, probe=taken)), {})
        with pytest.raises(PortError, match="in use"):
            await sidecar.start()
    for door in ("mesh", "outbound", "admin"):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(sidecar.addresses[door].rpartition(":")[2]))


async def test_an_agent_that_registers_itself_gives_its_name_to_every_answer(inner: Mesh) -> None:
    a = await inner.node("a", provisional=True)
    broken = b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"
    assert "a;" in str((await inner.raw(a, broken)).header("Proxy-Status"))
    agent = await inner.agent(ok())
    a.sidecar.local.declare("writer", address=agent.url)
    for door in ("outbound", "mesh"):
        assert "writer;" in str((await inner.raw(a, broken, door=door)).header("Proxy-Status"))


async def test_settings_without_effect_are_named_once(inner: Mesh) -> None:
    a = await inner.node("a", join=JoinConfig(token_file="/t"))
    [line] = await a.log(event="config")
    assert (line["level"], line["detail"]) == ("warn", "Without effect in this version: join.")
    weighing = await inner.node("b", weights=WeightsConfig(rtt=1.0))
    assert not await weighing.log(event="config")


async def test_self_says_where_the_sidecar_listens(inner: Mesh) -> None:
    a = await inner.node("a")
    about = (await inner.ask(a, "/v1/self")).json
    assert {name: about[name] for name in a.sidecar.addresses} == a.sidecar.addresses
    assert about["pid"] == os.getpid()
