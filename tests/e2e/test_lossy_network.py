"""News on bad networks: datagrams that get lost and come late, no datagrams at all, and a network namespace of its own
with `tc netem`."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from harness.mesh import AGENTS, REACH, Mesh, get, until
from harness.process import Process

LOSS, DELAY_S = 0.2, 0.05
NAMESPACE = f"reach-{os.getpid()}"


def crowd(mesh: Mesh, first: int, count: int, control: str, *more: object, prefix: tuple[str, ...] = ()) -> Process:
    folder = mesh.folder / f"crowd-{first}"
    folder.mkdir()
    started = mesh.start(f"crowd-{first}", *prefix, sys.executable, AGENTS / "crowd.py", "--count", count, "--first",
                         first, "--folder", folder, "--control", control, *more, ready=True)
    assert isinstance(started, Process)
    return started


def who_knows(admins: list[str], agent_id: str) -> int:
    """How many of these sidecars have the agent as up."""
    count = 0
    for admin in admins:
        _, answer = get(f"http://{admin}/v1/peers")
        count += any(one["agent_id"] == agent_id and one["status"] == "up" for one in answer["agents"])
    return count


def wait_for_all(control: Process, agents: int) -> None:
    def all_up() -> bool:
        return bool(get(f"http://{control.ready['admin']}/v1/status")[1]["agents"].get("up") == agents)

    until(f"{agents} agents are up", all_up, 40)


def test_news_reach_everybody_through_loss_and_delay(mesh: Mesh) -> None:
    control = mesh.control(lease={"heartbeat": "5s", "ttl": "15s", "down": "30s", "forget": "60s"})
    url = f"http://{control.ready['api']}"
    crowds = [crowd(mesh, first, 25, url, "--loss", LOSS, "--delay", DELAY_S) for first in (0, 25)]
    wait_for_all(control, 50)
    admins = [admin for one in crowds for admin in one.ready["admin"]]
    newcomer = mesh.serve("newcomer", control, "work")
    wait_for_all(control, 51)
    began = time.monotonic()
    until("all have heard of the newcomer", lambda: who_knows(admins, "newcomer") == 50, 9.0)
    took_s = time.monotonic() - began
    assert took_s < 5.0, f"{took_s:.1f} s: that is rather comparison than gossip"
    newcomer.kill()


def test_without_datagrams_comparisons_bring_it(mesh: Mesh) -> None:
    control = mesh.control(lease={"heartbeat": "5s", "ttl": "15s", "down": "30s", "forget": "60s"})
    url = f"http://{control.ready['api']}"
    crowds = [crowd(mesh, 0, 12, url, "--loss", 1.0)]
    wait_for_all(control, 12)
    admins = [admin for one in crowds for admin in one.ready["admin"]]
    mesh.serve("newcomer", control, "work")
    until("all have heard of the newcomer", lambda: who_knows(admins, "newcomer") == 12, 90.0)


@pytest.fixture
def namespace() -> Iterator[tuple[str, ...]]:
    """A network of its own, whose loopback loses a fifth of what is sent and delays the rest by 50 ms."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("network namespaces need root, `ip` and `tc` (Debian: iproute2)")
    made = subprocess.run(["ip", "netns", "add", NAMESPACE], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"this machine allows no network namespaces: {made.stderr.strip()}")
    inside = ("ip", "netns", "exec", NAMESPACE)
    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        netem = subprocess.run([*inside, "tc", "qdisc", "add", "dev", "lo", "root", "netem", "loss", f"{LOSS:.0%}",
                                "delay", f"{DELAY_S * 1000:.0f}ms"], capture_output=True, text=True)
        if netem.returncode:
            pytest.skip(f"this kernel has no netem: {netem.stderr.strip()}")
        yield inside
    finally:
        subprocess.run(["ip", "netns", "delete", NAMESPACE], check=False)


def peers_inside(inside: tuple[str, ...], admin: str) -> list[dict[str, Any]]:
    done = subprocess.run([*inside, "curl", "-sS", "--noproxy", "*", "-m", "20", f"http://{admin}/v1/peers"],
                          capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout)["agents"])


def test_with_netem_in_a_namespace(mesh: Mesh, namespace: tuple[str, ...]) -> None:
    config = mesh.write("control.yaml", {"listen": {"api": "127.0.0.1:7080", "admin": "127.0.0.1:7082"},
                                         "state_dir": str(mesh.folder / "control.state")})
    mesh.start("control", *namespace, REACH, "control", "-c", config)
    started = crowd(mesh, 0, 30, "http://127.0.0.1:7080", prefix=namespace)
    late = crowd(mesh, 30, 1, "http://127.0.0.1:7080", prefix=namespace)
    assert late.running

    def all_know() -> bool:
        return all(any(one["agent_id"] == "crowd-30" and one["status"] == "up" for one in peers_inside(namespace, admin))
                   for admin in started.ready["admin"][:10])

    until("ten of them have heard of the latest", all_know, 60)
