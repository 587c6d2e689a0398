import io
import socket

import aiohttp
import pytest
from aiohttp import web

from reach_control.api.listeners import Listeners
from reach_control.config import ControlListenConfig
from reach_control.telemetry.log import ControlLog
from reach_core.address import split_address
from reach_os.ports import PortError

FREE = ControlListenConfig(api="127.0.0.1:0", admin="127.0.0.1:0", probe="127.0.0.1:0")


async def hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


async def test_each_listener_answers_by_itself_and_gives_its_port_back() -> None:
    listeners = Listeners()
    listeners.bind(FREE, False, ControlLog(out=io.StringIO()))
    addresses = listeners.addresses
    assert list(addresses) == ["api", "admin", "probe"]
    assert listeners.url == f"http://{addresses['api']}"
    assert listeners.is_local("api")
    assert listeners.datagrams is not None
    assert listeners.datagrams.getsockname() == split_address(addresses["api"])
    await listeners.serve("admin", [web.get("/", hello)], (), 1024)
    async with aiohttp.ClientSession() as session, session.get(f"http://{addresses['admin']}/") as answer:
        assert await answer.text() == "hello"
    await listeners.close()
    for kind, name in ((socket.SOCK_STREAM, "api"), (socket.SOCK_DGRAM, "api"), (socket.SOCK_STREAM, "admin")):
        with socket.socket(type=kind) as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(split_address(addresses[name]))


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
async def test_a_port_that_is_taken_names_the_setting_and_the_protocol(protocol: str) -> None:
    with socket.socket(type=socket.SOCK_DGRAM if protocol == "UDP" else socket.SOCK_STREAM) as taken:
        taken.bind(("127.0.0.1", 0))
        if protocol == "TCP":
            taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        listeners = Listeners()
        with pytest.raises(PortError, match=r"is in use.*`listen\.api`") as caught:
            listeners.bind(ControlListenConfig(api=address, admin="127.0.0.1:0"), False, ControlLog())
        assert ("UDP" in str(caught.value)) == (protocol == "UDP")
        await listeners.close()


@pytest.mark.parametrize("name", ["api", "admin"])
async def test_beyond_loopback_only_on_purpose(name: str) -> None:
    wanted = ControlListenConfig(**{"api": "127.0.0.1:0", "admin": "127.0.0.1:0", name: "0.0.0.0:0"})
    listeners, out = Listeners(), io.StringIO()
    with pytest.raises(PortError, match="insecure: true"):
        listeners.bind(wanted, False, ControlLog(out=out))
    await listeners.close()
    listeners = Listeners()
    listeners.bind(wanted, True, ControlLog(out=out))
    assert '"event":"insecure"' in out.getvalue()
    assert not listeners.is_local(name)
    await listeners.close()
