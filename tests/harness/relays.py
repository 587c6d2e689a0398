"""A chain of naive agents: what each was sent, and in which time."""

import json
from pathlib import Path
from typing import Any

from harness.mesh import Mesh, Sidecar
from harness.ports import lasting_doors
from harness.process import Process


class Relays:
    """Agents `b`, `c`, `d` that offer what they are called; each but the last calls the next one."""

    def __init__(self, mesh: Mesh, *, passed: tuple[str, ...], answer: str, names: tuple[str, ...] = ("b", "c", "d"),
                 copies: int = 1, **capability: Any) -> None:
        self.mesh = mesh
        self._passed = [part for name in passed for part in ("--pass", name)]
        self._answer = answer
        self._capability = capability
        control = mesh.control()
        self.caller = mesh.sidecar("a", control)
        self.sidecars: dict[str, Sidecar] = {}
        for name, behind in zip(names, [*names[1:], None], strict=True):
            for copy in range(copies if behind is None else 1):
                self._start(name, f"{name}{copy or ''}", behind, control)
        for sidecar, wanted in zip([self.caller, *self.sidecars.values()], names, strict=False):
            mesh.wait_usable(sidecar, wanted, copies if wanted == names[-1] else 1)

    def seen(self, name: str) -> list[dict[str, Any]]:
        """The headers of each request that this agent got (lower case), with `at`, monotonic; of all its copies."""
        paths = sorted(self.mesh.folder.glob(f"{name}*.record"))
        found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        return sorted(found, key=lambda one: float(one["at"]))

    def _record(self, name: str) -> Path:
        return self.mesh.folder / f"{name}.record"

    def _start(self, capability: str, name: str, behind: str | None, control: Process) -> None:
        doors = lasting_doors("outbound", "mesh", "admin")
        options: list[object] = ["--record", self._record(name), *self._passed, "--answer", self._answer]
        if behind is not None:
            options += ["--next", f"http://{doors['outbound']}/to/{behind}/process"]
        agent = self.mesh.agent(f"{name}-agent", "relay.py", *options)
        section = {"address": agent.ready["url"], "capabilities": [{"name": capability, **self._capability}]}
        self.sidecars[name] = self.mesh.sidecar(name, control, section, listen=doors)
