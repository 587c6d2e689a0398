"""The client side: one exchange at a time over one connection.

Whatever goes wrong before the head of the answer is told apart by what it means for a retry: `ConnectFailed`
(nothing was sent), `ExchangeBroken` (sent, and the connection broke), `AnswerTimeout`, `BadAnswer`.
The request body runs in a task of its own when it is not at hand, so early answers and duplex streams work.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Protocol

from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.http1.chunked import frame, last_frame
from reach_sidecar.http1.connection import UNTIL_CLOSE, Connection
from reach_sidecar.http1.deadlines import Deadlines
from reach_sidecar.http1.head import Head, HeadError, parse_response
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.message import Field, Response


class Readable(Protocol):
    """A request body as it is sent: read until b"", then its trailers."""

    @property
    def trailers(self) -> list[Field]: ...

    async def read(self) -> bytes: ...


Interim = Callable[[int, list[Field]], None]


class ExchangeError(Exception):
    """An exchange failed before the head of its answer was complete."""


class ConnectFailed(ExchangeError):
    """Nothing was sent: the connection was `refused` (nobody listens), timed out, or its TLS handshake failed.

    `hurried`: it timed out because the caller gave it less than the usual time, which says nothing of the address.
    """

    def __init__(self, detail: str, *, refused: bool = False, hurried: bool = False) -> None:
        super().__init__(detail)
        self.refused = refused
        self.hurried = hurried


class ExchangeBroken(ExchangeError):
    """The request was (perhaps partly) sent, and the connection broke before the answer."""


class AnswerTimeout(ExchangeError):
    """The answer did not begin in time."""


class BadAnswer(ExchangeError):
    """What came back is not HTTP."""


class Owner(Protocol):
    """The pool a connection belongs to."""

    deadlines: Deadlines

    def release(self, connection: "ClientConnection") -> None: ...

    def forget(self, connection: "ClientConnection") -> None: ...


class ClientConnection(Connection):
    def __init__(self, pool: Owner, limits: Limits) -> None:
        super().__init__()
        self._pool = pool
        self._limits = limits
        self._method = b""
        self._request_head = b""
        self._answer: asyncio.Future[Response] | None = None
        self._interim: Interim | None = None
        self._keep_alive = False
        self._sent_all = True
        self._pump: asyncio.Task[None] | None = None
        self._may_send: asyncio.Future[None] | None = None  # set while `100 Continue` is awaited
        self._is_tunnel = False
        self.idle_since = 0.0
        self.reused = False
        self._readable = select.poll()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        socket = transport.get_extra_info("socket")
        if socket is not None:
            self._readable.register(socket.fileno(), select.POLLIN | getattr(select, "POLLRDHUP", 0))

    @property
    def idle_s(self) -> float:
        return self._loop.time() - self.idle_since

    def alive(self, ask_kernel: bool = True) -> bool:
        """May this idle connection be used again? The kernel is asked, because the loop may not have read yet
        that the other side has closed."""
        if self.closed or self._saw_eof or self.transport is None or self.transport.is_closing():
            return False
        return not ask_kernel or not self._readable.poll(0)

    async def exchange(self, method: bytes, head: bytes, body: bytes | Readable, deadline: float, *,
                       chunked: bool = False, ask_first: bool = False, interim: Interim | None = None) -> Response:
        """Send a request and return its answer as soon as its head is here.

        `head` is the whole head; with a `Body` it announces a length or (`chunked`) the chunked coding, and with
        `ask_first` it carries `Expect: 100-continue`, and no byte of the body is taken before the 100.
        `deadline` is loop time for the answer's head. Raises ExchangeError.
        """
        if self.closed or self.transport is None or self.transport.is_closing():
            # lost in the turns since it was made: nothing would ever wake us
            raise ConnectFailed("the connection was closed before anything was sent")
        self._method = method
        self._request_head = head
        self._interim = interim
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._answer = answer
        if isinstance(body, bytes):
            self.write(head + body if body else head)
        else:
            self._sent_all = False
            self._may_send = self._loop.create_future() if ask_first else None
            self.write(head)
            self._pump = self._loop.create_task(self._send_body(body, chunked))
        deadlines = self._pool.deadlines
        number = deadlines.add(self._loop, deadline, self._expire)
        try:
            response = await answer
        except BaseException:
            self.discard()
            raise
        finally:
            deadlines.remove(number)
            self._answer = None
        content = response.body
        if response.tunnel is not None:
            pass  # it belongs to the tunnel from here on
        elif isinstance(content, bytes):
            self._release()
        elif content.complete and not content.trailers:
            content.on_end = self._release
            response.body = content.take()
            response.length = len(response.body)
        else:
            content.on_end = self._release
        return response

    def become_tunnel(self) -> None:
        """Carry raw bytes from the start: whatever the peer sends is kept for `tunnel`."""
        self._is_tunnel = True

    def discard(self) -> None:
        """Give the connection up, whatever was under way."""
        if self._pump is not None:
            self._pump.cancel()
            self._pump = None
        self.abort()

    async def _send_body(self, body: Readable, chunked: bool) -> None:
        try:
            if self._may_send is not None:
                await self._may_send
            while data := await body.read():
                self.bytes_seen += len(data)
                self.write(frame(data) if chunked else data)
                if self._write_paused:
                    await self._drained_in_time()
            if chunked:
                self.write(last_frame(body.trailers))
            self._sent_all = True
        except BodyError:
            self.abort()  # a cut request must not look complete either

    async def _drained_in_time(self) -> None:
        """Wait for a peer that takes nothing; before its answer began, not for long."""
        timer = self._loop.call_later(self._limits.write_timeout_s, self._give_up_writing)
        try:
            await self.drained()
        finally:
            timer.cancel()

    def _give_up_writing(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._fail(ExchangeBroken(f"the peer took nothing for {self._limits.write_timeout_s:g} s"))

    def abandon_body(self) -> None:
        self.discard()

    def eof_received(self) -> bool | None:
        if self._is_tunnel and self._tunnel is None:
            self._saw_eof = True  # only this direction is over: `tunnel` passes that on
            return True
        return super().eof_received()

    # -- the answer

    def feed_head(self, data: bytes) -> bytes:
        if self._is_tunnel:
            self.hold(data)
            return b""
        if self._answer is None or self._answer.done():
            self.abort()  # bytes nobody asked for
            return b""
        if self._head:
            data = self.gather_head(data)
            if not data:
                return b""
        end = data.find(b"\r\n\r\n")
        if end < 0 or end > self._limits.head_bytes:
            self._wait_for_more(data)
            return b""
        self._head.clear()
        try:
            head = parse_response(data[:end + 4])
            return self._take_head(head, data[end + 4:])
        except HeadError as error:
            self._fail(BadAnswer(error.detail))
            return b""

    def _wait_for_more(self, data: bytes) -> None:
        """Keep an incomplete head, unless it can never become one: nobody shall wait for its end in vain."""
        if len(data) - 3 > self._limits.head_bytes:
            self._fail(BadAnswer(f"the answer's header block is over {self._limits.head_bytes} bytes"))
        elif not data.startswith(b"HTTP/1."[:len(data)]):
            self._fail(BadAnswer("the answer does not start with HTTP/1.1 or HTTP/1.0"))
        elif data.count(b"\n") != data.count(b"\r\n"):
            self._fail(BadAnswer("the answer's lines do not end with CR LF"))
        else:
            self._head = bytearray(data)

    def _take_head(self, head: Head, rest: bytes) -> bytes:
        """Act on a head; `rest` are the bytes behind it. Returns those that are not used up."""
        if head.status >= 200:
            return self._take_final(head, rest)
        if head.status == 100:
            self._go_ahead()
        elif head.status == 101:
            self._take_switch(head)
        elif self._interim is not None:
            self._interim(head.status, head.headers)
        return rest

    def _go_ahead(self) -> None:
        if self._may_send is not None and not self._may_send.done():
            self._may_send.set_result(None)

    def _take_switch(self, head: Head) -> None:
        if head.upgrade is None:
            raise HeadError("bad_agent_response", "The answer switches protocols without saying to which.")
        if b"\r\nupgrade:" not in self._request_head.lower():
            raise HeadError("bad_agent_response", "The answer switches protocols, and nobody asked for it.")
        self._switch(head)

    def _switch(self, head: Head) -> None:
        self._is_tunnel = True
        response = self._response(head, b"")
        response.tunnel = self
        self._resolve(response)

    def _take_final(self, head: Head, rest: bytes) -> bytes:
        if self._method == b"CONNECT" and head.status < 300:
            self._switch(head)
            return rest
        self._keep_alive = head.keep_alive
        body: Body | None = None
        if self._method != b"HEAD" and head.status not in (204, 304):
            length = head.length
            if length is not None and len(rest) >= length:  # the common case: all of it came with the head
                self._resolve(self._response(head, rest[:length]))
                return rest[length:]
            if length is None and not head.chunked:
                length = UNTIL_CLOSE
                self._keep_alive = False
            body = self.expect_body(length, head.chunked)
        self._resolve(self._response(head, body if body is not None else b""))
        return rest

    def _response(self, head: Head, body: bytes | Body) -> Response:
        response = Response(head.status, head.headers, body, reason=head.reason)
        response.index = head.index
        if head.length is not None:
            response.sized = head.status != 204
            if not response.sized:  # it may not have one (RFC 9110 §8.6)
                response.headers = [header for header in head.headers if header[0] != b"content-length"]
        response.length = head.length if body != b"" or self._method == b"HEAD" or head.status == 304 else 0
        return response

    def _resolve(self, response: Response) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(response)

    def _fail(self, error: ExchangeError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.abort()

    def _expire(self) -> None:
        self._fail(AnswerTimeout("the answer did not begin in time"))

    def _release(self) -> None:
        """The answer is complete and handed over: the next exchange may have the connection."""
        if self._keep_alive and self._sent_all and not self.closed:
            self.idle_since = self._loop.time()
            self.reused = True
            self._pump = None
            self._pool.release(self)
        else:
            self.discard()

    def lost(self) -> None:
        self._pool.forget(self)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ExchangeBroken("the connection broke before the answer"))
        if self._pump is not None:
            self._pump.cancel()
