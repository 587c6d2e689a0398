"""A mesh inside the test's own process: real sidecars on real sockets, no control node, agents that follow a script.

Tables are fed as the membership driver would: `share` merges every sidecar's entry into every table. So a test says
exactly what each side believes, and reads what only shows inside (slots, counters, log lines).
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson
from sidecar.http1.raw import Answer, Peer, Upstream, read_head

from reach_core.peer import Entry, Rank
from reach_sidecar.app import Sidecar
from reach_sidecar.config import (
    AgentConfig,
    CapabilityConfig,
    DrainConfig,
    HealthConfig,
    ListenConfig,
    LogConfig,
    SidecarConfig,
)

PATIENCE_S = 8.0
Script = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]


async def until(condition: Callable[[], object], what: str = "it", patience_s: float = PATIENCE_S) -> None:
    """Poll until `condition()` holds."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + patience_s
    while not condition():
        assert loop.time() < give_up, f"{what} did not come true within {patience_s} s"
        await asyncio.sleep(0.005)


class Asked:
    """A request as an agent got it: the fields in order, the body when it was read whole."""

    def __init__(self, first: bytes, headers: list[tuple[str, str]], reader: asyncio.StreamReader) -> None:
        self.method, self.target, _ = first.decode("latin-1").split(" ")
        self.headers = headers
        self.reader = reader
        self.body = b""
        self.trailers: list[tuple[str, str]] = []

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def one(self, name: str) -> str:
        values = self.all(name)
        assert len(values) == 1, f"{name} is there {len(values)} times: {self.headers}"
        return values[0]

    async def read_body(self) -> None:
        if self.all("transfer-encoding"):
            while size := int((await self.reader.readuntil(b"\r\n"))[:-2], 16):
                self.body += await self.reader.readexactly(size)
                assert await self.reader.readexactly(2) == b"\r\n"
            while line := (await self.reader.readuntil(b"\r\n"))[:-2]:
                name, value = line.decode("latin-1").split(": ", 1)
                self.trailers.append((name, value))
        elif length := self.all("content-length"):
            self.body = await self.reader.readexactly(int(length[0]))


class Agent(Upstream):
    """A plain HTTP server that runs `script(asked, writer)` for each request. `asked` keeps them all.

    `read_first`: the body is read before the script runs. `gone` counts connections that the sidecar ended while the
    script was at work.
    """

    def __init__(self, script: Script, read_first: bool = True) -> None:
        super().__init__(self._talk)
        self.script = script
        self.asked: list[Asked] = []
        self.gone = 0
        self._read_first = read_first

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def last(self) -> Asked:
        return self.asked[-1]

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await read_head(reader)) is not None:
            asked = Asked(*head, reader)
            self.asked.append(asked)
            if self._read_first:
                await asked.read_body()
            work = asyncio.ensure_future(self.script(asked, writer))
            try:
                await self._watch(reader, work)
            finally:
                work.cancel()

    async def _watch(self, reader: asyncio.StreamReader, work: "asyncio.Future[None]") -> None:
        """Wait for the script, and notice when the sidecar hangs up on it."""
        while not work.done():
            lost = reader.at_eof() or reader.exception() is not None
            if lost:
                self.gone += 1
                raise ConnectionResetError("the sidecar hung up")
            await asyncio.wait([work], timeout=0.01)
        try:
            work.result()
        except RuntimeError:  # uvloop's word for a write to a connection that is gone
            raise ConnectionResetError("the sidecar hung up") from None

    async def close(self) -> None:
        """Nobody listens any more, and every connection is cut."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def says(answer: bytes, *, close: bool = False) -> Script:
    """Sends `answer` as it is."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        if close:
            await writer.drain()
            writer.close()

    return script


def ok(body: bytes = b"done", *fields: bytes) -> bytes:
    """A whole 200 answer."""
    lines = b"".join(field + b"\r\n" for field in fields)
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (lines, len(body), body)


