"""Connections to one address, the last used one first, so that the rest can grow old and be closed."""

import asyncio
import ssl
from typing import Any, cast

from reach_sidecar.http1.client import ClientConnection, ConnectFailed
from reach_sidecar.http1.deadlines import Deadlines
from reach_sidecar.http1.limits import Limits


class Pool:
    """`trust_s`: a connection that was used so shortly before is taken for alive without asking the kernel. The
    question is a system call that also lets other threads run; it is worth it where servers close as they like.
    """

    def __init__(self, host: str, port: int, limits: Limits, *, tls: ssl.SSLContext | None = None,
                 trust_s: float = 0.0) -> None:
        self.host = host
        self.port = port
        self._limits = limits
        self.deadlines = Deadlines()
        self._tls = tls
        self._trust_s = trust_s
        self._idle: list[ClientConnection] = []
        self._open: set[ClientConnection] = set()
        self._retired = False

    @property
    def idle(self) -> int:
        return len(self._idle)

    def __len__(self) -> int:
        return len(self._open)

    def take_idle(self, max_idle_s: float) -> ClientConnection | None:
        """A live connection that was idle for less than `max_idle_s`, or None."""
        while self._idle:
            connection = self._idle.pop()
            idle_s = connection.idle_s
            if idle_s < max_idle_s and connection.alive(ask_kernel=idle_s >= self._trust_s):
                return connection
            connection.abort()
        return None

    def _protocol(self) -> Any:
        return ClientConnection(self, self._limits)

    async def connect(self, timeout_s: float | None = None) -> ClientConnection:
        """A new connection. Raises ConnectFailed."""
        loop = asyncio.get_running_loop()
        usual_s = self._limits.connect_timeout_s
        try:
            async with asyncio.timeout(min(usual_s, timeout_s or 3600.0)):
                _, made = await loop.create_connection(self._protocol, self.host, self.port, ssl=self._tls)
        except TimeoutError:
            raise ConnectFailed(f"connecting to {self.host}:{self.port} timed out",
                                hurried=timeout_s is not None and timeout_s < usual_s) from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConnectFailed(f"connecting to {self.host}:{self.port} failed: {reason}",
                                refused="refused" in reason) from None
        except UnicodeError:
            raise ConnectFailed(f"{self.host!r} cannot be the name of a host") from None
        connection = cast(ClientConnection, made)
        if not connection.closed:  # it may be gone again already
            self._open.add(connection)
        return connection

    async def acquire(self, max_idle_s: float, timeout_s: float | None = None) -> ClientConnection:
        """An idle connection that is still good, else a new one. Raises ConnectFailed."""
        return self.take_idle(max_idle_s) or await self.connect(timeout_s)

    def release(self, connection: ClientConnection) -> None:
        if self._retired:
            connection.close()
        else:
            self._idle.append(connection)

    def forget(self, connection: ClientConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def prune(self, now: float, max_idle_s: float) -> None:
        """Close what has been idle for `max_idle_s` or longer."""
        old = [connection for connection in self._idle if now - connection.idle_since >= max_idle_s]
        for connection in old:
            connection.close()
        if old:
            self._idle = [connection for connection in self._idle if now - connection.idle_since < max_idle_s]

    def close_idle(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def retire(self) -> None:
        """Nobody will ask for a connection again; calls that are under way keep theirs to their end."""
        self._retired = True
        self.close_idle()

    def close(self) -> None:
        """All at once, calls under way included."""
        for connection in list(self._open):
            connection.discard()
        self._idle.clear()
