"""SIGKILL to control, a sidecar or an agent at a random moment under load.

Each call gets a clear error or a success by another agent, never a hang; the mesh mends itself; and the next start
of what was killed, with the same ports and the same state, needs no cleaning up.
"""

import os
import random
import signal
import threading
import time

import pytest
from harness.load import Load, Outcome
from harness.mesh import Mesh, Sidecar
from harness.process import Process
from harness.wire import Answer, exchange

ROUNDS = int(os.environ.get("REACH_CHAOS_ROUNDS", "1"))
SLOW_S = 10.0  # no call may take longer while one of two agents is gone


class Trio:
    """Control, a caller and two agents for the same capability."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.control = mesh.control()
        self.caller = mesh.sidecar("caller", self.control)
        self.first = self.start_worker("worker-1")
        self.second = self.start_worker("worker-2")
        mesh.wait_usable(self.caller, "work", 2)

    def start_worker(self, name: str) -> Sidecar:
        capability = {"name": "work", "idempotent": True}
        return self.mesh.serve(name, self.control, capability, health={"path": "/healthz", "interval": "1s"})

    def victim(self, kind: str) -> Process:
        processes = {"control": self.control, "sidecar": self.first, "agent": self.mesh.find("worker-1-agent")}
        return processes[kind]

    def restart(self, kind: str) -> None:
        """The same command again: same ports, same state directory."""
        if kind == "control":
            listen = {"api": self.control.ready["api"], "admin": self.control.ready["admin"]}
            self.control = self.mesh.control(listen=listen)
        elif kind == "sidecar":
            ready = self.first.ready
            agent = self.mesh.find("worker-1-agent")
            section = {
                "address": agent.ready["url"],
                "capabilities": [{"name": "work", "idempotent": True}],
                "health": {"path": "/healthz", "interval": "1s"},
            }
            listen = {door: ready[door] for door in ("outbound", "mesh", "admin")}
            self.first = self.mesh.sidecar("worker-1", self.control, section, listen=listen)
        else:
            port = self.mesh.find("worker-1-agent").ready["port"]
            self.mesh.agent("worker-1-agent", "echo.py", "--port", port)


def check(outcomes: list[Outcome]) -> None:
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    assert not wrong, wrong[:5]
    slow = [outcome for outcome in outcomes if outcome.seconds > SLOW_S]
    assert not slow, slow[:5]


@pytest.mark.timeout(120 * ROUNDS)
@pytest.mark.parametrize("kind", ["control", "sidecar", "agent"])
def test_a_hard_kill_under_load(mesh: Mesh, kind: str) -> None:
    trio = Trio(mesh)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        with Load(f"{trio.caller.url}/to/work/process") as load:
            load.wait_for(lambda o: o.agent == "worker-1-agent", 20)
            load.wait_for(lambda o: o.agent == "worker-2-agent", 20)
            time.sleep(chance.uniform(0, 0.5))
            trio.victim(kind).signal(signal.SIGKILL)
            killed = time.monotonic()
            # The other agent goes on answering at once, not only after a lease has run out.
            load.wait_for(lambda o: o.agent == "worker-2-agent", SLOW_S)
            time.sleep(1.5)
            settled = load.since(time.monotonic() - 0.5)
            assert settled, load.summary(killed)
            assert all(o.agent for o in settled), load.summary(killed)
            trio.restart(kind)
            load.wait_for(lambda o: o.agent == "worker-1-agent", 30)
        check(load.outcomes)
        mesh.wait_usable(trio.caller, "work", 2, 30)


def test_the_only_agent_is_killed(mesh: Mesh) -> None:
    """Nobody else can do it: a clear error at once, and work again when it is back."""
    control = mesh.control()
    caller = mesh.sidecar("caller", control)
    mesh.serve("only", control, "work", health={"path": "/healthz", "interval": "1s"})
    mesh.wait_usable(caller, "work")
    agent = mesh.find("only-agent")
    with Load(f"{caller.url}/to/work/process", callers=2) as load:
        load.wait_for(lambda o: o.agent is not None, 20)
        agent.kill()
        load.wait_for(lambda o: o.problem == "no_agent_available", 20)
        mesh.agent("only-agent", "echo.py", "--port", agent.ready["port"])
        load.wait_for(lambda o: o.agent is not None, 30)
    check(load.outcomes)
    known = {"no_agent_available", "outcome_unknown", "retries_exhausted", "bad_agent_response"}
    assert {o.problem for o in load.outcomes if o.problem} <= known, load.summary()


@pytest.mark.parametrize("victim", ["only-agent", "only"], ids=["agent", "sidecar"])
def test_a_call_under_way_when_its_agent_dies(mesh: Mesh, victim: str) -> None:
    """It was sent, nobody knows whether it ran: the caller is told so instead of waiting for its whole time."""
    control = mesh.control()
    caller = mesh.sidecar("caller", control)
    mesh.serve("only", control, "work")
    mesh.wait_usable(caller, "work")
    answers: list[Answer] = []
    url = f"{caller.url}/to/work/hang"
    thread = threading.Thread(target=lambda: answers.append(exchange(url, body=b"x", timeout=40)))
    thread.start()
    time.sleep(0.5)
    mesh.find(victim).kill()
    thread.join(30)
    assert answers, "the call hangs"
    assert answers[0].status in (502, 503, 504)
    assert answers[0].problem
    assert answers[0].json["executed"] == "unknown"


def test_control_is_gone_and_calls_go_on(mesh: Mesh) -> None:
    """Far longer than a lease: routing needs the table, not the control node."""
    trio = Trio(mesh)
    trio.control.kill()
    with Load(f"{trio.caller.url}/to/work/process", callers=2) as load:
        time.sleep(5)
    check(load.outcomes)
    assert all(outcome.agent for outcome in load.outcomes), load.summary()
    assert set(load.summary()) == {"worker-1-agent", "worker-2-agent"}
