"""A mesh of real processes: control nodes, sidecars and plain agents, started through the `reach` command."""

import contextlib
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from harness.process import Process

AGENTS = Path(__file__).resolve().parent / "agents"
# Another build than this interpreter's own, such as the compiled one, is tested by naming its `reach`.
REACH = Path(os.environ.get("REACH_COMMAND") or Path(sys.executable).parent / "reach").absolute()
# Leases of tests: the proportions of the defaults, ten times faster.
FAST_LEASE = {"heartbeat": "1s", "ttl": "3s", "down": "6s", "forget": "60s", "cooldown": "3s"}

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever http_proxy says
T = TypeVar("T")
Json = tuple[int, Any]


def get(url: str, timeout: float = 10.0, headers: dict[str, str] | None = None) -> Json:
    """GET without a proxy: (status, the parsed JSON or the text)."""
    request = urllib.request.Request(url, headers=headers or {})
    return _answer(request, timeout)


def post(url: str, document: object, timeout: float = 10.0, headers: dict[str, str] | None = None) -> Json:
    """POST a JSON document without a proxy: (status, the parsed JSON or the text)."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    merged = {"content-type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, data=data, headers=merged, method="POST")
    return _answer(request, timeout)


def _answer(request: urllib.request.Request, timeout: float) -> Json:
    try:
        with _opener.open(request, timeout=timeout) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    try:
        return status, json.loads(body)
    except ValueError:
        return status, body.decode("utf-8", "replace")


def until(what: str, probe: Callable[[], T], seconds: float = 20.0) -> T:
    """Ask again and again until the answer is true; what it was last is part of the failure."""
    deadline = time.monotonic() + seconds
    last: object = None
    while True:
        try:
            value = probe()
            if value:
                return value
            last = value
        except (OSError, AssertionError, KeyError) as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}; last: {last!r}")
        time.sleep(0.05)


class Sidecar(Process):
    """A running `reach sidecar`; `url` is where its agent would talk to it."""

    config_path: Path

    @property
    def url(self) -> str:
        return f"http://{self.ready['outbound']}"

    @property
    def port(self) -> int:
        return int(self.ready["outbound"].rpartition(":")[2])

    @property
    def admin(self) -> str:
        return f"http://{self.ready['admin']}"

    def agents(self, capability: str | None = None) -> list[dict[str, Any]]:
        status, answer = get(f"{self.url}/v1/agents" + (f"?capability={capability}" if capability else ""))
        assert status == 200, answer
        return list(answer["agents"])

    def usable(self, capability: str) -> list[str]:
        """Ids of the agents this sidecar would call now."""
        return [agent["agent_id"] for agent in self.agents(capability) if agent["excluded"] is None]

    def gauge(self, name: str) -> float:
        """A figure of its metrics that has no labels. The first look takes longer than those after it."""
        _, text = get(f"{self.admin}/metrics")
        return next(float(line.split()[1]) for line in str(text).splitlines() if line.startswith(f"{name} "))


class Mesh:
    """Starts processes below one folder and ends them all. Names are unique within a mesh."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[Process] = []
        home = folder / "home"
        (home / "run").mkdir(parents=True, exist_ok=True)
        self.env = {
            **os.environ,
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "PATH": f"{REACH.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONUNBUFFERED": "1",
        }

    # -- the parts

    def start(self, name: str, *command: object, ready: bool = True, kind: type[Process] = Process) -> Any:
        """Any command; with `ready` it is given `--ready-file` and awaited."""
        ready_file = self.folder / f"{name}.ready.json" if ready else None
        parts = [str(part) for part in command]
        if ready_file is not None:
            parts += ["--ready-file", str(ready_file)]
        process = kind(name, parts, self.folder, ready_file, self.env)
        self.processes.append(process)
        return process.wait_ready() if ready else process

    def agent(self, name: str, script: str = "echo.py", *arguments: object) -> Process:
        """A plain agent of tests/harness/agents on a free port; `ready["url"]` says where."""
        runner = "node" if script.endswith(".mjs") else sys.executable
        process = self.start(name, runner, AGENTS / script, "--name", name, *arguments)
        assert isinstance(process, Process)
        return process

    def control(self, name: str = "control", listen: dict[str, str] | None = None, **sections: Any) -> Process:
        """`reach control` with fast leases; a second start under the same name keeps its state."""
        config = {
            "listen": listen or {"api": "127.0.0.1:0", "admin": "127.0.0.1:0"},
            "lease": FAST_LEASE,
            "state_dir": str(self.folder / f"{name}.state"),
            "log": {"level": "debug"},
            **sections,
        }
        path = self.write(f"{name}.yaml", config)
        process = self.start(name, REACH, "control", "-c", path)
        assert isinstance(process, Process)
        return process

    def sidecar(
        self,
        name: str,
        control: Process | str | list[str],
        agent: dict[str, Any] | None = None,
        ready: bool = True,
        **sections: Any,
    ) -> Sidecar:
        """`reach sidecar` on free ports; `agent` is the section of the same name, none makes a gateway."""
        if isinstance(control, Process):
            control = f"http://{control.ready['api']}"
        config = {
            **({"agent": {"id": name, **agent}} if agent is not None else {}),
            "control": [control] if isinstance(control, str) else control,
            "listen": {"outbound": "127.0.0.1:0", "mesh": "127.0.0.1:0", "admin": "127.0.0.1:0"},
            "state_dir": str(self.folder / f"{name}.state"),
            "log": {"level": "debug"},
            "drain": {"wait": "0s"},
            **sections,
        }
        path = self.write(f"{name}.yaml", config)
        process = self.start(name, REACH, "sidecar", "-c", path, ready=ready, kind=Sidecar)
        assert isinstance(process, Sidecar)
        process.config_path = path
        return process

    def serve(self, name: str, control: Process, *capabilities: str | dict[str, Any], **options: Any) -> Sidecar:
        """An echo agent with its sidecar, the usual pair. The agent's process is `<name>-agent`."""
        script = options.pop("script", "echo.py")
        agent = self.agent(f"{name}-agent", script)
        declared = [{"name": item} if isinstance(item, str) else item for item in capabilities]
        return self.sidecar(name, control, {"address": agent.ready["url"], "capabilities": declared, **options})

    # -- around them

    def write(self, name: str, config: dict[str, Any]) -> Path:
        """JSON is YAML too."""
        path = self.folder / name
        path.write_text(json.dumps(config, indent=1))
        return path

    def find(self, name: str) -> Process:
        """The latest process started under this name."""
        return next(process for process in reversed(self.processes) if process.name == name)

    def wait_usable(self, sidecar: Sidecar, capability: str, count: int = 1, seconds: float = 20.0) -> list[str]:
        def enough() -> list[str]:
            found = sidecar.usable(capability)
            return found if len(found) >= count else []

        return until(f"{sidecar.name} can use {count} agent(s) for {capability}", enough, seconds)

    def stop(self) -> None:
        """All at once and hard: a test that wants an orderly end asks for it itself."""
        for process in self.processes:
            with contextlib.suppress(Exception):
                process.kill()

    def report(self, lines: int = 60) -> list[tuple[str, str]]:
        """The end of each log, for a failure report."""
        sections = []
        for process in self.processes:
            state = "running" if process.running else f"ended with {process.popen.returncode}"
            text = "\n".join(process.log.splitlines()[-lines:])
            sections.append((f"{process.name} (pid {process.pid}, {state})", text))
        return sections
