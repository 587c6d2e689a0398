"""Many agents with slow work: 100 sidecars that serve, one that calls, 1,000 calls a second, 3 s of work each.

About 3,000 calls are on their way at any time, of the 4,000 that the agents take. One process plays all the agents
(it only waits); every sidecar is a real one.
"""

import resource
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from bench import reach
from bench.agent import WORK_S
from bench.daemon import BenchError, Daemon, ask_all_to_end
from bench.offer import offer
from bench.pair import Pair

AGENTS = 100
MAX_CONCURRENCY = 40
RATE = 1000
SECONDS = 15.0
CONNECTIONS = 4000
READY_WITHIN_S = 240.0
DESCRIPTORS = 20_000
Serves = Callable[[int], Sequence[dict[str, Any]]]
_numbers = count(1)


def measure(build: str, agent: str, control: str, directory: Path) -> dict[str, float]:
    """{lost: calls without a 200, p95_overhead_ms: latency beyond the work, overhead_percent: its mean share}."""
    _allow_descriptors()
    with ExitStack() as stack:
        work = f"fleet-{next(_numbers)}"
        caller = stand(build, agent, control, directory, stack, work, AGENTS, MAX_CONCURRENCY)
        found = offer(caller.address, f"/to/{work}/work", RATE, SECONDS, CONNECTIONS, cold=True)
    work_ms = WORK_S * 1000
    return {
        "lost": found["lost"],
        **{f"answers_{what}": number for what, number in found["answers"].items()},
        "p95_overhead_ms": found["p95_ms"] - work_ms,
        "overhead_percent": (found["mean_ms"] - work_ms) / found["mean_ms"] * 100,
    }


def stand(
    build: str, agent: str, control: str, directory: Path, stack: ExitStack, work: str, agents: int,
    max_concurrency: int, serves: Serves | None = None,
) -> Pair:
    """A caller that sees all of `agents` sidecars which serve the capability `work`, or what `serves` says of the
    agent of each number from 1 on."""
    daemons: list[Daemon] = []
    looks = []
    for number in range(agents + 1):
        name = f"{work}-{number}" if number else f"{work}-caller"
        served = [] if not number else [reach.capability(work)] if serves is None else serves(number)
        config = reach.sidecar_config(name, agent, control, directory / f"state-{name}", served, max_concurrency)
        daemon, look = reach.start("sidecar", name, config, directory, build)
        daemons.append(stack.enter_context(daemon))
        looks.append(look)
    stack.callback(ask_all_to_end, daemons)  # at once, before each is waited for
    ready = [daemon.wait_for(look, "ready", READY_WITHIN_S) for daemon, look in zip(daemons, looks, strict=True)]
    caller = Pair("fleet", str(ready[0]["outbound"]), f"/to/{work}", (daemons[0],))
    daemons[0].wait_for(
        lambda: True if reach.callable_agents(caller, work) == agents else None,
        f"aware of all {agents} agents", READY_WITHIN_S,
    )  # fmt: skip
    return caller


def _allow_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if wanted < 2 * CONNECTIONS:
        raise BenchError(f"{hard} open files are too few for {CONNECTIONS} calls at once: raise `ulimit -Hn`.")
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
