"""Streams: events chunk by chunk, WebSockets as tunnels, and bodies far larger than memory should be."""

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.mesh import get, post
from harness.world import World
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

GIB = 1 << 30
EXTRA_KIB = 16 * 1024  # the bound for a gigabyte streamed


@contextlib.contextmanager
def flat_memory(world: World) -> Iterator[None]:
    """Neither sidecar's peak rises by 16 MiB over what it held before."""
    sidecars = (world.caller, world.echo)
    before = {}
    for sidecar in sidecars:
        with contextlib.suppress(PermissionError):
            sidecar.reset_memory_peak()
        before[sidecar.name] = sidecar.memory_kib("VmRSS")
    yield
    grown = {sidecar.name: sidecar.memory_kib("VmHWM") - before[sidecar.name] for sidecar in sidecars}
    assert all(extra < EXTRA_KIB for extra in grown.values()), f"KiB above the start: {grown}"


def warm(world: World) -> None:
    """The first call makes pools and caches; it is not what is measured."""
    for _ in range(20):
        assert post(f"{world.url}/to/echo/process", bytes(1 << 20))[0] == 200
        assert get(f"{world.url}/to/echo/download?bytes=1000000")[0] == 200


@pytest.mark.parametrize("form", ["path", "proxy"])
def test_events_arrive_one_by_one(world: World, form: str) -> None:
    """The agent makes each event only after the one before has arrived here and was acknowledged directly."""
    acknowledge = f"{world.echo_agent.ready['url']}/ack"
    host = "127.0.0.1" if form == "path" else "echo.reach"
    target = "/to/echo/sse?events=5" if form == "path" else "http://echo.reach/sse?events=5"
    with socket.create_connection(("127.0.0.1", world.caller.port), timeout=20) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode())
        received = b""
        delays = []
        for number in range(5):
            while b"id: %d\n" % number not in received or not received.rstrip(b"\r").endswith(b"\n"):
                data = connection.recv(65536)
                assert data, received
                received += data
                if b"data: " in data:
                    delays.append(time.time() - float(data.partition(b"data: ")[2].split(b"\n")[0]))
            if number < 4:
                assert b"id: %d\n" % (number + 1) not in received
                assert post(acknowledge, {})[0] == 200
        while b"\r\n0\r\n\r\n" not in received:
            data = connection.recv(65536)
            assert data, received
            received += data
    assert len(delays) == 5
    assert min(delays) < 0.1, f"each chunk is forwarded at once: {delays}"


@pytest.mark.parametrize("form", ["path", "proxy"])
def test_websocket(world: World, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path form upgrades through `/to/`; with http_proxy the library sends CONNECT socket.reach:80."""
    url = f"ws://127.0.0.1:{world.caller.port}/to/socket/"
    if form == "proxy":
        monkeypatch.setenv("http_proxy", world.url)
        url = "ws://socket.reach/"
    with connect(url, max_size=None, open_timeout=20) as connection:
        connection.send("text ü")
        assert connection.recv(20) == "text ü"
        connection.send(b"\x00\xff" * 10)
        assert connection.recv(20) == b"\x00\xff" * 10
        large = os.urandom(4 << 20)
        connection.send(large)
        assert connection.recv(20) == large
        for number in range(100):
            connection.send(str(number))
        assert [connection.recv(20) for _ in range(100)] == [str(number) for number in range(100)]
        connection.send("headers")
        names = {name.lower() for name, _ in json.loads(connection.recv(20))}
        assert {"upgrade", "sec-websocket-key", "traceparent"} <= names
        connection.send("close 4001")
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(20)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "as asked")


def test_a_tunnel_ends_with_its_client(world: World) -> None:
    """Many come and go; nothing piles up in the sidecars."""
    for _ in range(20):
        with connect(f"ws://127.0.0.1:{world.caller.port}/to/socket/", open_timeout=20) as connection:
            connection.send("x")
            connection.recv(20)

    def sockets(pid: int) -> int:
        count = 0
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since the folder was read
                count += os.readlink(entry).startswith("socket:")
        return count

    deadline = time.monotonic() + 10
    while (left := sockets(world.socket.pid)) > 20 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left <= 20, f"{left} sockets are still open"


@pytest.mark.timeout(240)
def test_a_gigabyte_goes_up(world: World, tmp_path: Path) -> None:
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(GIB)  # sparse: nothing is written
    warm(world)
    with flat_memory(world):
        done = subprocess.run(
            ["curl", "-sS", "--max-time", "200", "-H", "Expect:", "-T", str(tmp_path / "zeros"),
             f"{world.url}/to/echo/upload"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=220,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"bytes": GIB}


@pytest.mark.timeout(240)
def test_a_gigabyte_comes_down(world: World) -> None:
    warm(world)
    with flat_memory(world):
        done = subprocess.run(
            ["curl", "-sS", "--max-time", "200", "-o", os.devnull, "-w", "%{http_code} %{size_download}",
             f"{world.url}/to/echo/download?bytes={GIB}"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=220, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"200 {GIB}"


def test_a_reader_that_stalls_holds_the_agent_back(world: World) -> None:
    warm(world)
    with flat_memory(world), socket.create_connection(("127.0.0.1", world.caller.port), timeout=20) as connection:
        connection.sendall(b"GET /to/echo/download?bytes=500000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        time.sleep(1.0)
    assert get(f"{world.url}/to/echo/process")[0] == 200
