"""The operator's door: health, metrics, peers, logs, configuration, drain. Plain HTTP on loopback.

`start()` only binds. aiohttp is imported, in a thread, when the first connection arrives (the kernel holds it in the
backlog meanwhile): a sidecar that nobody looks at starts sooner and stays smaller.
"""

import asyncio
import socket
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from reach_core.address import is_loopback
from reach_core.door import Door
from reach_os import ports
from reach_sidecar.listen.admin_sources import Sources

if TYPE_CHECKING:
    from aiohttp import web

class AdminApp:
    """One listener. `sources` is what it shows; `api_token` is asked for where it is set (REACH_API_TOKEN).

    With `probe` it is the other listener, for the kubelet and Prometheus: `/livez`, `/readyz`, `/metrics` and nothing
    else, and whoever reaches its address may ask.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        allowed_hosts: Collection[str] = (),
        allowed_origins: Collection[str] = (),
        api_token: str | None = None,
        probe: bool = False,
    ) -> None:
        self._sources = sources
        self._door = Door(allowed_hosts, allowed_origins)
        self._api_token = api_token
        self._probe = probe
        self._socket: socket.socket | None = None
        self._runner: web.AppRunner | None = None
        self._opening: asyncio.Task[None] | None = None
        self._end_streams: Callable[[], None] = _nothing

    async def start(self, host: str, port: int) -> str:
        """Bind, and return the real `host:port`. Raises reach_os.ports.PortError."""
        self._socket = ports.listen(host, port, backlog=128)
        self._door.any_address = not is_loopback(self._socket.getsockname()[0])
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._first_connection)
        return ports.address_of(self._socket)

    def allow(self, allowed_hosts: Collection[str], allowed_origins: Collection[str]) -> None:
        """From now on these lists count."""
        self._door.allow(allowed_hosts, allowed_origins)

    def _first_connection(self) -> None:
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket.fileno())
        self._opening = loop.create_task(self._open())

    async def _open(self) -> None:
        await asyncio.to_thread(_import_routes)
        from aiohttp import web

        from reach_sidecar.listen.admin_routes import Routes

        assert self._socket is not None
        routes = Routes(self._sources, None if self._probe else self._door, self._api_token)
        self._end_streams = routes.logs.stop
        self._runner = web.AppRunner(
            routes.application(), access_log=None, handle_signals=False, handler_cancellation=True, shutdown_timeout=1.0
        )
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket).start()

    async def stop(self) -> None:
        """Close the port, end the streams, let other requests finish for a second."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        if self._opening is not None:
            await asyncio.wait([self._opening])
            if not self._opening.cancelled() and (error := self._opening.exception()) is not None:
                self._sources.log.event("error", "admin_failed", detail=str(error))
        self._end_streams()
        if self._runner is not None:
            await self._runner.cleanup()
        self._socket.close()
        self._socket = None


def _nothing() -> None:
    """No streams yet."""


def _import_routes() -> None:
    import reach_sidecar.listen.admin_routes  # noqa: F401
