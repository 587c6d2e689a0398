"""Bytes in, bytes out: a client and a server that know nothing of the engine, and a listener to aim them at."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.listener import Listener
from reach_sidecar.http1.message import Request, Response
from reach_sidecar.http1.server import Handler, Service

PATIENCE_S = 5.0
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def until(condition: Callable[[], object], what: str = "the condition", patience_s: float = PATIENCE_S) -> None:
    """Poll until `condition()` holds."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + patience_s
    while not condition():
        assert loop.time() < give_up, f"{what} did not come true within {patience_s} s"
        await asyncio.sleep(0.005)


async def echo(request: Request) -> Response:
    """Answers with everything it was given, as JSON."""
    body = await request.body.collect(1 << 24)
    return Response.json(200, {
        "method": request.method.decode(),
        "target": request.target.decode(),
        "version": request.version,
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for _, name, value in request.headers],
        "body": body.decode("latin-1"),
        "trailers": [[name.decode(), value.decode("latin-1")] for _, name, value in request.body.trailers],
        "upgrade": request.upgrade and request.upgrade.decode(),
    })


class Answer:
    """One answer as a client sees it. `whole` is false where the connection ended inside its body."""

    def __init__(self, status: int, reason: str, headers: list[tuple[str, str]]) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.body = b""
        self.chunks: list[bytes] = []
        self.trailers: list[tuple[str, str]] = []
        self.whole = True

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(values) < 2, f"{name} is there {len(values)} times: {values}"
        return values[0] if values else None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        """The problem's code, None where the answer is no problem."""
        if self.header("content-type") != "application/problem+json":
            return None
        assert self.header("proxy-status"), "a problem names its proxy"
        assert self.json["status"] == self.status
        return str(self.json["type"]).removeprefix("urn:reach:")


class Peer:
    """A raw client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes, pause_s: float = 0.0) -> "Peer":
        for number, piece in enumerate(pieces):
            if number:
                await asyncio.sleep(pause_s)
            self.writer.write(piece)
            # a server that refused what came before may be gone already: that is for the reader to find out
            with contextlib.suppress(ConnectionError):
                await self.writer.drain()
        return self

    async def answer(self, method: str = "GET") -> Answer | None:
        """The next answer, None where the connection ends instead."""
        async with asyncio.timeout(PATIENCE_S):
            return await read_answer(self.reader, method)

    async def final(self, method: str = "GET") -> Answer:
        """The next answer that is not a 1xx."""
        while True:
            answer = await self.answer(method)
            assert answer is not None, "the connection ended without an answer"
            if answer.status >= 200 or answer.status == 101:
                return answer

    async def ended(self) -> bool:
        """Wait for the end of the connection; true when nothing came before it."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read(65536) == b""
            except ConnectionError:
                return True

    async def is_reset(self) -> bool:
        """Wait for the end; true when it is a reset and not a plain FIN."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                return True
        return False

    def half_close(self) -> None:
        self.writer.write_eof()

    def reset(self) -> None:
        reset(self.writer)

    def close(self) -> None:
        self.writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, as a crash or a dropped route does."""
    handle = writer.get_extra_info("socket")
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def read_head(reader: asyncio.StreamReader) -> tuple[bytes, list[tuple[str, str]]] | None:
    """The first line and the fields of a head, None at the end of the connection."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        assert not getattr(error, "partial", b""), f"the connection ended inside a head: {error}"
        return None
    first, *lines = raw[:-4].split(b"\r\n")
    fields = [tuple(line.decode("latin-1").split(": ", 1)) for line in lines]
    return first, fields  # type: ignore[return-value]


async def read_answer(reader: asyncio.StreamReader, method: str = "GET") -> Answer | None:
    head = await read_head(reader)
    if head is None:
        return None
    first, headers = head
    version, status, reason = first.decode("latin-1").split(" ", 2)
    assert version == "HTTP/1.1"
    answer = Answer(int(status), reason, headers)
    if answer.status < 200 or answer.status in (204, 304) or method in ("HEAD", "CONNECT"):
        return answer
    try:
        await _read_body(reader, answer)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        answer.chunks.append(getattr(error, "partial", b""))
        answer.whole = False
    answer.body = b"".join(answer.chunks)
    return answer


async def _read_body(reader: asyncio.StreamReader, answer: Answer) -> None:
    length = answer.header("content-length")
    if answer.header("transfer-encoding") == "chunked":
        assert length is None
        while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
            chunk = await reader.readexactly(size)
            answer.chunks.append(chunk)
            assert await reader.readexactly(2) == b"\r\n"
        while line := (await reader.readuntil(b"\r\n"))[:-2]:
            name, value = line.decode("latin-1").split(": ", 1)
            answer.trailers.append((name, value))
    elif length is not None:
        answer.chunks.append(await reader.readexactly(int(length)))
    else:
        assert answer.header("connection") == "close"
        while data := await reader.read(65536):
            answer.chunks.append(data)


class Door:
    """A listener of the engine, with what it reported."""

    def __init__(self, handler: Handler, limits: Limits, abandon_after_s: float) -> None:
        self.refusals: list[tuple[str, str, str]] = []
        self.crashes: list[BaseException] = []
        self.service = Service(
            handler, limits, proxy="test", abandon_after_s=abandon_after_s,
            on_refused=lambda *refusal: self.refusals.append(refusal), on_crash=self.crashes.append,
        )  # fmt: skip
        self.listener = Listener(self.service)
        self.port = 0
        self._peers: list[Peer] = []

    async def start(self) -> None:
        _, self.port = await self.listener.bind("127.0.0.1", 0)

    async def stop(self) -> None:
        for peer in self._peers:
            peer.close()
        await self.listener.stop(0.0)

    async def connect(self, *, receive_buffer: int | None = None) -> Peer:
        handle = socket.socket()
        handle.setblocking(False)
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer:
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(handle, ("127.0.0.1", self.port))
        except OSError:
            handle.close()
            raise
        limit = receive_buffer or 1 << 16
        peer = Peer(*await asyncio.open_connection(sock=handle, limit=limit))
        self._peers.append(peer)
        return peer

    async def ask(self, *pieces: bytes) -> Peer:
        """A new connection that has sent `pieces`."""
        return await (await self.connect()).send(*pieces)


class Upstream:
    """A scripted server: a script per connection, or bytes that are sent when a head has arrived."""

    def __init__(self, script: Script | bytes) -> None:
        self._script: Script = answering(script) if isinstance(script, bytes) else script
        self._server: asyncio.Server | None = None
        self.port = 0
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.errors: list[BaseException] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self.writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._tasks.discard(task)


def answering(answer: bytes, *, close: bool = False) -> Script:
    """A script that reads heads (and bodies with a length) and sends `answer` to each."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await read_head(reader)) is not None:
            length = {name.lower(): value for name, value in head[1]}.get("content-length")
            await reader.readexactly(int(length or 0))
            writer.write(answer)
            if close:
                writer.close()
                return

    return script
