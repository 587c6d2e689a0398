"""A listening socket and its housekeeping: slow heads, idle connections, stalled streams.

One sweep a second per listener looks at every connection's own clock values: a timer per connection would cost
each request more than the sweep costs all of them.
"""

import asyncio
import contextlib
import socket
from typing import Any

from reach_os import ports
from reach_sidecar.http1.server import ServerConnection, Service

SWEEP_EVERY_S = 1.0
BACKLOG = 2048


class Listener:
    def __init__(self, service: Service) -> None:
        self.service = service
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None

    async def bind(self, host: str, port: int) -> tuple[str, int]:
        """Listen on `host:port` (0: any free port); may be called again for another address. Raises PortError."""
        return await self.serve(ports.listen(host, port, backlog=BACKLOG))

    async def serve(self, listening: socket.socket) -> tuple[str, int]:
        """The same with a socket that listens already."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._protocol, sock=listening, backlog=BACKLOG)
        self._servers.append(server)
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP_EVERY_S, self._sweep)
        address = server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    def _protocol(self) -> Any:
        return ServerConnection(self.service)

    def refuse_new(self) -> None:
        """Stop accepting; open connections finish what they are answering."""
        self.service.stopping = True
        for server in self._servers:
            server.close()
        for connection in list(self.service.connections):
            if not connection.busy:
                connection.close()

    async def stop(self, grace_s: float) -> None:
        """Wait up to `grace_s` for running answers, then cut what is left."""
        self.refuse_new()
        loop = asyncio.get_running_loop()
        give_up = loop.time() + grace_s
        while any(connection.busy for connection in self.service.connections) and loop.time() < give_up:
            await asyncio.sleep(0.02)
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.service.connections):
            connection.abort()
        for server in self._servers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), 1.0)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(SWEEP_EVERY_S, self._sweep)
        now = loop.time()
        for connection in list(self.service.connections):
            connection.check_time(now)
