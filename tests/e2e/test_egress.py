"""A sidecar as `http_proxy`: hosts outside the mesh are passed on untouched, or refused where that is asked for."""

import json
import subprocess
from typing import NamedTuple

import pytest
from harness.mesh import Mesh, Sidecar
from harness.process import Process
from harness.wire import exchange
from harness.world import World


class Outside(NamedTuple):
    agent: Process  # a server without a sidecar
    closed: Sidecar  # egress: mesh-only
    mesh: Mesh


@pytest.fixture(scope="module")
def outside(world: World) -> Outside:
    agent = world.mesh.agent("outside")
    return Outside(agent, world.mesh.sidecar("closed", world.control, egress="mesh-only"), world.mesh)


def curl(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["curl", "-sS", "--max-time", "20", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=40)


@pytest.mark.parametrize("tunnel", [[], ["-p"]], ids=["absolute", "connect"])
def test_other_hosts_are_passed_on_untouched(world: World, outside: Outside, tunnel: list[str]) -> None:
    url = f"{outside.agent.ready['url']}/a?b=%20"
    done = curl(*tunnel, "-x", world.url, "-d", "x", "-H", "X-Mine: 1", url)
    answer = json.loads(done.stdout)
    assert (answer["agent"], answer["path"], answer["body"]) == ("outside", "/a?b=%20", "x")
    names = {name.lower() for name, _ in answer["headers"]}
    assert "x-mine" in names
    assert not {name for name in names if name.startswith(("reach-", "traceparent", "idempotency", "proxy-"))}


def test_mesh_only_refuses_them(outside: Outside) -> None:
    refused = exchange(outside.closed.url, [("Host", "outside")], target=f"{outside.agent.ready['url']}/")
    assert (refused.status, refused.problem) == (403, "not_allowed")
    assert "egress" in refused.json["detail"]
    done = curl("-p", "-x", outside.closed.url, outside.agent.ready["url"])
    assert done.returncode == 56, done
    assert "403" in done.stderr


@pytest.mark.parametrize("door", ["mesh", "admin"])
def test_never_to_the_sidecars_own_listeners(world: World, door: str) -> None:
    """Else whoever may use the proxy could use the operator's door."""
    address = world.caller.ready[door]
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        target = f"http://{host}:{address.rpartition(':')[2]}/livez"
        answer = exchange(world.url, [("Host", "x")], target=target)
        assert (answer.status, answer.problem) == (403, "not_allowed"), target


def test_never_to_link_local_addresses(world: World) -> None:
    """There is no such host here, and where there is one it hands out credentials."""
    answer = exchange(world.url, [("Host", "169.254.169.254")], target="http://169.254.169.254/latest/", timeout=10)
    assert (answer.status, answer.problem) == (403, "not_allowed")


def test_a_host_that_cannot_be_reached(world: World) -> None:
    answer = exchange(world.url, [("Host", "x")], target="http://127.0.0.1:1/")
    assert answer.status == 502
    assert answer.problem == "bad_gateway"
    assert "127.0.0.1:1" in answer.json["detail"]


def test_an_inherited_proxy_is_chained(world: World) -> None:
    record = world.mesh.folder / "proxied"
    answer = r"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    proxy = world.mesh.agent("proxy", "scripted.py", "--answer", answer, "--record", record)
    world.mesh.env["http_proxy"] = proxy.ready["url"]
    try:
        chained = world.mesh.sidecar("chained", world.control)
    finally:
        del world.mesh.env["http_proxy"]
    reply = exchange(chained.url, [("Host", "far.example")], target="http://far.example/x?y=1")
    assert (reply.status, reply.body) == (200, b"ok")
    assert record.read_bytes().startswith(b"GET http://far.example/x?y=1 HTTP/1.1\r\n")
    direct = exchange(f"{chained.url}/to/echo/process", body=b"x", timeout=20)
    assert direct.status in (200, 404, 503), "calls within the mesh do not go through it"
