"""The mesh door of a sidecar that answers control's questions as it is told to, on a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from reach_core.messages import Hello, LookAnswer, LookRequest, Message, ProbeAnswer, decode, encode
from reach_os.ports import address_of, listen_pair


class MeshDoor:
    """`address` is `host:port`. `name`: who it says it is; `sees`: what it says of agents it is sent to look at;
    `is_fit`: what its health check finds. A `silent` one takes connections and never answers; `status` and `gossip` are
    what `/v1/gossip` answers with. `datagrams` is the UDP socket of the same address, for who wants to hear there. `asked` are the paths it was asked for, `looked_at` who it was sent to look at."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self.sees = True
        self.is_fit = True
        self.silent = False
        self.raw: bytes | None = None
        self.status = 200
        self.gossip = b""
        self.bodies: list[bytes] = []
        self.asked: list[str] = []
        self.looked_at: list[LookRequest] = []
        self.headers: list[dict[str, str]] = []
        self.datagrams: socket.socket | None = None
        self._released = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["MeshDoor"]:
        app = web.Application()
        app.add_routes([
            web.get("/v1/hello", self._hello), web.post("/v1/look", self._look), web.post("/v1/probe", self._probe),
            web.post("/v1/gossip", self._gossip), web.post("/v1/nodes", self._gossip),
        ])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await runner.setup()
        taken, self.datagrams = listen_pair("127.0.0.1", 0)
        await web.SockSite(runner, taken).start()
        self.address = address_of(taken)
        try:
            yield self
        finally:
            self._released.set()
            self.datagrams.close()
            await runner.cleanup()

    async def _answer(self, request: web.Request, message: Message) -> web.Response:
        self.asked.append(request.path)
        self.headers.append(dict(request.headers))
        if self.silent:
            await self._released.wait()
        body = encode(message) if self.raw is None else self.raw
        return web.Response(body=body, content_type="application/json")

    async def _hello(self, request: web.Request) -> web.Response:
        return await self._answer(request, Hello(agent_id=self.name))

    async def _look(self, request: web.Request) -> web.Response:
        self.looked_at.append(decode(LookRequest, await request.read()))
        return await self._answer(request, LookAnswer(alive=self.sees))

    async def _probe(self, request: web.Request) -> web.Response:
        return await self._answer(request, ProbeAnswer(fit=self.is_fit))

    async def _gossip(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        self.asked.append(request.path)
        self.headers.append(dict(request.headers))
        if self.silent:
            await self._released.wait()
        return web.Response(body=self.gossip, status=self.status)
