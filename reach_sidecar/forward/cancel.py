"""Cancelling across the mesh is explicit: a connection that merely breaks is no reason to stop the agent's work.

Calling side: `Canceller` tells the called sidecar. Called side: `RunningCalls` knows what to stop.
"""

import asyncio
import contextlib
from collections.abc import Callable
from urllib.parse import quote

from reach_sidecar.http1.body import Body
from reach_sidecar.http1.client import ExchangeError
from reach_sidecar.http1.wire import request_head
from reach_sidecar.membership.peer import Peer

CANCEL_TIMEOUT_S = 3.0


class Canceller:
    def __init__(self, me: Callable[[], str]) -> None:
        self._me = me
        self._tasks: set[asyncio.Task[None]] = set()

    def cancel(self, peer: Peer, key: bytes) -> None:
        """Tell `peer`'s sidecar, beside whatever goes on, that nobody waits for the call `key` any more."""
        task = asyncio.get_running_loop().create_task(self._tell(peer, key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CANCEL_TIMEOUT_S)

    async def _tell(self, peer: Peer, key: bytes) -> None:
        headers = [(b"host", b"Host", peer.entry.address.encode()),
                   (b"reach-caller", b"Reach-Caller", self._me().encode())]
        head = request_head(b"DELETE", b"/v1/calls/" + quote(key, safe="").encode(), headers)
        deadline = asyncio.get_running_loop().time() + CANCEL_TIMEOUT_S
        # a peer that cannot be told notices the broken connection by itself, only later
        with contextlib.suppress(ExchangeError):
            connection = await peer.pool.acquire(1.0, CANCEL_TIMEOUT_S)
            response = await connection.exchange(b"DELETE", head, b"", deadline)
            if isinstance(response.body, Body):
                response.body.abandon()


class RunningCalls:
    """Calls that this side is delivering, by caller and key."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, bytes], asyncio.Task[object]] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._tasks)

    def enter(self, caller: str, key: bytes) -> None:
        task = asyncio.current_task(self._loop)
        if task is not None:
            self._tasks[caller, key] = task

    def leave(self, caller: str, key: bytes) -> None:
        """The current task is done with the call. Another one with the same key stays."""
        if self._tasks.get((caller, key)) is asyncio.current_task(self._loop):
            del self._tasks[caller, key]

    def cancel(self, caller: str, key: bytes) -> bool:
        """Stop the call, which closes its connection to the agent. False: it is not running here."""
        task = self._tasks.pop((caller, key), None)
        return task is not None and task.cancel()
