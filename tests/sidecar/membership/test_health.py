import asyncio
import os
import signal
import socket
import sys

import pytest

from reach_sidecar.membership.health import Fitness, HealthChecks, probe
from reach_sidecar.membership.local import HealthCheck, LocalAgent


class Silent:
    def event(self, level, event, **fields):
        pass


SILENT = Silent()
AGENT = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/healthz" else 500)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *args): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.mark.parametrize(
    ("results", "unfit", "wait_s"),
    [
        ("", False, 10.0),
        ("p", False, 10.0),
        ("f", False, 10.0),
        ("ff", False, 10.0),
        ("fff", True, 0.2),
        ("ffpff", False, 10.0),
        ("ffpfff", True, 0.2),
        ("r", True, 0.2),
        ("fr", True, 0.2),
        ("rr", True, 0.5),
        ("rrr", True, 1.0),
        ("rrrr", True, 2.0),
        ("rrrrf", True, 4.0),
        ("rrrrrr", True, 10.0),
        ("rrrrrrrrr", True, 10.0),
        ("rrrp", False, 10.0),
        ("rrrpr", True, 0.2),
    ],
)
def test_what_results_add_up_to(results, unfit, wait_s):
    fitness = Fitness(HealthCheck())
    for letter in results:
        fitness.saw({"p": "passed", "f": "failed", "r": "refused"}[letter])
    assert fitness.unfit is unfit
    assert fitness.wait_s(0.5) == pytest.approx(wait_s)


def test_checks_are_spread_by_thirty_percent():
    fitness = Fitness(HealthCheck(interval_s=10))
    assert fitness.wait_s(0) == pytest.approx(7)
    assert fitness.wait_s(1) == pytest.approx(13)


def test_a_recheck_is_never_later_than_the_interval():
    fitness = Fitness(HealthCheck(interval_s=0.1))
    fitness.saw("refused")
    assert fitness.wait_s(0.5) == pytest.approx(0.1)


async def start_agent(port=0):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AGENT, str(port), stdout=asyncio.subprocess.PIPE
    )
    return process, int(await process.stdout.readline())


async def end(process):
    if process.returncode is None:
        process.kill()
    await process.wait()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", "passed"),
        (b"HTTP/1.0 204 \r\n\r\n", "passed"),
        (b"HTTP/1.1 302 Found\r\n\r\n", "passed"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "failed"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "failed"),
        (b"SSH-2.0-OpenSSH\r\n", "failed"),
        (b"HTTP/1.1\r\n", "failed"),
        (b"", "failed"),
        (b"x" * 5000, "failed"),
    ],
)
async def test_what_counts_as_an_answer(answer, result):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await probe(address, HealthCheck(path="/healthz")) == result
        assert await probe(address, HealthCheck()) == "passed"


async def test_nobody_listening_is_refused():
    assert await probe(f"http://127.0.0.1:{free_port()}", HealthCheck()) == "refused"


async def test_a_stopped_agent_becomes_unfit_and_a_resumed_one_fit(until):
    process, port = await start_agent()
    local = LocalAgent("a", address=f"http://127.0.0.1:{port}",
                       health=HealthCheck("/healthz", interval_s=0.05, timeout_s=0.2, fail=3))
    checks = HealthChecks(local, SILENT)
    try:
        await checks.start()
        await until(lambda: local.confirmed)
        os.kill(process.pid, signal.SIGSTOP)
        await until(lambda: local.unfit)
        os.kill(process.pid, signal.SIGCONT)
        await until(lambda: not local.unfit)
    finally:
        await checks.stop()
        await end(process)


async def test_a_killed_agent_is_unfit_at_the_first_refused_call_and_used_again_once_restarted(until):
    process, port = await start_agent()
    local = LocalAgent("a", address=f"http://127.0.0.1:{port}")  # the next check is 7 s away
    told = []
    checks = HealthChecks(local, SILENT, on_change=lambda unfit, result: told.append((unfit, result)))
    try:
        await checks.start()
        await until(lambda: local.confirmed)
        await end(process)
        checks.report_refused()
        assert local.unfit
        checks.report_refused()
        process, _ = await start_agent(port)
        await until(lambda: not local.unfit, within_s=3)
        assert told == [(True, "refused"), (False, "passed")]
    finally:
        await checks.stop()
        await end(process)


async def test_an_agent_that_registers_itself_is_asked_at_once(until):
    process, port = await start_agent()
    local = LocalAgent("gateway")
    checks = HealthChecks(local, SILENT)
    try:
        await checks.start()
        await asyncio.sleep(0)
        local.declare("a", f"http://127.0.0.1:{free_port()}")
        await until(lambda: local.unfit)
        local.declare("a", f"http://127.0.0.1:{port}", "/healthz")
        await until(lambda: local.confirmed and not local.unfit)
    finally:
        await checks.stop()
        await end(process)


@pytest.fixture
def elsewhere(monkeypatch):
    """What the checks of an agent on another machine bring, and whom they asked; nothing leaves this machine."""
    results, asked = ["passed"], []

    async def answered(address, check):
        asked.append(address)
        return results[0]

    monkeypatch.setattr("reach_sidecar.membership.health.probe", answered)
    return results, asked


async def test_an_agent_elsewhere_is_asked_until_it_answers_for_the_first_time(elsewhere, until):
    results, asked = elsewhere
    results[0] = "failed"
    local = LocalAgent("a", address="http://10.0.0.9:80", health=HealthCheck(interval_s=0.01))
    checks = HealthChecks(local, SILENT)
    await checks.start()
    try:
        await until(lambda: len(asked) > 4)
        assert not local.confirmed
        results[0] = "passed"
        await until(lambda: local.confirmed and not local.unfit)
        before = len(asked)
        await asyncio.sleep(0.05)
        assert len(asked) == before, "calls show how it is from now on"
        checks.report_refused()
        assert local.unfit
        await until(lambda: not local.unfit)
        assert set(asked) == {"http://10.0.0.9:80"}
    finally:
        await checks.stop()


async def test_checks_go_on_after_a_defect(monkeypatch, until):
    monkeypatch.setattr("reach_sidecar.membership.supervise.PAUSE_S", 0.0)
    local = LocalAgent("a", address="http://127.0.0.1:9")

    async def broken(address, check):
        monkeypatch.setattr("reach_sidecar.membership.health.probe", passes)
        raise KeyError("a defect")

    async def passes(address, check):
        return "passed"

    monkeypatch.setattr("reach_sidecar.membership.health.probe", broken)
    checks = HealthChecks(local, SILENT)
    await checks.start()
    try:
        await until(lambda: local.confirmed)
    finally:
        await checks.stop()
