"""Draining: peers are told at once, what they still send is served, and then the sidecar ends."""

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from harness.load import Load
from harness.mesh import Mesh, Sidecar, post, until
from harness.process import Process
from harness.wire import exchange

WAIT_S = 3.0


def served(mesh: Mesh, name: str, control: Process, wait: str = f"{WAIT_S:g}s") -> Sidecar:
    agent: dict[str, Any] = {"address": mesh.agent(f"{name}-agent").ready["url"], "capabilities": [{"name": "work"}]}
    return mesh.sidecar(name, control, agent, drain={"wait": wait, "grace": "5s"})


def direct(sidecar: Sidecar) -> int | None:
    """The status of a call by somebody who has not heard; None where it does not listen any more."""
    headers = [("Reach-Target", "work"), ("Reach-Agent", sidecar.name), ("Reach-Caller", "late")]
    try:
        return exchange(f"http://{sidecar.ready['mesh']}/x", headers, b"{}").status
    except OSError:
        return None


def ended(process: Process) -> int:
    until(f"{process.name} ends", lambda: not process.running, 15)
    return process.popen.returncode


@pytest.mark.parametrize("ask", [
    lambda sidecar: sidecar.signal(signal.SIGTERM),
    lambda sidecar: post(f"{sidecar.admin}/v1/drain", b""),
], ids=["SIGTERM", "admin"])
def test_a_drain_loses_no_call(mesh: Mesh, ask: Callable[[Sidecar], object]) -> None:
    control = mesh.control(lease={"heartbeat": "5s", "ttl": "20s"})
    one, _ = served(mesh, "one", control), served(mesh, "two", control)
    caller = mesh.sidecar("caller", control)
    mesh.wait_usable(caller, "work", 2)
    with Load(f"{caller.url}/to/work/x") as load:
        load.wait_for(lambda outcome: outcome.agent == "one-agent", 10)
        began = time.monotonic()
        ask(one)
        until("the caller knows at once", lambda: caller.usable("work") == ["two"], WAIT_S - 1)
        assert direct(one) == 200, "who has not heard is served"
        assert ended(one) == 0
        assert time.monotonic() - began > WAIT_S - 0.2
        outcomes = load.stop()
    assert not [outcome for outcome in outcomes if not outcome.agent], load.summary()
    after = [outcome.agent for outcome in load.since(began + WAIT_S)]
    assert "one-agent" not in after


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]])
def test_whoever_insists_need_not_wait(mesh: Mesh, signals: list[signal.Signals]) -> None:
    control = mesh.control()
    one, two = served(mesh, "one", control, "60s"), served(mesh, "two", control)
    mesh.wait_usable(one, "work", 2)
    one.signal(signals[0])
    if len(signals) > 1:
        until("the other knows", lambda: two.usable("work") == ["two"], 5)
        assert one.running
        one.signal(signals[1])
    began = time.monotonic()
    assert ended(one) == 0
    assert time.monotonic() - began < 5


def test_nobody_waits_where_nobody_is(mesh: Mesh) -> None:
    control = mesh.control()
    alone = served(mesh, "one", control, "60s")
    mesh.wait_usable(alone, "work")
    began = time.monotonic()
    assert alone.terminate() == 0
    assert time.monotonic() - began < 5


def test_nobody_waits_where_nobody_can_be_told(mesh: Mesh) -> None:
    control = mesh.control()
    one, two = served(mesh, "one", control, "60s"), served(mesh, "two", control, "60s")
    mesh.wait_usable(one, "work", 2)
    control.kill()
    until("it is noticed", lambda: one.gauge("reach_control_connected") == 0, 10)
    began = time.monotonic()
    assert one.terminate() == 0
    assert time.monotonic() - began < 5
    two.kill()
