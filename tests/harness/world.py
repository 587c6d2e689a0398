"""A small mesh that tests share when they do not break it: one control node, a caller, three kinds of agents."""

from pathlib import Path
from typing import NamedTuple

from harness.mesh import Mesh, Sidecar
from harness.process import Process


class World(NamedTuple):
    mesh: Mesh
    control: Process
    caller: Sidecar  # the one clients talk to
    echo: Sidecar  # capability `echo`, alias `text.echo`: tests/harness/agents/echo.py
    socket: Sidecar  # capability `socket`: WebSocket
    node: Sidecar  # capability `node.echo`: the same in Node

    @property
    def url(self) -> str:
        return self.caller.url

    @property
    def echo_agent(self) -> Process:
        return self.mesh.find("echo-01-agent")


def start_world(folder: Path) -> World:
    """All of it, and ready: the caller can use each capability."""
    mesh = Mesh(folder)
    try:
        control = mesh.control()
        caller = mesh.serve("caller-01", control)
        echo = mesh.serve("echo-01", control, {"name": "echo", "aliases": ["text.echo"]})
        socket = mesh.serve("socket-01", control, {"name": "socket", "path": "/"}, script="websocket.py")
        node = mesh.serve("node-01", control, "node.echo", script="echo.mjs")
        for capability in ("echo", "socket", "node.echo"):
            mesh.wait_usable(caller, capability)
    except BaseException as error:
        mesh.stop()
        for title, text in mesh.report():
            error.add_note(f"---- {title}\n{text}")
        raise
    return World(mesh, control, caller, echo, socket, node)
