"""One call that is made while something happens: a caller, the agent it prefers, another one, a wire that can be cut.

What came of it is said in a line, so that whole tables of it can be read:

    200 b2 in 2, ran 1+1                                   b2 answered the second attempt; both agents ran once
    502 outcome_unknown (unknown) broken, ran 1+0          a problem, its `executed`, what the attempts came to
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import groupby
from typing import NamedTuple

from harness.sidecars import Asked, Mesh, Node, Script, ok, until
from sidecar.http1.raw import Answer, reset

from reach_sidecar.config import CapabilityConfig


class Way(NamedTuple):
    """How the capability is declared, as far as the tables care."""

    idempotent: bool
    dedup: str

    def __str__(self) -> str:
        return f"{'idempotent' if self.idempotent else 'once'}-{self.dedup}"


WAYS = [Way(idempotent, dedup) for idempotent in (False, True) for dedup in ("off", "memory", "durable")]
PLAIN = Way(False, "memory")


class Scene:
    """A caller `a`, an agent `b1` that its calls prefer (`Reach-Prefer: first=yes`), and another one, `b2`."""

    def __init__(self, inner: Mesh, a: Node, b1: Node, b2: Node) -> None:
        self.inner = inner
        self.a = a
        self.b1 = b1
        self.b2 = b2

    async def ask(self, *fields: str, body: bytes | None = b"work", method: str | None = None,
                  target: str = "/to/work/x") -> Answer:
        return await self.inner.ask(self.a, target, "Reach-Prefer: first=yes", *fields, body=body, method=method)

    def ran(self) -> str:
        """How often each agent was asked."""
        return f"{len(self.b1.agent.asked)}+{len(self.b2.agent.asked)}"

    def verdict(self, answer: Answer) -> str:
        return f"{said(answer)}, ran {self.ran()}"


async def scene(inner: Mesh, first: Script | bytes, way: Way = PLAIN, second: Script | bytes = b"",
                agent: dict[str, object] | None = None, **declared: object) -> Scene:
    """`declared`: more of the capability `work`; `agent`: more of `b1`'s section of that name."""
    def capability(**more: object) -> CapabilityConfig:
        return CapabilityConfig(name="work", idempotent=way.idempotent, dedup=way.dedup,  # type: ignore[arg-type]
                                **{**declared, **more})  # type: ignore[arg-type]

    a = await inner.node("a")
    b1 = await inner.node("b1", first, capability(attributes={"first": ["yes"]}), agent=agent)
    b2 = await inner.node("b2", second or ok(b"from b2"), capability())
    a.learn(b1.entry(), b2.entry())
    return Scene(inner, a, b1, b2)


def said(answer: Answer) -> str:
    """The answer in a line; attempts that came to the same one after another are said once."""
    if answer.code is None:
        cut = "" if answer.whole else ", cut off"
        return f"{answer.status} {answer.header('Reach-Agent')} in {answer.header('Reach-Attempts')}{cut}"
    document = answer.json
    attempts = " ".join(result for result, _ in groupby(one["result"] for one in document["attempts"]))
    return f"{answer.status} {answer.code} ({document['executed']}) {attempts or 'not tried'}"


class Gate:
    """A script that answers when the gate is opened: the time between is the test's."""

    def __init__(self, answer: bytes = b"") -> None:
        self._open = asyncio.Event()
        self._answer = answer or ok()

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        writer.write(self._answer)

    def open(self) -> None:
        self._open.set()


def in_turn(*scripts: Script | bytes) -> Script:
    """Each request gets the next of these, and all after the last one that."""
    left = list(scripts)

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        this = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(this, bytes):
            writer.write(this)
        else:
            await this(asked, writer)

    return script


class Wire:
    """The way to one sidecar's mesh door, in the hands of the test. `taken` counts connections."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Future[None]] = set()
        self._swallow = False
        self.port = 0
        self.taken = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def up(self) -> None:
        """Take connections, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Every connection ends with a reset, in both directions; new ones are taken."""
        for writer in self._writers:
            reset(writer)
        self._writers.clear()

    def down(self) -> None:
        """`cut`, and from now on connections are refused."""
        assert self._server is not None
        self._server.close()
        self._server = None
        self.cut()

    def swallow_next_answer(self) -> None:
        """`cut` as soon as the called side says something; what it said is lost."""
        self._swallow = True

    def close(self) -> None:
        if self._server is not None:
            self.down()
        for pump in list(self._pumps):
            pump.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += (writer, onward_writer)
        for source, sink, back in ((reader, onward_writer, False), (onward_reader, writer, True)):
            pump = asyncio.ensure_future(self._pump(source, sink, back))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, back: bool) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            while data := await source.read(65536):
                if back and self._swallow:
                    self._swallow = False
                    self.cut()
                    return
                sink.write(data)
                await sink.drain()
            sink.close()


@contextlib.asynccontextmanager
async def wire_between(a: Node, b: Node) -> AsyncIterator[Wire]:
    """From now on `a` reaches `b` over a wire of the test's."""
    wire = Wire(b.port("mesh"))
    await wire.up()
    a.learn(b.entry(address=wire.address))
    try:
        yield wire
    finally:
        wire.close()


async def under_way(inner: Mesh, a: Node, b: Node, target: str, *fields: str, body: bytes | None = b"work",
                    runs: int | None = None) -> "asyncio.Task[Answer]":
    """A call that has reached the agent of `b` (its call number `runs`; the next one, unless said otherwise)."""
    before = len(b.agent.asked)
    task = asyncio.ensure_future(inner.ask(a, target, *fields, body=body))
    await until(lambda: task.done() or len(b.agent.asked) >= (before + 1 if runs is None else runs), "the call's run")
    return task
