"""Loops that must not end: what one of them raises is a defect, which costs a log line and a pause, not the service."""

import asyncio
from collections.abc import Awaitable, Callable

from reach_sidecar.membership.controls import EventLog

PAUSE_S = 1.0


async def supervise(name: str, run: Callable[[], Awaitable[None]], log: EventLog) -> None:
    """Run `run` again whenever it ends, until cancelled."""
    while True:
        try:
            await run()
            why = "it ended"
        except Exception as error:
            why = repr(error)
        log.event("error", "defect", detail=f"{name}: {why}. It begins again in {PAUSE_S:g} s.")
        await asyncio.sleep(PAUSE_S)
