"""A mesh of one capability that must not be done twice, and a chaos that kills, stops and cuts all of it at random.

One control node, two calling sidecars, three workers; a link before each worker's mesh port. What is killed comes
back after a moment with the same ports and the same state directory. Nothing here knows what is right: that is
verdict.py's. The choices come from the seed; when they meet which call does not, so a seed is replayed in kind.
"""

import heapq
import random
import time
from collections.abc import Callable
from typing import Any

from harness.disturbance import Disturbance
from harness.ledger import Run, read_ledger
from harness.link import End, Link
from harness.mesh import Mesh, Sidecar
from harness.ports import lasting_doors, lasting_port
from harness.ward import Ward

WORKERS = ("worker-1", "worker-2", "worker-3")
CALLERS = ("caller-1", "caller-2")
AT_ONCE = 3  # disturbances, so that there is mostly somebody who can do the work
MEAN_PAUSE_S = 0.45
LEDGER_OPTIONS = ("--turned-down", 0.06, "--failing", 0.03)


class ChaosMesh:
    """All the processes, well and knowing each other."""

    def __init__(self, mesh: Mesh, seed: int, agent_options: tuple[object, ...] = LEDGER_OPTIONS) -> None:
        self.mesh = mesh
        self.links: dict[str, Link] = {}
        self.wards: dict[str, Ward] = {}
        self._seed = seed
        self._agent_options = agent_options
        control = mesh.control(listen=lasting_doors("api", "admin"), log={"level": "info"})
        self.wards["control"] = Ward(mesh, control)
        for name in WORKERS:
            self._worker(name, f"http://{control.ready['api']}")
        self.callers: dict[str, Sidecar] = {}
        for name in CALLERS:
            sidecar = mesh.sidecar(name, control, listen=lasting_doors("outbound", "mesh", "admin"), log={"level": "info"})
            self.callers[name] = sidecar
            self.wards[name] = Ward(mesh, sidecar)
        for sidecar in self.callers.values():
            mesh.wait_usable(sidecar, "work", len(WORKERS))

    @property
    def doors(self) -> dict[str, str]:
        return {name: sidecar.url for name, sidecar in self.callers.items()}

    def runs(self) -> list[Run]:
        """What all agents have done so far."""
        return [run for name in WORKERS for run in read_ledger(self._ledger(name), name)]

    def close(self) -> None:
        for link in self.links.values():
            link.close()

    def lines_about(self, call: str, traces: set[str]) -> list[str]:
        """What the sidecars said about a call, by its key and traces; in the order of their clocks."""
        marks = [f'"key":"{call}"', *(f'"trace_id":"{trace}"' for trace in traces)]
        lines = (line for name in (*WORKERS, *CALLERS) for line in self.wards[name].process.log.splitlines())
        found = [f"{line}" for line in lines if any(mark in line for mark in marks)]
        return sorted(found, key=lambda line: line.partition('"ts":"')[2][:24])

    def _ledger(self, name: str) -> Any:
        return self.mesh.folder / f"{name}.ledger"

    def _worker(self, name: str, control: str) -> None:
        options = ("--port", lasting_port(), "--ledger", self._ledger(name), "--seed", self._seed, *self._agent_options)
        agent = self.mesh.agent(f"{name}-agent", "ledger.py", *options)
        self.wards[agent.name] = Ward(self.mesh, agent)
        doors = lasting_doors("outbound", "mesh", "admin")
        link = self.links[f"{name}-link"] = Link(f"{name}-link", int(doors["mesh"].rpartition(":")[2]))
        section = {
            "address": agent.ready["url"], "max_concurrency": 12, "queue": 16,
            "health": {"path": "/healthz", "interval": "1s", "timeout": "1s"},
            "capabilities": [{"name": "work", "dedup": "durable", "idempotent": False}],
        }  # fmt: skip
        sidecar = self.mesh.sidecar(name, control, section, listen=doors, advertise=link.address, log={"level": "info"})
        # A port where nobody listens refuses; the link must not hide that.
        self.wards[name] = Ward(self.mesh, sidecar, restarted=link.up, died=link.down)


