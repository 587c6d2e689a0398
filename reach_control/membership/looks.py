"""Second looks, made: this node and three sidecars each go and see whether an agent's sidecar is there.

Also the health checks that callers' reports ask for. Each runs in a task of its own; how many there are at a time is
the registry's to say (`registry/look.py`).
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from reach_control.membership.client import Client, Unanswered
from reach_control.registry.look import Look, Sighting
from reach_control.registry.reports import Probe
from reach_control.telemetry.log import ControlLog
from reach_core.messages import LookRequest

PROBE_S = 12.0  # a health check may take up to its own time-out


class Looks:
    """`counts`: `alive`, `dead`, `unsure` looks; `fit`, `unfit`, `unanswered` probes. `looked` gets each sighting."""

    def __init__(self, client: Client, looked: Callable[[Look, Sighting], None], log: ControlLog) -> None:
        self.counts: Counter[str] = Counter()
        self._client = client
        self._looked = looked
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, look: Look) -> None:
        """Go and see; `looked` is called in about 2 s at most."""
        self._start(self._look(look))

    def probe(self, probe: Probe) -> None:
        """Have the agent's own sidecar check its health: what it finds, it tells by itself."""
        self._start(self._probe(probe))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look(self, look: Look) -> None:
        own, others = await asyncio.gather(
            self._see(look), asyncio.gather(*(self._ask(witness, look) for witness in look.witnesses))
        )
        sighting = Sighting(by_control=own, alive=others.count(True), dead=others.count(False))
        self.counts["alive" if sighting.is_alive else "dead" if sighting.is_confirmed_death else "unsure"] += 1
        if not sighting.is_alive:
            self._log.event("info", "look", look.agent_id, f"Nobody answers as {look.agent_id} at {look.address}: "
                            f"not seen by this node, nor by {sighting.dead} of {len(look.witnesses)} sidecars asked.")
        self._looked(look, sighting)

    async def _see(self, look: Look) -> bool:
        """Another agent's sidecar at that address is not a sign of life of this one's."""
        try:
            return (await self._client.hello(look.address)).agent_id == look.agent_id
        except Unanswered:
            return False

    async def _ask(self, witness: str, look: Look) -> bool | None:
        """What that sidecar sees; None if it cannot be asked."""
        try:
            return (await self._client.look(witness, LookRequest(agent_id=look.agent_id, address=look.address))).alive
        except Unanswered:
            return None

    async def _probe(self, probe: Probe) -> None:
        try:
            is_fit = (await self._client.probe(probe.address, PROBE_S)).fit
        except Unanswered as error:
            self.counts["unanswered"] += 1
            detail = f"Callers report failures; its sidecar says nothing: {error}"
            self._log.event("info", "probe", probe.agent_id, detail)
            return
        self.counts["fit" if is_fit else "unfit"] += 1
        found = "finds it well" if is_fit else "finds it unfit"
        self._log.event("info", "probe", probe.agent_id, f"Callers report failures; its own sidecar {found}.")
