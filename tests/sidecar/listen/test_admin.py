"""The admin listener: bound at once, aiohttp only when somebody comes, and a clean end."""

import asyncio
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import aiohttp
import pytest

from reach_os.ports import PortError
from reach_sidecar.listen.admin import AdminApp
from reach_sidecar.listen.admin_ready import Readiness
from reach_sidecar.listen.admin_sources import Sources
from reach_sidecar.telemetry.line import Line
from reach_sidecar.telemetry.log import LogWriter
from reach_sidecar.telemetry.metrics import Metrics
from reach_sidecar.telemetry.stderr import StderrSink
from reach_sidecar.telemetry.store import LogStore


class Quiet(StderrSink):
    def write(self, batch: list[Line]) -> None:
        """Nowhere."""


def make(log: LogWriter) -> AdminApp:
    sources = Sources(
        log=log, metrics=Metrics(), ready=lambda: Readiness(True, []), peers=lambda query: {"agents": []},
        about=dict, config=dict, drain=lambda: None,
    )  # fmt: skip
    return AdminApp(sources)


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


async def test_start_serve_stop() -> None:
    admin = make(LogWriter("a", sink=Quiet()))
    address = await admin.start("127.0.0.1", 0)
    first = await asyncio.gather(*[asyncio.to_thread(fetch, f"http://{address}/livez") for _ in range(5)])
    assert first == [b"alive\n"] * 5
    await admin.stop()
    with pytest.raises(OSError):  # noqa: PT011
        await asyncio.open_connection(*address.split(":"))
    await admin.stop()


async def test_stop_without_a_visitor() -> None:
    admin = make(LogWriter("a", sink=Quiet()))
    await admin.start("127.0.0.1", 0)
    await admin.stop()


async def test_a_port_in_use_is_named() -> None:
    first, second = make(LogWriter("a", sink=Quiet())), make(LogWriter("b", sink=Quiet()))
    address = await first.start("127.0.0.1", 0)
    with pytest.raises(PortError, match=f"port {address.split(':')[1]} is in use"):
        await second.start("127.0.0.1", int(address.split(":")[1]))
    await first.stop()
    await second.stop()


async def test_stopping_ends_streams_with_a_word(tmp_path: Path) -> None:
    log = LogWriter("a", LogStore(tmp_path / "logs.db"), sink=Quiet())
    admin = make(log)
    address = await admin.start("127.0.0.1", 0)
    async with aiohttp.ClientSession() as client, client.get(f"http://{address}/v1/logs?follow=1") as answer:
        await answer.content.readuntil(b"\n\n")
        started = time.monotonic()
        stopping = asyncio.ensure_future(admin.stop())
        assert b"event: end" in await answer.content.read()
        await stopping
        assert time.monotonic() - started < 5
    log.close()


SCRIPT = """
import asyncio, sys, uvloop
from test_admin import LogWriter, Quiet, fetch, make
async def main():
    admin = make(LogWriter("a", sink=Quiet()))
    before = "aiohttp.web" in sys.modules
    address = await admin.start("127.0.0.1", 0)
    assert (await asyncio.to_thread(fetch, f"http://{address}/livez")) == b"alive\\n"
    await admin.stop()
uvloop.run(main()) if hasattr(uvloop, "run") else asyncio.run(main())
print("served")
"""


def test_on_uvloop() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=Path(__file__).parents[3],
        env={"PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[3]}"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout == "served\n", done.stderr


def test_importing_and_binding_leaves_aiohttp_alone() -> None:
    script = (
        "import sys\n"
        "import reach_sidecar.listen.admin, reach_sidecar.telemetry.log, reach_sidecar.telemetry.metrics\n"
        "heavy = {'aiohttp', 'prometheus_client', 'aiosqlite', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[3], check=True, timeout=30)
