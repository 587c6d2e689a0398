"""The processes of `reach demo`: one control node, and a sidecar and an agent four times.

They are ordinary `reach control` and `reach sidecar` processes with their files in one temporary directory. They die
with the demo, even if that is killed hard (Linux: PR_SET_PDEATHSIG).
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reach_cli import run_shim
from reach_cli.demo_job import DemoAgent
from reach_cli.failure import Failed
from reach_cli.run_control import last_lines
from reach_cli.run_environment import agent_environment
from reach_cli.run_ports import free_port

READY_TIMEOUT_S = 20.0
POLL_S = 0.02
STOP_TIMEOUT_S = 4.0


@dataclass
class Member:
    """One agent with its sidecar, and where they listen."""

    agent: DemoAgent
    port: int
    sidecar: subprocess.Popen[bytes]
    process: subprocess.Popen[bytes] | None = None
    outbound: str = ""
    admin: str = ""


class Mesh:
    """Use as a context manager: leaving it ends every process and removes the directory."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="reach-demo-"))
        self.members: list[Member] = []
        self.control_url = ""
        self._progress = progress
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # Their own run directory: whoever has a sidecar running does not want four more to choose from.
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("REACH_")}
        self._env["REACH_RUN_DIR"] = str(self.directory / "run")

    def __enter__(self) -> "Mesh":
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C must not leave half of it behind; ending takes seconds at most.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.stop()
        finally:
            signal.signal(signal.SIGINT, before)

    def start(self, agents: Sequence[DemoAgent]) -> None:
        """Start everything and wait until every agent is called `up` by every sidecar. Raises Failed."""
        self._progress("starting the control node")
        control = self._daemon("control", "control", {"listen": {"api": "127.0.0.1:0", "admin": "127.0.0.1:0"}})
        self.control_url = f"http://{self._ready('control', control)['api']}"
        self._progress("starting four sidecars and four agents")
        taken: set[int] = set()
        for agent in agents:
            port = free_port(os.getpid() * 7, frozenset(taken))
            taken.add(port)
            self.members.append(Member(agent, port, self._sidecar(agent, port)))
        for member in self.members:
            ready = self._ready(f"{member.agent.id}.sidecar", member.sidecar)
            member.outbound, member.admin = ready["outbound"], ready["admin"]
            env = agent_environment(self._env, outbound=member.outbound, admin=member.admin, port=member.port)
            runner = "node" if member.agent.source.suffix == ".mjs" else sys.executable
            member.process = self._spawn(member.agent.id, [runner, str(member.agent.source)], env)
        self._progress("waiting until they know each other")
        self._wait_until_known()

    def ended(self) -> list[tuple[str, int]]:
        """(name, exit code) of the processes that have ended since the last time."""
        gone = [(name, process.returncode) for name, process in self._processes.items() if process.poll() is not None]
        for name, _ in gone:
            del self._processes[name]
        return gone

    def log_of(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def stop(self) -> None:
        """End all at once, hard after a while, and remove their files."""
        for process in self._processes.values():
            with contextlib.suppress(OSError):
                process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _sidecar(self, agent: DemoAgent, port: int) -> subprocess.Popen[bytes]:
        return self._daemon(
            "sidecar",
            f"{agent.id}.sidecar",
            {
                "agent": {
                    "id": agent.id,
                    "address": f"http://127.0.0.1:{port}",
                    "health": {"path": "/healthz", "interval": "1s"},
                    "capabilities": [{"name": agent.capability, "idempotent": True, "timeout": "30s"}],
                },
                "control": [self.control_url],
                "listen": {"outbound": "127.0.0.1:0", "mesh": "127.0.0.1:0", "admin": "127.0.0.1:0"},
                "drain": {"wait": "0s", "grace": "1s"},
            },
        )

    def _daemon(self, kind: str, name: str, settings: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        config = self.directory / f"{name}.yaml"
        # JSON is YAML. A `$` would be expanded, and the temporary directory may have one in its name.
        state = str(self.directory / name).replace("$", "$$")
        config.write_text(json.dumps({**settings, "state_dir": state}, indent=2))
        ready = self.directory / f"{name}.ready"
        command = [sys.executable, "-m", "reach_cli", kind, "-c", str(config), "--ready-file", str(ready)]
        return self._spawn(name, command, self._env)

    def _spawn(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        parent = os.getpid()

        def die_with_parent() -> None:
            run_shim.prctl(run_shim.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        with open(self.log_of(name), "wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(env),
                start_new_session=True,  # Ctrl-C is for us: we end them in order
                preexec_fn=die_with_parent,  # safe: no threads here
            )
        self._processes[name] = process
        return process

    def _ready(self, name: str, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """The ready file of a daemon, once it is there."""
        path = self.directory / f"{name}.ready"
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                return dict(json.loads(path.read_text()))
            if process.poll() is not None:
                raise self._failed(name, f"ended with exit code {process.returncode} before it was ready")
            time.sleep(POLL_S)
        raise self._failed(name, f"was not ready within {READY_TIMEOUT_S:.0f} s")

    def _wait_until_known(self) -> None:
        from reach_cli.admin import Door
        from reach_cli.agents import agents_of

        everyone = {member.agent.id for member in self.members}
        deadline = time.monotonic() + READY_TIMEOUT_S
        unknown: dict[str, set[str]] = {}
        while time.monotonic() < deadline:
            for name, code in self.ended():
                raise self._failed(name, f"ended with exit code {code}")
            for member in self.members:
                peers = agents_of(Door(f"http://{member.admin}").get("/v1/peers"))
                up = {agent["agent_id"] for agent in peers if agent["status"] == "up" and not agent.get("excluded")}
                unknown[member.agent.id] = everyone - up
            if not any(unknown.values()):
                return
            time.sleep(POLL_S)
        blind, missing = next((name, missing) for name, missing in unknown.items() if missing)
        detail = f"did not see {', '.join(sorted(missing))} come up within {READY_TIMEOUT_S:.0f} s"
        raise self._failed(f"{blind}.sidecar", detail)

    def _failed(self, name: str, what: str) -> Failed:
        return Failed(f"The demo's {name} {what}. Its last words:\n{last_lines(self.log_of(name))}")
