"""What was restarted elsewhere is found by the next call, and what is dead is knocked at once, not by every call."""

import time

import pytest
from harness.counters import counted
from harness.mesh import Mesh, Sidecar, get, until
from harness.process import Process
from harness.wire import exchange

OUT_S = 5.0  # an address that refused is tried again after this long, or when a newer entry comes
SLOW_LEASE = {"heartbeat": "10s", "ttl": "30s"}  # nothing here is found out by a lease


def call(caller: Sidecar) -> tuple[int, str]:
    """Status, and which agent's process answered or what the problem is."""
    answer = exchange(f"{caller.url}/to/work/process", body=b"x", timeout=10)
    return answer.status, str(answer.json["agent"]) if answer.status == 200 else answer.problem


def refused(caller: Sidecar, agent_id: str) -> float:
    return counted(caller, "reach_attempts_total", peer=agent_id, result="connect_failed")


def start_elsewhere(mesh: Mesh, control: Process, caller: Sidecar, generation: int) -> Sidecar:
    """The same agent id and state, on new ports; back when the caller has heard that it has registered.

    Control tells of changes in batches, some 20 ms later; asking the caller costs it nothing and calls nobody.
    """
    agent = mesh.agent(f"one-agent-{generation}")
    section = {"address": agent.ready["url"], "capabilities": [{"name": "work"}], "health": {"path": "/healthz"}}
    sidecar = mesh.sidecar("one", control, section)

    def heard() -> bool:
        _, document = get(f"{caller.url}/v1/agents/one")
        return (document["address"], document["status"]) == (sidecar.ready["mesh"], "up")

    until("the caller has heard of it", heard, 10)
    return sidecar


@pytest.mark.parametrize("tries_while_dead", [0, 1, 15])
def test_restarted_elsewhere(mesh: Mesh, tries_while_dead: int) -> None:
    control = mesh.control(lease=SLOW_LEASE)
    caller = mesh.sidecar("caller", control)
    sidecar = start_elsewhere(mesh, control, caller, 0)
    ports = {sidecar.ready["mesh"]}
    assert call(caller) == (200, "one-agent-0")
    for generation in range(1, 4):
        sidecar.kill()
        mesh.find(f"one-agent-{generation - 1}").kill()
        assert {call(caller) for _ in range(tries_while_dead)} <= {(503, "no_agent_available")}
        sidecar = start_elsewhere(mesh, control, caller, generation)
        assert call(caller) == (200, f"one-agent-{generation}"), "the first call after it has registered"
        ports.add(sidecar.ready["mesh"])
    assert len(ports) == 4


@pytest.mark.parametrize("others", [0, 1], ids=["the only one", "one of two"])
def test_a_dead_port_is_knocked_at_once(mesh: Mesh, others: int) -> None:
    control = mesh.control(lease=SLOW_LEASE)
    caller = mesh.sidecar("caller", control)
    dead = mesh.serve("dead", control, "work")
    for number in range(others):
        mesh.serve(f"other-{number}", control, "work")
    mesh.wait_usable(caller, "work", 1 + others)
    for _ in range(20):  # so that there are connections in the pool
        assert call(caller)[0] == 200
    dead.kill()
    began = time.monotonic()
    expected = (200, "other-0-agent") if others else (503, "no_agent_available")
    assert {call(caller) for _ in range(50)} == {expected}
    allowed = 1 + (time.monotonic() - began) // OUT_S
    assert refused(caller, "dead") <= allowed
    knocks = counted(caller, "reach_attempts_total", peer="dead") - counted(
        caller, "reach_attempts_total", peer="dead", result="answered")
    assert knocks <= allowed
    if not others:
        assert knocks >= 1, "that is how it was found out; of two, the better one may be called every time"
