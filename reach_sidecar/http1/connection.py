"""What both ends of HTTP/1.1 share: a transport, a body on its way in, back-pressure, and the tunnel.

Theory of operation. A connection is always in one of these phases: reading a head, reading a body (its length
known, chunked, or until the peer closes), or being a tunnel, when bytes go straight to another connection.
`data_received` loops: each phase takes what is its own and returns the rest. Callbacks never await and never
raise; whoever waits is woken once.

Reading stops while the body's reader is behind (`Body.HIGH_WATER`) and, in a tunnel, while the other side
cannot write. Writing is held by whoever writes: `await drained()` before taking more.
"""

import asyncio
import contextlib
import fcntl
import select
import socket
import struct
import termios
from typing import cast

from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.http1.chunked import ChunkDecoder, ChunkError

WRITE_HIGH_WATER = 256 * 1024
WRITE_LOW_WATER = 64 * 1024
CLOSE_TIMEOUT_S = 5.0
UNTIL_CLOSE = -1
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Connection:
    """An `asyncio.Protocol` in all but name: a class compiled to C cannot derive from one of Python's."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.closed = False
        self._loop: asyncio.AbstractEventLoop
        self._out: list[bytes] = []  # written in this turn of the loop
        self._out_bytes = 0
        self.bytes_seen = 0  # grows with every read and every write that made progress: idle timeouts compare it
        self._head = bytearray()  # an incomplete head
        self._body: Body | None = None
        self._decoder: ChunkDecoder | None = None
        self._missing = 0
        self._write_paused = False
        self._drain_waiter: asyncio.Future[None] | None = None
        self._tunnel: Connection | None = None
        self._tunnel_end: asyncio.Future[None] | None = None
        self._saw_eof = False
        self._read_holds = 0
        self._stash = b""  # read too early: it cannot be understood before something else has been decided

    # -- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        # uvloop's default low-water mark is 16 bytes, which stalls and restarts the writer all the time
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER, low=WRITE_LOW_WATER)

    def data_received(self, data: bytes) -> None:
        self.bytes_seen += len(data)
        while data:
            if self._tunnel is not None:
                self._tunnel.write(data)
                return
            data = self._feed_body(data) if self._body is not None else self.feed_head(data)

    def eof_received(self) -> bool | None:
        self._flush()  # the transport closes itself behind this callback, and would drop it
        self._saw_eof = True
        if self._tunnel is not None:
            self._tunnel.write_eof()
            if self._tunnel._saw_eof:  # both directions are done
                self._tunnel.close()
                self.close()
            return True
        self.peer_ended()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.peer_ended()
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)
        tunnel, self._tunnel = self._tunnel, None
        if tunnel is not None:
            if error is not None:
                tunnel.reset()  # a FIN alone would leave the far side waiting for the other direction
            else:
                tunnel.close()
        if self._tunnel_end is not None and not self._tunnel_end.done():
            self._tunnel_end.set_result(None)
        self.lost()

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._tunnel is not None:
            self._tunnel.hold_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self.bytes_seen += 1
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)
        if self._tunnel is not None:
            self._tunnel.release_reading()

    # -- for the two sides to fill in

    def feed_head(self, data: bytes) -> bytes:
        """Take bytes of a head; return what follows it, b"" while it is incomplete."""
        raise AssertionError("each side reads its own heads")

    def message_received(self) -> None:
        """The body being read is complete."""

    def broken_framing(self, detail: str) -> None:
        """The peer broke the framing inside a body; nothing after it can be trusted."""
        self.abort()

    def peer_ended(self) -> None:
        """The peer sent FIN or is gone. A body that ends with the connection is complete now, any other is cut."""
        body = self._body
        if body is None:
            return
        self._body = None
        if self._missing == UNTIL_CLOSE and self._decoder is None and self._saw_eof:
            body.finish()
            self.message_received()
        else:
            body.fail(BodyError("the connection broke before the end of the message"))

    def lost(self) -> None:
        """The transport is gone."""

    # -- heads in pieces

    def gather_head(self, data: bytes) -> bytes:
        """Append to the incomplete head; all of it when it ends here or deserves a look, b"" otherwise.

        It is looked at whenever another KiB is full or a line end stands alone, and no byte is searched twice in
        between: a head that comes byte by byte costs no more than one that comes whole.
        """
        head = self._head
        before = len(head)
        head += data
        if (before >> 10 == len(head) >> 10 and head[0] > 0x0D and head.find(b"\r\n\r\n", max(0, before - 3)) < 0
                and data.count(b"\n") == head.count(b"\r\n", max(0, before - 1))):
            return b""
        return bytes(head)

    # -- bodies coming in

    def expect_body(self, length: int | None, chunked: bool) -> Body | None:
        """Start reading a body: `length` bytes, chunks, or (`UNTIL_CLOSE`) all there is. None: it is empty."""
        if chunked:
            self._decoder = ChunkDecoder()
        elif not length:
            return None
        else:
            self._missing = length
        self._body = Body(self)
        return self._body

    def _feed_body(self, data: bytes) -> bytes:
        body = cast(Body, self._body)
        rest: bytes | None
        if self._decoder is not None:
            try:
                rest = self._decoder.feed(data, body)
            except ChunkError as error:
                self._body = self._decoder = None
                body.fail(BodyError(str(error)))
                self.broken_framing(str(error))
                return b""
            if rest is None:
                return b""
            self._decoder = None
        elif self._missing == UNTIL_CLOSE or len(data) < self._missing:
            if self._missing != UNTIL_CLOSE:
                self._missing -= len(data)
            body.feed(data)
            return b""
        else:
            rest = data[self._missing:]
            body.feed(data[:self._missing] if rest else data)
            self._missing = 0
        self._body = None
        body.finish()
        self.message_received()
        return rest

    def pause_body(self) -> None:
        self.hold_reading()

    def resume_body(self) -> None:
        self.release_reading()

    def abandon_body(self) -> None:
        """The body's reader has gone away for good."""

    def hold_reading(self) -> None:
        self._read_holds += 1
        if self._read_holds == 1 and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def release_reading(self) -> None:
        self._read_holds -= 1
        if self._read_holds == 0 and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def peer_is_gone(self) -> bool:
        """Ask the kernel: while reading is paused the loop does not notice that the peer has closed."""
        handle = self.transport.get_extra_info("socket") if self.transport is not None else None
        if handle is None:
            return False
        gone = select.poll()
        gone.register(handle.fileno(), getattr(select, "POLLRDHUP", 0))  # errors and hang-ups always count
        return bool(gone.poll(0))

    # -- writing

    def write(self, data: bytes) -> None:
        """Write at the end of this turn of the loop, together with whatever else is written in it.

        uvloop sends inside `transport.write`, which wakes the receiver in the middle of our work; all sends of a
        turn at its end cost a twentieth less CPU per call at 16 connections. Once the peer is gone it is dropped.
        """
        if self.closed or self.transport is None:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > WRITE_LOW_WATER:  # many reads may come in one turn: let back-pressure show at once
            self._flush()

    def _flush(self) -> None:
        out = self._out
        if out:
            self._out = []
            self._out_bytes = 0
            if not self.closed and self.transport is not None:
                self.transport.write(out[0] if len(out) == 1 else b"".join(out))

    @property
    def unsent(self) -> bool:
        """Is there anything the kernel has not taken yet?"""
        return bool(self._out) or (self.transport is not None and self.transport.get_write_buffer_size() > 0)

    def write_eof(self) -> None:
        self._flush()
        if not self.closed and self.transport is not None and not self.transport.is_closing():
            # the peer may have gone between two callbacks
            with contextlib.suppress(OSError, RuntimeError):
                self.transport.write_eof()

    async def drained(self) -> None:
        """Wait until the peer has taken enough, or is gone."""
        while self._write_paused and not self.closed:
            self._drain_waiter = self._loop.create_future()
            await self._drain_waiter

    def close(self) -> None:
        """Close once what was written is out; cut the connection when the peer takes nothing of it for a while."""
        self._flush()
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()
            if not self.closed:
                self._watch_close(self._not_taken())

    def _watch_close(self, unsent: int) -> None:
        # close() with unread output waits for ever
        self._loop.call_later(CLOSE_TIMEOUT_S, self._cut_unless_moving, unsent)

    def _cut_unless_moving(self, unsent: int) -> None:
        if self.closed or self.transport is None:
            return
        left = self._not_taken()
        if left < unsent:
            self._watch_close(left)
        else:
            self.reset()

    def _not_taken(self) -> int:
        """Bytes the peer has not taken yet, the kernel's included: of its MiBs a slow reader frees little at a time."""
        assert self.transport is not None
        left = self.transport.get_write_buffer_size()
        handle = self.transport.get_extra_info("socket")
        if handle is not None:
            with contextlib.suppress(OSError):
                left += struct.unpack("i", fcntl.ioctl(handle.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
        return left

    def abort(self) -> None:
        if not self.closed and self.transport is not None:
            self.transport.abort()

    def reset(self) -> None:
        """Abort with RST. A plain FIN would look like the end of a message that only the end delimits."""
        if not self.closed and self.transport is not None:
            handle = self.transport.get_extra_info("socket")
            if handle is not None:
                with contextlib.suppress(OSError):
                    handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.transport.abort()

    # -- bytes read too early

    def hold(self, data: bytes) -> None:
        """Keep `data` for later and read no more until `unhold`."""
        if not self._stash:
            self.hold_reading()
        self._stash += data

    def unhold(self) -> bytes:
        """What was held; reading goes on."""
        data, self._stash = self._stash, b""
        if data:
            self.release_reading()
        return data

    # -- tunnels

    async def tunnel(self, other: "Connection") -> None:
        """Join the two connections byte by byte until both are closed."""
        ended = self._tunnel_end = self._loop.create_future()
        if self.closed or other.closed:
            self.close()  # what was written before is still good
            other.close()
            return
        self._tunnel, other._tunnel = other, self
        for here, there in ((self, other), (other, self)):
            if there._write_paused:  # from here on `pause_writing` does it
                here.hold_reading()
            if unread := here.unhold():
                there.write(unread)
            if here._saw_eof:
                there.write_eof()
        try:
            await ended
        except asyncio.CancelledError:
            self.abort()
            other.abort()
            raise