async def hangs(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Never answers."""
    await asyncio.sleep(60)


async def hangs_up(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Takes the request and closes the connection."""
    writer.close()


class Node:
    """A sidecar of the test with its agent."""

    def __init__(self, sidecar: Sidecar, agent: Agent | None) -> None:
        self.sidecar = sidecar
        self.agent_or_none = agent
        self.ver = 0

    @property
    def agent(self) -> Agent:
        assert self.agent_or_none is not None
        return self.agent_or_none

    @property
    def id(self) -> str:
        return self.sidecar.local.agent_id

    def port(self, door: str) -> int:
        return int(self.sidecar.addresses[door].rpartition(":")[2])

    def peer(self, agent_id: str) -> Any:
        return self.sidecar.view.peer(agent_id)

    def entry(self, **changes: Any) -> Entry:
        """The entry as control would make it now; each one is newer than the one before."""
        local = self.sidecar.local
        self.ver += 1
        known = Entry(agent_id=self.id, gen=1, ver=self.ver, rank=Rank.UP, address=self.sidecar.addresses["mesh"],
                      version=local.version, capabilities=local.declared, limits=local.limits, flags=local.flags)
        return msgspec.structs.replace(known, **changes)

    def learn(self, *entries: Entry) -> None:
        """Take entries into this sidecar's table, as its membership driver does."""
        changes = self.sidecar.table.merge(entries, time.time_ns() // 1_000_000)
        self.sidecar._table_changed(changes)

    async def log(self, trace_id: str | None = None, event: str | None = None) -> list[dict[str, Any]]:
        """The lines of this sidecar's log so far."""
        assert await self.sidecar.log.flush(5.0)
        store = self.sidecar.log.store
        assert store is not None
        lines = [orjson.loads(found.data) for found in store.query(trace_id=trace_id)]
        return [line for line in lines if event is None or line["event"] == event]

    def slots(self) -> dict[str, int]:
        """Whatever counts calls under way; all 0 when nothing is."""
        sidecar = self.sidecar
        in_flight = sidecar.metrics.in_flight
        return {
            "running": sidecar.local.running, "queued": sidecar.local.queued, "registered": len(sidecar.running),
            "out": in_flight["out"], "in": in_flight["in"],
            "peers": sum(peer.in_flight for peer in sidecar.view.peers()),
        }


class Mesh:
    """The sidecars of one test. `await mesh.node("b", ok(), "summarize")` starts one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.nodes: list[Node] = []
        self.agents: list[Agent] = []
        self._keys = 0
        self._clients: list[Peer] = []

    async def agent(self, script: Script | bytes = b"", *, read_first: bool = True) -> Agent:
        agent = Agent(says(script or ok()) if isinstance(script, bytes) else script, read_first)
        await agent.start()
        self.agents.append(agent)
        return agent

    async def node(self, name: str, script: Script | bytes | None = None, *capabilities: str | CapabilityConfig,
                   env: dict[str, str] | None = None, read_first: bool = True, agent: dict[str, Any] | None = None,
                   **sections: Any) -> Node:
        """A sidecar; with a `script` it has an agent, else it is a gateway. `agent`: fields of that section."""
        served = None if script is None else await self.agent(script, read_first=read_first)
        declared = [CapabilityConfig(name=one) if isinstance(one, str) else one for one in capabilities]
        section = None
        if served is not None:
            section = AgentConfig(**{"id": name, "address": served.url, "capabilities": declared,
                                     "health": HealthConfig(interval=600.0), **(agent or {})})
        config = SidecarConfig(**{
            "agent": section, "id": name, "control": [], "state_dir": str(self._folder / name),
            "listen": ListenConfig(outbound="127.0.0.1:0", mesh="127.0.0.1:0", admin="127.0.0.1:0"),
            "log": LogConfig(level="debug"), "drain": DrainConfig(wait=0.0, grace=0.0), **sections})
        sidecar = Sidecar(config, env or {})
        await sidecar.start()
        node = Node(sidecar, served)
        self.nodes.append(node)
        return node

    async def pair(self, script: Script | bytes = b"", *capabilities: str | CapabilityConfig,
                   **more: Any) -> tuple[Node, Node]:
        """A caller `a` and an agent `b`, which know each other; `b` offers `summarize` unless told otherwise."""
        a = await self.node("a")
        b = await self.node("b", script or ok(), *(capabilities or ("summarize",)), **more)
        self.share()
        return a, b

    def share(self) -> None:
        """Every table learns of every agent."""
        entries = [node.entry() for node in self.nodes if not node.sidecar.local.is_gateway]
        for node in self.nodes:
            node.learn(*entries)

    async def connect(self, node: Node, door: str = "outbound", host: str = "127.0.0.1") -> Peer:
        reader, writer = await asyncio.open_connection(host, node.port(door), limit=1 << 20)
        client = Peer(reader, writer)
        self._clients.append(client)
        return client

    async def raw(self, node: Node, data: bytes, *, method: str = "GET", door: str = "outbound") -> Answer:
        """Send bytes on a connection of their own; the final answer."""
        client = await self.connect(node, door)
        await client.send(data)
        answer = await client.final(method)
        client.close()
        return answer

    async def ask(self, node: Node, target: str, *fields: str, method: str | None = None, body: bytes | None = None,
                  host: str | None = None) -> Answer:
        """One request from the local agent of `node`; with a body it is a POST."""
        method = method or ("GET" if body is None else "POST")
        return await self.raw(node, request(target, *fields, method=method, body=body, host=host), method=method)

    async def deliver(self, node: Node, *fields: str, key: str | None = None, target: str = "summarize",
                      agent: str | None = None, caller: str = "a", path: str = "/x", method: str | None = None,
                      body: bytes | None = None) -> Answer:
        """One call as another sidecar sends it; `key`: one of the caller's own, else as sidecars make them."""
        method = method or ("GET" if body is None else "POST")
        return await self.raw(node, self.delivery(node, *fields, key=key, target=target, agent=agent, caller=caller,
                                                  path=path, method=method, body=body), method=method, door="mesh")

    def delivery(self, node: Node, *fields: str, key: str | None = None, target: str = "summarize",
                 agent: str | None = None, caller: str = "a", path: str = "/x", method: str = "GET",
                 body: bytes | None = None) -> bytes:
        """The bytes of such a call."""
        self._keys += 1
        lines = [f"Reach-Target: {target}", f"Reach-Agent: {node.id if agent is None else agent}",
                 f"Reach-Caller: {caller}", f"Idempotency-Key: {key or f'reach-{0:024x}-{self._keys:08x}'}", *fields]
        return request(path, *lines, method=method, body=body)

    async def idle(self) -> None:
        """Every slot of every sidecar is free again."""
        def busy() -> dict[str, dict[str, int]]:
            return {node.id: {name: count for name, count in node.slots().items() if count}
                    for node in self.nodes if any(node.slots().values())}

        with contextlib.suppress(AssertionError):
            await until(lambda: not busy(), patience_s=4.0)
        assert not busy()

    async def stop(self) -> None:
        for client in self._clients:
            client.close()
        for agent in self.agents:
            await agent.stop()
        await asyncio.gather(*(node.sidecar.stop(leave=False) for node in self.nodes))


def request(target: str, *fields: str, method: str = "GET", body: bytes | None = None,
            host: str | None = None) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host or '127.0.0.1:7070'}", *fields]
    if body is not None and not any(one.lower().startswith(("content-length", "transfer-enc")) for one in fields):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def closed_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


