"""A control node that does what a test scripts: real HTTP, a real table, no leases of its own."""

import asyncio
import time

import pytest
from aiohttp import web

from reach_core import messages
from reach_core.peer import Entry, Rank
from reach_core.table import PeerTable


class ScriptedControl:
    """Restart it with `stop` and `start`: it keeps its port. `refuse` maps a path to `(status, code)`."""

    def __init__(self, heartbeat_s=0.1, ttl_s=0.3):
        self.table = PeerTable()
        self.epoch = "first"
        self.heartbeat_s, self.ttl_s = heartbeat_s, ttl_s
        self.known = {}
        self.refuse = {}
        self.registrations, self.heartbeats, self.left, self.polls = [], [], [], []
        self.loads = {}
        self.aliases = {}
        self.info = None  # as of a node that is too old to know such a thing
        self.asked_info = 0
        self.port = 0
        self.hang = False
        self._changed = asyncio.Event()
        self._runner = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def start(self):
        app = web.Application()
        app.router.add_post("/v1/register", self._register)
        app.router.add_post("/v1/heartbeat", self._heartbeat)
        app.router.add_post("/v1/leave", self._leave)
        app.router.add_get("/v1/table", self._table)
        app.router.add_get("/v1/mesh", self._mesh)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        return self

    async def stop(self):
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    def put(self, agent_id, gen=1, ver=0, rank=Rank.UP, **fields):
        entry = Entry(agent_id=agent_id, gen=gen, ver=ver, rank=rank, **fields)
        self.merge(entry)
        return entry

    def merge(self, *entries):
        self.table.merge(entries, time.time_ns() // 1_000_000)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _read(self, request, kind):
        if self.hang:
            await asyncio.sleep(60)
        message = messages.decode(kind, await request.read())
        if request.path in self.refuse:
            status, code = self.refuse[request.path]
            return message, web.json_response({"type": f"urn:reach:{code}", "detail": f"{code} it is."}, status=status)
        return message, None

    async def _register(self, request):
        message, refusal = await self._read(request, messages.RegisterRequest)
        if refusal:
            return refusal
        self.registrations.append(message)
        gen, ver = self.known.get(message.agent_id, (len(self.known) + 1, -1))
        self.known[message.agent_id] = (gen, ver + 1)
        self.put(message.agent_id, gen, ver + 1, address=message.address, capabilities=message.capabilities)
        answer = messages.RegisterAnswer(
            status="registered", agent_id=message.agent_id, gen=gen, ver=ver + 1, rank="up",
            lease_ttl_s=self.ttl_s, heartbeat_s=self.heartbeat_s, epoch=self.epoch, seq=self.table.seq,
            info=self.info.version if self.info else 0, hash=self.table.hash)
        return web.Response(body=messages.encode(answer))

    async def _heartbeat(self, request):
        message, refusal = await self._read(request, messages.HeartbeatRequest)
        if refusal:
            return refusal
        if message.agent_id not in self.known:
            return web.json_response({"type": "urn:reach:register_again", "detail": "Who?"}, status=404)
        self.heartbeats.append(message)
        gen, ver = self.known[message.agent_id]
        answer = messages.HeartbeatAnswer(
            status="ok", gen=gen, ver=ver, rank="up", lease_ttl_s=self.ttl_s,
            epoch=self.epoch, seq=self.table.seq, loads=self.loads, info=self.info.version if self.info else 0,
            hash=self.table.hash)
        return web.Response(body=messages.encode(answer))

    async def _leave(self, request):
        message, refusal = await self._read(request, messages.LeaveRequest)
        if refusal:
            return refusal
        self.left.append(message.agent_id)
        self.known.pop(message.agent_id, None)
        return web.Response(body=messages.encode(messages.LeaveAnswer(status="left", agent_id=message.agent_id)))

    async def _mesh(self, request):
        self.asked_info += 1
        if self.info is None:
            return web.json_response({"type": "urn:reach:not_found", "detail": "There is nothing."}, status=404)
        return web.Response(body=messages.encode(self.info))

    async def _table(self, request):
        since, epoch = int(request.query["since"]), request.query["epoch"]
        self.polls.append((since, epoch))
        if request.path in self.refuse:
            status, code = self.refuse[request.path]
            return web.json_response({"type": f"urn:reach:{code}", "detail": f"{code} it is."}, status=status)
        wait_s = float(request.query["wait"].removesuffix("s"))
        if epoch == self.epoch and since == self.table.seq:
            changed = self._changed
            try:
                async with asyncio.timeout(wait_s):
                    await changed.wait()
            except TimeoutError:
                pass
        full = epoch != self.epoch
        entries = self.table.delta_since(0 if full else since)
        return web.Response(
            body=messages.encode_table(self.epoch, self.table.seq, full, self.table.hash, entries,
                                       self.aliases if full else None, self.info.version if self.info else 0))


class Log:
    def __init__(self):
        self.events = []

    def event(self, level, event, **fields):
        self.events.append((level, event, fields))

    def statuses(self, event):
        return [fields.get("status") for _, name, fields in self.events if name == event]


@pytest.fixture
def log():
    return Log()


@pytest.fixture
async def control():
    one = await ScriptedControl().start()
    yield one
    await one.stop()


@pytest.fixture
async def other_control():
    one = await ScriptedControl().start()
    yield one
    await one.stop()


@pytest.fixture
def until():
    async def wait(condition, within_s=5.0):
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, "it did not come to pass in time"
            await asyncio.sleep(0.01)

    return wait
