"""The server side: one connection reads requests and answers them in order.

A task per request, started plainly; heads that arrive meanwhile wait in a queue, and beyond
`Limits.pipelined` reading stops. A handler returns a Response and never raises in normal work; the connection
writes it with the framing its client understands, and cuts the connection when a streamed body breaks off, so
that a broken answer never looks complete.

A client that goes away cancels its request's task at once, or after `Server.abandon_after_s`: on the mesh a
connection that merely breaks leaves the run going for a while, so that a retry can join it (design §3).
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable

from reach_core.headers import HOP_BY_HOP, MESH_ANSWER, SIDECAR_ONLY
from reach_core.problem import Problem
from reach_sidecar.http1.answer import is_bodiless, stream_head, whole_answer
from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.http1.chunked import frame, last_frame
from reach_sidecar.http1.connection import Connection
from reach_sidecar.http1.head import Head, HeadError, check_bounds, parse_request
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.message import REASONS, Field, Request, Response
from reach_sidecar.http1.problem import render
from reach_sidecar.http1.wire import CONTINUE, response_head

Handler = Callable[[Request], Awaitable[Response]]

DISCARD_AT_MOST = 64 * 1024
_NOT_INTERIM = HOP_BY_HOP | MESH_ANSWER | SIDECAR_ONLY | {b"content-length"}
_BLANK_LINES = re.compile(rb"\A(?:\r\n)+")


class Service:
    """What the connections of one listener share: the handler, the bounds, and who is connected."""

    def __init__(self, handler: Handler, limits: Limits, *, proxy: str = "reach", abandon_after_s: float = 0.0,
                 on_refused: Callable[[str, str, str], None] | None = None,
                 on_crash: Callable[[BaseException], None] | None = None,
                 mark: Callable[[Problem], list[Field]] | None = None) -> None:
        self.handler = handler
        self.limits = limits
        self.proxy = proxy
        self.abandon_after_s = abandon_after_s
        self.on_refused = on_refused  # (peer, problem code, detail)
        self.on_crash = on_crash
        self.mark = mark  # fields for the answers that are made here, without the handler
        self.connections: set[ServerConnection] = set()
        self.stopping = False

    def answer(self, problem: Problem) -> Response:
        response = render(problem, proxy=self.proxy)
        if self.mark is not None:
            response.headers += self.mark(problem)
        return response


class ServerConnection(Connection):
    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self.peer = ""
        self._holding = False  # after a head that may turn the connection into a tunnel: what follows is not HTTP yet
        self._refused = False  # nothing that still comes is read any more
        self._refusal: tuple[str, str, int | None] | None = None  # to be said behind the answers that are due
        self._queue: deque[tuple[Request, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._request: Request | None = None  # which that task answers
        self._connect_host: bytes | None = None
        self.head_since: float | None = None
        self.idle_since = 0.0
        self._streaming = False
        self._streams_for_ever = False
        self._bytes_checked = -1
        self._moved_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.idle_since = self._loop.time()
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if peer else ""
        full = len(self._service.connections) >= self._service.limits.max_connections
        self._service.connections.add(self)
        if full:
            self.refuse("backpressure", f"This listener has its limit of {self._service.limits.max_connections} "
                        "connections: use fewer, or raise `limits.connections`.")

    @property
    def busy(self) -> bool:
        """Is an answer due, or one not quite out yet?"""
        return self._task is not None or self.unsent

    def check_time(self, now: float) -> None:
        """Once a second: a head that takes too long, nothing asked for too long, a message that does not move."""
        limits = self._service.limits
        if self._task is None:
            if self._refused:
                return
            if self.head_since is not None and now - self.head_since > limits.head_timeout_s:
                self.refuse("request_timeout", f"The header block took over {limits.head_timeout_s:g} s to arrive.")
            elif self.head_since is None and now - self.idle_since > limits.idle_timeout_s:
                self.close()
            return
        if self._read_holds and self._tunnel is None and self.peer_is_gone():
            self.reset()
        elif self._streaming or self._write_paused or (self._body is not None and self._body.awaited):
            if self._bytes_checked != self.bytes_seen:
                self._bytes_checked, self._moved_at = self.bytes_seen, now
            elif now - self._moved_at > limits.stream_idle_s and not self._streams_for_ever:
                self.abort()

    # -- reading requests

    def feed_head(self, data: bytes) -> bytes:
        if self._refused:
            return b""
        if self._holding or len(self._queue) >= self._service.limits.pipelined:
            self.hold(data)
            return b""
        if self._head:
            data = self.gather_head(data)
            if not data:
                return b""
        if data.startswith(b"\r\n"):  # stray line ends before a request are forgiven (RFC 9112 §2.2)
            data = _BLANK_LINES.sub(b"", data)
        end = data.find(b"\r\n\r\n")
        try:
            check_bounds(data, end, self._service.limits)
            if end < 0:
                self._head = bytearray(data)
                if not data:
                    self.head_since = None
                elif self.head_since is None:
                    self.head_since = self._loop.time()
                return b""
            self._head.clear()
            self.head_since = None
            return self._begin(parse_request(data[:end + 4]), data[end + 4:])
        except HeadError as error:
            self.refuse(error.code, error.detail, error.status)
            return b""

    def _begin(self, head: Head, rest: bytes) -> bytes:
        """Start on a request; `rest` are the bytes behind its head. Returns those that are not its body's."""
        if len(head.target) > self._service.limits.url_bytes:
            raise HeadError("uri_too_long", f"The URL is over {self._service.limits.url_bytes} bytes.")
        length = head.length or 0
        body: Body | None = None
        if not head.chunked and len(rest) >= length:  # the common case: all of it came with the head
            request = Request(head.method, head.target, head.version, head.headers, Body.whole(rest[:length]))
            rest = rest[length:]
        else:
            body = self.expect_body(head.length, head.chunked)
            assert body is not None
            request = Request(head.method, head.target, head.version, head.headers, body)
        request.index = head.index
        request.peer = self.peer
        request.connect_host = self._connect_host
        if head.version == 11:
            request.interim = self._send_interim
        if head.expects_continue and body is not None:
            request.expects_continue = True
            body.on_first_read = self._send_continue
        if head.upgrade == b"websocket" and not length and not head.chunked:
            request.upgrade = head.upgrade
        self._holding = head.method == b"CONNECT" or request.upgrade is not None
        if self._task is None:
            self._start(request, head.keep_alive)
        else:
            self._queue.append((request, head.keep_alive))
        return rest

    def broken_framing(self, detail: str) -> None:
        # whoever reads the body fails with it and says so; the connection ends with that answer
        self._refused = True
        if self._service.on_refused is not None:
            self._service.on_refused(self.peer, "bad_request", detail)

    def refuse(self, code: str, detail: str, status: int | None = None) -> None:
        """Answer with a problem and hang up. What still arrives is thrown away for a moment, because closing
        with unread bytes resets the connection and the client may never see the answer."""
        self._refused = True
        self.head_since = None
        if self._service.on_refused is not None:
            self._service.on_refused(self.peer, code, detail)
        if self._task is not None:
            self._refusal = (code, detail, status)
        else:
            self._say_refusal(code, detail, status)

    def _say_refusal(self, code: str, detail: str, status: int | None) -> None:
        answer = self._service.answer(Problem(code, detail, status=status))
        self.write(whole_answer(_REFUSED, answer, keep_alive=False)[0])
        self._hang_up()

    def _hang_up(self) -> None:
        self._refused = True
        self.write_eof()
        self.unhold()
        if self._body is not None:
            self._body.discard()  # reading goes on, whoever was behind
        if not self.closed:
            self._loop.call_later(self._service.limits.linger_s, self.close)

    def peer_ended(self) -> None:
        super().peer_ended()
        if not self._refused and self._head and not self.closed and self._task is None:
            self.refuse("bad_request", "The connection ended inside a header block.")

    def eof_received(self) -> bool | None:
        # A client that ends its side while an answer is due counts as gone, as with most proxies: a closed
        # connection looks the same. What it got so far of a stream must not look complete.
        if self._streaming:
            self.reset()
        return super().eof_received()

    def lost(self) -> None:
        self._service.connections.discard(self)
        self._queue.clear()
        task = self._task
        if task is None or self._tunnel_end is not None:
            return
        if self._service.abandon_after_s and not self._service.stopping:
            self._loop.call_later(self._service.abandon_after_s, self._abandon, task, -1, 0.0)
        else:
            task.cancel()

    def _abandon(self, task: asyncio.Task[None], bytes_before: int, still_s: float) -> None:
        """The client went away a while ago: end its request's task, unless the answer is still of use to others. Then
        look again later; a stream that does not move ends as it would with a client."""
        wanted = self._request.wanted if self._request is not None else None
        if task.done() or wanted is None or not wanted():
            task.cancel()
            return
        every_s = self._service.abandon_after_s
        still_s = still_s + every_s if self._streaming and self.bytes_seen == bytes_before else 0.0
        if still_s > self._service.limits.stream_idle_s:
            task.cancel()
        else:
            self._loop.call_later(every_s, self._abandon, task, self.bytes_seen, still_s)

    # -- answering them

    def _start(self, request: Request, keep_alive: bool) -> None:
        self._request = request
        self._task = self._loop.create_task(self._serve(request, keep_alive))

    async def _serve(self, request: Request, keep_alive: bool) -> None:
        try:
            try:
                response = await self._service.handler(request)
            except Exception as error:
                response = self._failed(request, error)
            await self._answer(request, response, keep_alive)
        except BaseException:
            self._task = None
            self.abort()
            raise

    def _failed(self, request: Request, error: Exception) -> Response:
        if isinstance(error, BodyError) and error is request.body.error:
            problem = Problem("bad_request", f"The request's body did not arrive whole: {error}")
        else:
            problem = Problem("internal_error", "This is a defect; the sidecar's log says more.")
            if self._service.on_crash is not None:
                self._service.on_crash(error)
        return self._service.answer(problem)

    async def _answer(self, request: Request, response: Response, keep_alive: bool) -> None:
        sent = 0
        error: BaseException | None = None
        try:
            if response.tunnel is not None:
                await self._open_tunnel(response)
                self._task = None
                return
            keep_alive = self._keep_alive(request, keep_alive or response.inner_host is not None)
            request.body.on_first_read = None  # too late for `100 Continue`
            if isinstance(response.body, bytes) or is_bodiless(request, response):
                data, sent = whole_answer(request, response, keep_alive)
                self.bytes_seen += 1
                self.write(data)
                if self._write_paused:
                    await self.drained()
            else:
                head, chunked, keep_alive = stream_head(request, response, keep_alive)
                sent = await self._stream(head, response.body, chunked, response)
        except BodyError as broken:
            error = broken
            self._task = None
            self.reset()  # never let a cut answer look complete
            return
        except asyncio.CancelledError as cancelled:
            error = cancelled
            self.reset()
            raise
        finally:
            if error is not None and isinstance(response.body, Body):
                response.body.abandon()
            response.sent(sent, error)
        self._finish(request, response, keep_alive)

    @property
    def _ends_here(self) -> bool:
        """Is the request being answered the one whose body broke the framing? Only the last one read can be."""
        return self._refused and self._refusal is None and not self._queue

    def _keep_alive(self, request: Request, wanted: bool) -> bool:
        if not wanted or self._service.stopping or self._ends_here:
            return False
        # a client that waits for `100 Continue` will not send the body any more: what follows is ambiguous
        return request.body.complete or request.body.on_first_read is None

    async def _stream(self, head: bytes, body: Body, chunked: bool, response: Response) -> int:
        """Pass the body on as it comes, the head together with what is there already."""
        self._streaming = True
        kind = response.header(b"content-type")
        self._streams_for_ever = kind is not None and kind.startswith(b"text/event-stream")
        sent = 0
        data = body.take()
        out = head
        while True:
            if data:
                sent += len(data)
                out += frame(data) if chunked else data
            if body.at_end:
                if chunked:
                    out += last_frame(body.trailers)
                self.write(out)
                return sent
            if out:
                self.bytes_seen += len(out)
                self.write(out)
            if self._write_paused:
                await self.drained()
            data = await body.read()
            out = b""

    async def _open_tunnel(self, response: Response) -> None:
        other = response.tunnel
        assert isinstance(other, Connection)
        self._streams_for_ever = True
        self.write(response_head(response.status, response.reason, response.headers))
        await self.tunnel(other)

    def _send_continue(self) -> None:
        if self._body is not None and not self._body.size:
            self.write(CONTINUE)

    def _send_interim(self, status: int, headers: list[Field]) -> None:
        if not self._write_paused:  # what the client does not take now is of no use later
            passing = [header for header in headers if header[0] not in _NOT_INTERIM]
            self.write(response_head(status, REASONS.get(status, b""), passing))

    def _finish(self, request: Request, response: Response, keep_alive: bool) -> None:
        self._task = None
        self._streaming = self._streams_for_ever = False
        if self.closed:
            return
        body = request.body
        if not body.complete and keep_alive:
            if body is self._body and 0 < self._missing <= DISCARD_AT_MOST:
                body.discard()
            else:
                keep_alive = False
        if not keep_alive or self._ends_here or (self._saw_eof and not self._queue):
            self._hang_up()
            return
        self._connect_host = response.inner_host or self._connect_host
        if self._queue:
            self._start(*self._queue.popleft())  # the last one read is the one to hold for
        else:
            self._holding = False
            self.idle_since = self._loop.time()
            if self._refusal is not None:
                self._say_refusal(*self._refusal)
        self.data_received(self.unhold())


_REFUSED = Request(b"", b"", 11, [], Body.whole(b""))  # stands for a request that could not be read
