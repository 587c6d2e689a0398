"""Puts everything up, and takes everything down however it ends."""

import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

from bench import agent, dedup, envoy, pair, reach, wrk
from bench.daemon import Daemon, ask_all_to_end, python_module, read_json
from bench.measures import BUILDS, Rig

WARM_UP_CONNECTIONS = (16, 1)


@contextmanager
def standing(
    systems: tuple[str, ...],
    seconds: float,
    warm_up_s: float,
    progress: Callable[[str], None],
    counted: bool = False,
    with_variants: bool = False,
) -> Iterator[Rig]:
    """The agent and the asked `systems` (of direct, envoy, compiled, pure), warm. Nothing is left afterwards.

    `with_variants`: of each build of Reach also a pair for each kind of `dedup`.
    """
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _leave))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reach-bench-")))
        progress("starting the agent")
        address = _start_agent(directory, stack)
        pairs, control = {"direct": pair.direct(address)}, None
        variants: dict[str, dict[str, pair.Pair]] = {}
        if "envoy" in systems:
            progress("starting the Envoys")
            pairs["envoy"] = envoy.start_pair(address, directory, stack)
        builds = [build for build in BUILDS if build in systems]
        if builds:
            progress("starting the control node and the sidecars")
            control = reach.start_control(directory, stack)
            for build in builds:
                pairs[build] = reach.start_pair(build, address, control, directory, stack, counted)
                if with_variants:
                    variants[build] = reach.start_variants(pairs[build], address, control, directory, stack)
        hops = [hop for one in pairs.values() for hop in one.hops]
        hops += [kinds["memory"].hops[-1] for kinds in variants.values()]
        stack.callback(ask_all_to_end, hops)  # at once: each may take seconds to drain
        rig = Rig(address, control, {name: pairs[name] for name in systems}, directory, seconds, variants)
        for one in rig.pairs.values():
            for connections in WARM_UP_CONNECTIONS:
                progress(f"warming up {one.name}")
                load = wrk.run(one.url("/process"), connections, warm_up_s, rig.script)
                load.require_clean(one.name)
                rig.warm_up_calls[one.name] += load.calls
        for build, kinds in variants.items():
            progress(f"warming up {build}, each kind of dedup")
            dedup.warm_up(kinds, directory)
        yield rig


def _start_agent(directory: Path, stack: ExitStack) -> str:
    ready_file = directory / "agent.json"
    daemon = Daemon("agent", python_module(agent.__name__, str(ready_file)), directory)
    stack.enter_context(daemon)
    return str(daemon.wait_for(lambda: read_json(ready_file), "ready")["address"])


def _leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)
