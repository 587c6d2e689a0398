"""The sockets of a control node: bound first, all of them, and served once there is something to say.

The `api` listener's address is taken for UDP as well: acknowledgements of sidecars come there.
"""

import socket
from collections.abc import Iterable

from aiohttp import web
from aiohttp.typedefs import Middleware

from reach_control.config import ControlListenConfig
from reach_control.telemetry.log import ControlLog
from reach_core.address import is_loopback, join_address, split_address
from reach_os.ports import PortError, address_of, configured_as, listen, listen_pair

STOP_S = 2.0


class Listeners:
    """`sockets` by name: `api`, `admin`, and `probe` if there is one. `datagrams`: the UDP socket of `api`."""

    def __init__(self) -> None:
        self.sockets: dict[str, socket.socket] = {}
        self.datagrams: socket.socket | None = None
        self._runners: list[web.AppRunner] = []

    def bind(self, wanted: ControlListenConfig, is_insecure: bool, log: ControlLog) -> None:
        """Raises PortError; `close` gives back what was bound by then."""
        for name, address in (("api", wanted.api), ("admin", wanted.admin), ("probe", wanted.probe)):
            if address is None:
                continue
            host, port = split_address(address)
            if name != "probe" and not is_loopback(host):
                _check_exposure(name, address, is_insecure, log)
            with configured_as(f"listen.{name}"):
                if name == "api":
                    self.sockets[name], self.datagrams = listen_pair(host, port)
                else:
                    self.sockets[name] = listen(host, port)

    async def serve(self, name: str, routes: Iterable[web.RouteDef], middlewares: Iterable[Middleware],
                    max_body: int) -> None:
        """Answer at that listener from now on."""
        app = web.Application(middlewares=list(middlewares), client_max_size=max_body)
        app.add_routes(routes)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_S)
        await runner.setup()
        self._runners.append(runner)
        await web.SockSite(runner, self.sockets[name], backlog=1024).start()

    async def close(self) -> None:
        """Let those that are answered finish for STOP_S, and give the ports back."""
        for runner in self._runners:
            await runner.cleanup()
        for taken in self.sockets.values():
            taken.close()
        if self.datagrams is not None:
            self.datagrams.close()

    @property
    def addresses(self) -> dict[str, str]:
        """`host:port` by name, as they really are."""
        return {name: address_of(taken) for name, taken in self.sockets.items()}

    @property
    def url(self) -> str:
        """Of the `api` listener, as far as it knows itself."""
        host, port = self.sockets["api"].getsockname()[:2]
        return f"http://{join_address(str(host), int(port))}"

    def is_local(self, name: str) -> bool:
        """Is it reachable from this machine only?"""
        return is_loopback(self.sockets[name].getsockname()[0])


def _check_exposure(name: str, address: str, is_insecure: bool, log: ControlLog) -> None:
    if not is_insecure:
        raise PortError(
            f"`listen.{name}: {address}` would be reachable from other machines without TLS. "
            "Listen on 127.0.0.1, or write `insecure: true` for a closed network."
        )
    detail = f"{name} listens on {address} without TLS: whoever reaches it can register agents (insecure: true)."
    log.event("warn", "insecure", detail=detail)
