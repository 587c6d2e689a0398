"""The job that `reach demo` sends, and the agents that do it."""

import shutil
from pathlib import Path
from typing import NamedTuple

AGENTS = Path(__file__).parent / "demo_agents"

TITLE = "What makes an agent reachable"
TEXT = """\
An agent that nobody can reach is no use to anybody, however clever it is. Being reachable means more than having an
address. The agent must be registered, so that others can find it by what it can do. It must renew its registration,
so that an agent that died is not called for ever. It must answer within the agreed time. And its answer must be a
success in meaning, since a page that says "200 OK" around an error helps no caller.

A sidecar is a small process that stands beside one agent and takes all of this off it. The agent talks plain HTTP to
its own sidecar on the same machine and to nobody else. The sidecar registers the agent, sends the heartbeat, finds a
peer for each call by capability, and delivers the call with a deadline. When a peer refuses, the sidecar tries the
next one. When nobody knows whether a call ran, the sidecar says so instead of guessing.

The control plane keeps the list of agents and spreads every change to all sidecars. It is never on the path of a
call. Each sidecar routes on its own copy of the list, so calls go on while the control plane is down. When it comes
back it reads its log, hears the next heartbeat of every agent, and the list is whole again within seconds.
"""


class DemoAgent(NamedTuple):
    """`source` runs with `PORT` and a sidecar's environment; `language` is how it is shown."""

    id: str
    capability: str
    source: Path
    language: str


def demo_agents() -> list[DemoAgent]:
    """The four agents; the scribe is a Node program where Node is installed."""
    scribe = (
        DemoAgent("scribe-01", "write.report", AGENTS / "scribe.mjs", "Node")
        if shutil.which("node")
        else DemoAgent("scribe-01", "write.report", AGENTS / "scribe.py", "Python")
    )
    return [
        DemoAgent("planner-01", "plan", AGENTS / "planner.py", "Python"),
        DemoAgent("summarizer-01", "summarize", AGENTS / "summarizer.py", "Python"),
        DemoAgent("reviewer-01", "review", AGENTS / "reviewer.py", "Python"),
        scribe,
    ]
