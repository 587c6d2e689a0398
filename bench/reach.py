"""A control node and two sidecars, started by the commands operators use, every port a free one.

There are two builds of them: `pure`, the Python as it is, and `compiled`, whose hot modules are C.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from bench import fetch
from bench.daemon import ROOT, BenchError, Daemon, python_module, read_json
from bench.pair import Pair

COMMANDS = {"compiled": ROOT / ".venv-compiled" / "bin" / "reach", "pure": ROOT / ".venv" / "bin" / "reach"}
TARGETS = {"compiled": "make compiled", "pure": "make install"}
ROUTABLE_WITHIN_S = 30.0
MIN_LINE_BYTES = 200  # a call's line has about 400
LOGGED_WITHIN_S = 5.0
LOCAL = "127.0.0.1:0"
COUNTS = "calls.profile"
DEDUPS = ("off", "memory", "durable")


def capability(name: str, dedup: str = "memory") -> dict[str, Any]:
    """As it stands in `sidecar.yaml`; what it does must not be done twice."""
    return {"name": name, "attributes": {"language": ["en"]}, "dedup": dedup}


def sidecar_config(
    agent_id: str, agent: str, control: str, state: Path, serves: Sequence[dict[str, Any]], max_concurrency: int = 64
) -> dict[str, Any]:
    """Logging as JSON, the log store, tracing and metrics are all on, and deduplication as `serves` has it."""
    return {
        "agent": {
            "id": agent_id,
            "address": f"http://{agent}",
            "max_concurrency": max_concurrency,
            "capabilities": list(serves),
        },
        "control": [f"http://{control}"],
        "listen": {"outbound": LOCAL, "mesh": LOCAL, "admin": LOCAL},
        "drain": {"wait": "0s"},
        "state_dir": str(state),
        "log": {"level": "info", "format": "json"},
    }


def control_config(state: Path) -> dict[str, Any]:
    return {"cluster": "bench", "listen": {"api": LOCAL, "admin": LOCAL}, "state_dir": str(state)}


def start(
    verb: str, name: str, config: dict[str, Any], directory: Path, build: str = "pure", counted: bool = False
) -> tuple[Daemon, Callable[[], dict[str, Any] | None]]:
    """One daemon, and a look at it: its ready file once it is there, None before.

    `counted`: under cProfile, which leaves its counts in the daemon's directory when it ends (pure only).
    """
    if not COMMANDS[build].exists():
        raise BenchError(f"{COMMANDS[build]} is missing: run `{TARGETS[build]}` first.")
    own = directory / name
    own.mkdir()
    file, ready_file = own / f"{verb}.yaml", own / "ready.json"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    counting = python_module("cProfile", "-o", str(own / COUNTS), "-m", "reach_cli")
    command = counting if counted else [str(COMMANDS[build])]
    command += [verb, "-c", str(file), "--ready-file", str(ready_file)]
    daemon = Daemon(name, command, own, env={"XDG_RUNTIME_DIR": str(directory)})
    return daemon, lambda: read_json(ready_file)


def start_control(directory: Path, stack: ExitStack) -> str:
    """Address of its API."""
    control, ready = start("control", "reach-control", control_config(directory / "state-control"), directory)
    stack.enter_context(control)
    return str(control.wait_for(ready, "ready")["api"])


def start_pair(
    build: str, agent_address: str, control: str, directory: Path, stack: ExitStack, counted: bool = False
) -> Pair:
    """Caller's sidecar → called agent's sidecar → agent, once a call has gone through. All end with `stack`."""
    hops: list[Daemon] = []
    outbound = ""
    echo = f"echo-{build}"  # the builds share a control node, and must not call each other
    for name, serves in ((f"{build}-b", [capability(echo)]), (f"{build}-a", [])):
        config = sidecar_config(name, agent_address, control, directory / f"state-{name}", serves)
        daemon, ready = start("sidecar", name, config, directory, build, counted)
        stack.enter_context(daemon)
        hops.insert(0, daemon)
        outbound = str(daemon.wait_for(ready, "ready")["outbound"])
    pair = Pair(build, outbound, f"/to/{echo}", tuple(hops))
    hops[0].wait_for(lambda: _call(pair), f"able to call {echo}", ROUTABLE_WITHIN_S)
    return pair


def start_variants(
    caller: Pair, agent_address: str, control: str, directory: Path, stack: ExitStack
) -> dict[str, Pair]:
    """The same caller in front of another sidecar, which serves the agent with each kind of `dedup`: a pair for each.

    Its store in memory holds more than the usual one: keys of the callers' own stay there for ten minutes, and under
    full load 64 MiB of them are reached within seconds.
    """
    build = caller.name
    name = f"{build}-c"
    serves = [capability(f"{dedup}-{build}", dedup) for dedup in DEDUPS]
    config = sidecar_config(name, agent_address, control, directory / f"state-{name}", serves, max_concurrency=128)
    daemon, ready = start("sidecar", name, config | {"dedup": {"memory": "1GiB"}}, directory, build)
    stack.enter_context(daemon)
    daemon.wait_for(ready, "ready")
    pairs = {dedup: Pair(build, caller.address, f"/to/{dedup}-{build}", (caller.hops[0], daemon)) for dedup in DEDUPS}
    for pair in pairs.values():
        daemon.wait_for(lambda pair=pair: _call(pair), f"reached through {pair.prefix}", ROUTABLE_WITHIN_S)  # type: ignore[misc]
    return pairs


def commits(hop: Daemon, directory: Path) -> int:
    """Transactions that the sidecar has written to its journal of calls since it opened that.

    SQLite counts them in the index of its write-ahead log, at offset 8, in the machine's own byte order
    ("WAL-mode File Format", 2.1).
    """
    with (directory / f"state-{hop.name}" / "delivery.db-shm").open("rb") as index:
        return int.from_bytes(index.read(12)[8:], sys.byteorder)


def require_logged(hop: Daemon, earlier: int, calls: int) -> None:
    """A sidecar that stopped logging would look fast: its log has to have grown since it had `earlier` bytes."""
    wanted = earlier + calls * MIN_LINE_BYTES
    hop.wait_for(lambda: True if hop.logged_bytes >= wanted else None, f"done logging {calls} calls", LOGGED_WITHIN_S)


def state_of_compiled() -> str:
    """`fresh`, `stale` (sources changed since) or `missing`; make knows."""
    if not COMMANDS["compiled"].exists():
        return "missing"
    done = subprocess.run(["make", "-q", ".venv-compiled/.installed"], cwd=ROOT, capture_output=True, check=False)
    return "stale" if done.returncode == 1 else "fresh"


def _call(pair: Pair) -> bool | None:
    try:
        status, _ = fetch.request(pair.address, "POST", f"{pair.prefix}/process", b"{}")
    except OSError:
        return None
    return True if status == 200 else None


def callable_agents(pair: Pair, capability: str) -> int:
    """How many agents the calling sidecar would call for `capability` now."""
    try:
        agents = fetch.get_json(pair.address, f"/v1/agents?capability={capability}")["agents"]
    except (OSError, ValueError, KeyError):
        return 0
    return sum(1 for agent in agents if not agent["excluded"])
