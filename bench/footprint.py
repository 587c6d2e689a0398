"""How soon one more daemon is ready, and how much memory it holds when nothing calls it."""

import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from bench import accounting, envoy, reach

SETTLE_S = 2.0  # what a daemon still does just after it is ready
IDLE_S = 3.0
_numbers = count(1)


def measure(system: str, agent: str, control: str | None, directory: Path) -> dict[str, float]:
    """{ready_s: from exec to ready, idle_mib: resident after 5 idle seconds, idle_cpu_ms: booked a second}.

    Ready is what each system says itself: the sidecar's ready file, Envoy's `/ready` on its admin port.
    """
    name = f"{system}-{next(_numbers)}-idle"
    with ExitStack() as stack:
        if control is None:
            daemon, ready = envoy.start(name, agent, "", directory)
        else:
            config = reach.sidecar_config(name, agent, control, directory / f"state-{name}", [reach.capability("idle")])
            daemon, ready = reach.start("sidecar", name, config, directory, system)  # type: ignore[assignment]
        stack.enter_context(daemon)
        daemon.wait_for(ready, "ready")
        ready_s = time.monotonic() - daemon.started_s
        time.sleep(SETTLE_S)
        booked = accounting.cpu_ns(daemon.pid)
        time.sleep(IDLE_S)
        return {
            "ready_s": ready_s,
            "idle_mib": accounting.rss_bytes(daemon.pid) / (1 << 20),
            "idle_cpu_ms": (accounting.cpu_ns(daemon.pid) - booked) / 1e6 / IDLE_S,
        }
