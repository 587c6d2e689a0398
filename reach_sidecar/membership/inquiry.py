"""Asking control what holds mesh-wide besides the table: before the first table, and whenever it changed."""

import asyncio
import time
from collections.abc import Callable, Sized

from reach_sidecar.membership.controls import Backoff, Controls, Refused, Unreachable
from reach_sidecar.membership.facts import MeshFacts

PER_AGENT_S = 0.001
"""All sidecars hear at once that something changed: they ask within a second for every thousand of them."""
PAUSE_S = 1.0


class Inquiry:
    """`hear` says that there is something new; `on_changed` is called once it was fetched into `facts`."""

    def __init__(self, facts: MeshFacts, controls: Controls, agents: Sized, on_changed: Callable[[], None]) -> None:
        self._facts = facts
        self._controls = controls
        self._agents = agents
        self._on_changed = on_changed
        self._heard = 0
        self._due = asyncio.Event()

    def hear(self, version: int) -> None:
        """Somebody knows facts of this version, or our control node now has that one."""
        if version != self._heard:
            self._heard = version
            self._due.set()

    async def ask_first(self) -> None:
        """Ask the current node unless it has told already. Raises Unreachable or Refused."""
        if not self._facts.version_of(self._controls.url or ""):
            await self._ask()

    async def run(self) -> None:
        backoff = Backoff()
        while True:
            await self._due.wait()
            self._due.clear()
            await asyncio.sleep(self._controls.chance() * PER_AGENT_S * len(self._agents))
            try:
                await self._ask()
            except (Unreachable, Refused):
                self._due.set()
                await asyncio.sleep(backoff.next_s(self._controls.chance()))
            else:
                backoff.reset()
                await asyncio.sleep(PAUSE_S)

    async def _ask(self) -> None:
        url, info = await self._controls.info()
        self._facts.take(url, info, time.monotonic())
        self._on_changed()