class Chaos:
    """`run(seconds)` disturbs and mends from the calling thread; afterwards everything runs again."""

    def __init__(self, world: ChaosMesh, seed: int) -> None:
        self._world = world
        self._chance = random.Random(seed)
        self.disturbances: list[Disturbance] = []
        self._ends: list[tuple[float, int, Callable[[], bool]]] = []  # when, tie-break, False: ask again in a moment
        self._count = 0
        self._disturbed: set[str] = set()
        self.late_s = 0.0  # how late this loop woke at worst: the machine, not the product

    def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        next_one = time.monotonic() + 0.5
        while time.monotonic() < until:
            if time.monotonic() >= next_one:
                if len(self._disturbed) < AT_ONCE:
                    self._disturb()
                next_one = time.monotonic() + self._chance.expovariate(1 / MEAN_PAUSE_S)
            self._tick()
        limit = time.monotonic() + 30
        while self._ends:
            self._tick()
            assert time.monotonic() < limit, f"not back in 30 s: {self._disturbed}"

    def _tick(self) -> None:
        asleep = time.monotonic()
        time.sleep(0.01)
        now = time.monotonic()
        self.late_s = max(self.late_s, now - asleep - 0.01)
        while self._ends and self._ends[0][0] <= now:
            _, order, end = heapq.heappop(self._ends)
            if not end():
                heapq.heappush(self._ends, (now + 0.02, order, end))

    def _disturb(self) -> None:
        chance = self._chance
        group = chance.choices(["link", "agent", "worker", "caller", "control"], [30, 25, 20, 15, 10])[0]
        names = {
            "link": [f"{name}-link" for name in WORKERS], "agent": [f"{name}-agent" for name in WORKERS],
            "worker": list(WORKERS), "caller": list(CALLERS), "control": ["control"],
        }[group]  # fmt: skip
        free = [name for name in names if name not in self._disturbed]
        if not free:
            return
        name = chance.choice(free)
        if group == "link":
            self._break_link(name)
        elif chance.random() < 0.5:
            self._kill(name)
        else:
            self._stop(name)

    def _kill(self, name: str) -> None:
        ward = self._world.wards[name]
        ended = self._begin("kill", name)
        ward.kill()

        def start() -> bool:
            ward.start()
            self._at(0.0, back)
            return True

        def back() -> bool:
            return ward.is_back() and ended()
        self._at(self._chance.uniform(0.05, 1.5), start)

    def _stop(self, name: str) -> None:
        ward = self._world.wards[name]
        ended = self._begin("stop", name)
        ward.stop()

        def go_on() -> bool:
            ward.go_on()
            return ended()
        self._at(self._chance.choice([self._chance.uniform(0.05, 0.5), self._chance.uniform(0.5, 4.0)]), go_on)

    def _break_link(self, name: str) -> None:
        link, chance = self._world.links[name], self._chance
        kind = chance.choices(["cut", "freeze", "down"], [50, 35, 15])[0]
        if kind == "down" and name.removesuffix("-link") in self._disturbed:
            return  # its worker's own restart would bring it up
        ended = self._begin(kind, name)
        share = chance.choice([0.3, 1.0])
        if kind == "cut":
            ends: list[End] = ["both", "caller", "called"]
            end = chance.choices(ends, [60, 25, 15])[0]
            link.cut(share, end)
            if end == "both":
                ended()
                return
        elif kind == "freeze":
            link.freeze(share)
        else:
            link.down()

        def mend() -> bool:
            if kind == "cut":
                link.tell()
            elif kind == "freeze":
                link.thaw()
            elif self._world.wards[name.removesuffix("-link")].process.running:
                link.up()
            return ended()
        self._at(chance.uniform(0.1, 1.0 if kind == "down" else 3.0), mend)

    def _begin(self, kind: str, name: str) -> Callable[[], bool]:
        index = len(self.disturbances)
        self.disturbances.append(Disturbance(kind, name, time.monotonic()))
        self._disturbed.add(name)

        def ended() -> bool:
            self.disturbances[index] = self.disturbances[index]._replace(ended=time.monotonic())
            self._disturbed.discard(name)
            return True
        return ended

    def _at(self, wait_s: float, act: Callable[[], bool]) -> None:
        self._count += 1
        heapq.heappush(self._ends, (time.monotonic() + wait_s, self._count, act))
