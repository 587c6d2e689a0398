"""A stretch of network between sidecars that can be cut, frozen or refused: a TCP relay in a thread of the test.

A sidecar advertises the link's address instead of its own. A cut resets connections, on the caller's end, on the
called one's or on both: where only one end learns of it, the other goes on as if nothing were. A frozen connection
carries nothing, not even its end, until it thaws. A link that is down refuses connections, as a dead process does.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable
from typing import Literal, TypeVar

from harness.ports import lasting_port

T = TypeVar("T")
End = Literal["caller", "called", "both"]


class Half(asyncio.Protocol):
    """One end of a relayed connection; what it reads goes to the other one."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Half | None = None
        self.frozen = False
        self._held: list[bytes] = []  # read and not passed on: the other end is not there yet, or it is frozen
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.other is not None:
            self.other.pass_on()  # at once, before anything younger

    def data_received(self, data: bytes) -> None:
        self._held.append(data)
        self.pass_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self.pass_on()

    def pass_on(self) -> None:
        if self.frozen or self.other is None or self.other.transport is None:
            return
        for data in self._held:
            self.other.transport.write(data)
        self._held.clear()
        if self._ended:
            self.other.transport.close()

    def freeze(self, frozen: bool) -> None:
        self.frozen = frozen
        self.pass_on()

    def reset(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        sock = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class Pair:
    def __init__(self) -> None:
        self.caller = Half()
        self.called = Half()
        self.caller.other, self.called.other = self.called, self.caller

    @property
    def gone(self) -> bool:
        return all(half.transport is None or half.transport.is_closing() for half in (self.caller, self.called))


class Link:
    """Relays `127.0.0.1:port` to `127.0.0.1:to`; `accepted` counts the connections made through it."""

    def __init__(self, name: str, to: int) -> None:
        self.name = name
        self.to = to
        self.port = lasting_port()
        self.accepted = 0
        self._pairs: list[Pair] = []
        self._untold: list[Half] = []  # ends of cut connections that have not learnt of it
        self._frozen_share = 0.0
        self._chance = random.Random(name)
        self._server: asyncio.Server | None = None
        self._dials: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"link {name}", daemon=True)
        self._thread.start()
        self.up()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def up(self) -> None:
        """Take connections (again)."""
        async def listen() -> None:
            if self._server is None:
                self._server = await self._loop.create_server(self._accept, "127.0.0.1", self.port, backlog=256)
        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(5)

    def down(self) -> None:
        """Refuse new connections; those that are there stay."""
        def close() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None
        self._do(close)

    def cut(self, share: float, end: End) -> int:
        """Reset about this share of the connections; how many. The end that is not told hears nothing until `tell`."""
        def reset() -> int:
            chosen = [pair for pair in self._live() if self._chance.random() < share]
            for pair in chosen:
                for side, half, other in (("caller", pair.caller, pair.called), ("called", pair.called, pair.caller)):
                    if end in (side, "both"):
                        if end != "both":
                            half.other = other.other = None
                            self._untold.append(other)
                        half.reset()
            return len(chosen)
        return self._do(reset)

    def tell(self) -> None:
        """Reset the other ends of what was cut at one end."""
        def reset() -> None:
            for half in self._untold:
                half.reset()
            self._untold.clear()
        self._do(reset)

    def freeze(self, share: float) -> int:
        """Carry nothing on about this share of the connections, new ones included, until `thaw`; how many now."""
        def stop() -> int:
            self._frozen_share = share
            chosen = [pair for pair in self._live() if self._chance.random() < share]
            for pair in chosen:
                pair.caller.freeze(True)
                pair.called.freeze(True)
            return len(chosen)
        return self._do(stop)

    def thaw(self) -> None:
        def go_on() -> None:
            self._frozen_share = 0.0
            for pair in self._live():
                pair.caller.freeze(False)
                pair.called.freeze(False)
        self._do(go_on)

    def close(self) -> None:
        """Everything ends, the thread too."""
        self.down()

        def abort() -> None:
            for pair in self._pairs:
                pair.caller.reset()
                pair.called.reset()
            for dial in self._dials:
                dial.cancel()
            self._loop.call_later(0.05, self._loop.stop)  # after the transports are closed
        self._do(abort)
        self._thread.join(5)
        self._loop.close()

    def _accept(self) -> Half:
        self.accepted += 1
        pair = Pair()
        if self._chance.random() < self._frozen_share:
            pair.caller.frozen = pair.called.frozen = True
        self._pairs.append(pair)
        dial = self._loop.create_task(self._dial(pair))
        self._dials.add(dial)
        dial.add_done_callback(self._dials.discard)
        return pair.caller

    async def _dial(self, pair: Pair) -> None:
        try:
            await self._loop.create_connection(lambda: pair.called, "127.0.0.1", self.to)
        except OSError:
            pair.caller.reset()
            return

    def _live(self) -> list[Pair]:
        self._pairs = [pair for pair in self._pairs if not pair.gone]
        return self._pairs

    def _do(self, act: Callable[[], T]) -> T:
        async def run() -> T:
            return act()
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(5)
