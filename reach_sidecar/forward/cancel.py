"""Cancelling across the mesh is explicit: a connection that merely breaks is no reason to stop the agent's work.

This is the calling side, which tells the called sidecar; what is to be stopped there, `running.py` knows.
"""

import asyncio
import contextlib
from urllib.parse import quote

from reach_sidecar.http1.body import Body
from reach_sidecar.http1.client import ExchangeError
from reach_sidecar.http1.wire import request_head
from reach_sidecar.membership.peer import Peer

CANCEL_TIMEOUT_S = 3.0


class Canceller:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def cancel(self, peer: Peer, caller: str, key: bytes) -> None:
        """Tell `peer`'s sidecar, beside whatever goes on, that nobody waits for the call `key` any more."""
        task = asyncio.get_running_loop().create_task(self._tell(peer, caller, key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CANCEL_TIMEOUT_S)

    async def _tell(self, peer: Peer, caller: str, key: bytes) -> None:
        headers = [(b"host", b"Host", peer.entry.address.encode()),
                   (b"reach-caller", b"Reach-Caller", caller.encode())]
        head = request_head(b"DELETE", b"/v1/calls/" + quote(key, safe="").encode(), headers)
        deadline = asyncio.get_running_loop().time() + CANCEL_TIMEOUT_S
        # a peer that cannot be told notices the broken connection by itself, only later
        with contextlib.suppress(ExchangeError):
            connection = await peer.pool.acquire(1.0, CANCEL_TIMEOUT_S)
            response = await connection.exchange(b"DELETE", head, b"", deadline)
            if isinstance(response.body, Body):
                response.body.abandon()
