"""Whole control nodes in this process, each with the others in its `peers`."""

import asyncio
import io
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from reach_control.app import Control
from reach_control.config import ControlConfig, ControlListenConfig, LeaseConfig
from reach_control.telemetry.log import ControlLog
from reach_core.messages import HeartbeatAnswer, HeartbeatRequest, LeaveRequest, RegisterAnswer, RegisterRequest
from reach_core.peer import Entry

FAST = LeaseConfig(heartbeat=0.3, ttl=1.0, down=2.0, forget=4.0, cooldown=0.5)


class Node:
    """One control node; `start` again after `stop` goes on with the same state directory and address."""

    def __init__(self, folder: Path, number: int, urls: list[str], ports: list[int], token: str | None) -> None:
        self.number = number
        self.url = urls[number]
        self.out = io.StringIO()
        self.token = token
        self.folder = folder / f"node-{number}"
        self.config = ControlConfig(
            listen=ControlListenConfig(api=f"127.0.0.1:{ports[number]}", admin="127.0.0.1:0"),
            peers=[url for url in urls if url != self.url],
            lease=FAST,
            state_dir=str(self.folder),
        )
        self.control: Control | None = None

    @property
    def running(self) -> Control:
        assert self.control is not None
        return self.control

    async def start(self) -> None:
        self.control = Control(self.config, self.token)
        self.control.log = ControlLog(out=self.out)
        await self.control.start()

    async def stop(self) -> None:
        control, self.control = self.control, None
        if control is not None:
            await control.stop()

    @property
    def table(self) -> Any:
        return self.running._service.registry.table

    def register(self, agent_id: str, instance: str = "i", **fields: Any) -> RegisterAnswer:
        known = {"agent_id": agent_id, "instance": instance, "address": "127.0.0.1:1", "healthy": True}
        return self.running._service.register(RegisterRequest(**(known | fields)))

    def heartbeat(self, agent_id: str, instance: str = "i", **fields: Any) -> HeartbeatAnswer:
        known = {"agent_id": agent_id, "instance": instance, "healthy": True}
        return self.running._service.heartbeat(HeartbeatRequest(**(known | fields)))

    def leave(self, agent_id: str, instance: str = "i") -> None:
        self.running._service.leave(LeaveRequest(agent_id=agent_id, instance=instance))

    def get(self, agent_id: str) -> Entry | None:
        found: Entry | None = self.table.get(agent_id)
        return found

    def rank(self, agent_id: str) -> str | None:
        entry = self.get(agent_id)
        return None if entry is None else entry.rank.label

    def status(self) -> dict[str, Any]:
        return self.running._status()

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.out.getvalue().splitlines()]


async def until(what: Callable[[], object], seconds: float = 10.0) -> float:
    """How long it took until it was so."""
    began = time.monotonic()
    while True:
        with suppress(AssertionError, KeyError, IndexError, AttributeError):
            if what():
                return time.monotonic() - began
        if time.monotonic() - began > seconds:
            raise AssertionError(f"not within {seconds} s: {what()!r}")
        await asyncio.sleep(0.01)
