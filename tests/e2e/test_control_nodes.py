"""Two control nodes and a hundred sidecars on real sockets: each node killed in turn under load costs no call."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from harness.mesh import AGENTS, Mesh, get, until
from harness.ports import lasting_port
from harness.process import Process

CROWDS, EACH = 4, 25
CALLS_PER_S = 15.0  # each crowd


def doors() -> dict[str, str]:
    return {"api": f"127.0.0.1:{lasting_port()}", "admin": f"127.0.0.1:{lasting_port()}"}


def two_controls(mesh: Mesh, **sections: Any) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Where the nodes `one` and `two` listen, and their URLs."""
    places = {"one": doors(), "two": doors()}
    urls = [f"http://{place['api']}" for place in places.values()]
    for name, place in places.items():
        peers = [url for url in urls if place["api"] not in url]
        mesh.control(name, place, peers=peers, **sections)
    return places, urls


def status(place: dict[str, str]) -> dict[str, Any]:
    code, answer = get(f"http://{place['admin']}/v1/status")
    assert code == 200, answer
    return dict(answer)


def table_hash(admin: str) -> str:
    return str(get(f"http://{admin}/v1/peers")[1]["table"]["hash"])


def everywhere_the_same(places: dict[str, dict[str, str]], crowds: list[Process]) -> bool:
    hashes = {status(place)["hash"] for place in places.values()}
    hashes |= {table_hash(admin) for crowd in crowds for admin in crowd.ready["admin"]}
    return len(hashes) == 1


def restart(mesh: Mesh, name: str, places: dict[str, dict[str, str]], urls: list[str]) -> None:
    place = places[name]
    mesh.control(name, place, peers=[url for url in urls if place["api"] not in url])


def crowd(mesh: Mesh, number: int, urls: list[str], calls: float = 0.0, count: int = EACH) -> Process:
    folder = mesh.folder / f"crowd-{number}"
    folder.mkdir()
    started = mesh.start(f"crowd-{number}", sys.executable, AGENTS / "crowd.py", "--count", count, "--first",
                         number * count, "--folder", folder, "--calls", calls,
                         *(part for url in urls for part in ("--control", url)), ready=True)
    assert isinstance(started, Process)
    return started


def end(started: Process, folder: Path, number: int, count: int = EACH) -> dict[str, Any]:
    assert started.terminate(30) == 0, started.log[-2000:]
    return dict(json.loads((folder / f"crowd-{number}" / f"calls-{number * count}.json").read_text()))


def test_each_control_node_killed_in_turn_under_load_costs_no_call(mesh: Mesh) -> None:
    places, urls = two_controls(mesh)
    crowds = [crowd(mesh, number, urls if number % 2 else urls[::-1]) for number in range(CROWDS)]
    until("both nodes know all agents", lambda: all(status(place)["agents"].get("up") == CROWDS * EACH
                                                    for place in places.values()), 40)
    until("every table is the same", lambda: everywhere_the_same(places, crowds), 40)
    callers = [crowd(mesh, number, urls if number % 2 else urls[::-1], CALLS_PER_S, count=5)
               for number in range(100, 102)]
    for name in ("one", "two"):
        until("every agent is up before the next blow", lambda: all(
            status(place)["agents"] == {"up": CROWDS * EACH + 10} for place in places.values()), 40)
        mesh.find(name).kill()
        other = "two" if name == "one" else "one"
        _stays_up(places[other], CROWDS * EACH + 10, seconds=5)  # longer than a lease of 3 s
        restart(mesh, name, places, urls)
        until("every table is the same again", lambda: everywhere_the_same(places, crowds), 60)
    for number, caller in zip(range(100, 102), callers, strict=True):
        came = end(caller, mesh.folder, number, count=5)
        assert not came["bad"], came["bad"][:3]
        assert came["good"] > 50, "so few calls prove nothing"


def _stays_up(place: dict[str, str], agents: int, seconds: float) -> None:
    """For so long nobody is taken for dead."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        assert status(place)["agents"] == {"up": agents}
        time.sleep(0.1)
