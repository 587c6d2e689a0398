"""The agent behind both pairs: bare asyncio callbacks, so that it costs far less than a hop.

Any path answers 1 KiB of JSON once the whole body (`Content-Length`) has come in, except
`/bytes/N` (N bytes, as fast as they are taken), `/stream` (chunked: head and first chunk at once, the
second chunk 20 ms later), `/work` (answers after 3 s) and `/work?ms=N` (after N ms). Bodies are counted, never kept.
Run as `python -m bench.agent READY_FILE`.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import cast

import uvloop

ANSWER_BODY = json.dumps({"status": "success", "answer": "x" * 989}).encode()
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    % (len(ANSWER_BODY), ANSWER_BODY)
)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM_CHUNK = b"e\r\ndata: chunk 1\n\r\n"
STREAM_END = b"e\r\ndata: chunk 2\n\r\n0\r\n\r\n"
STREAM_PAUSE_S = 0.02
WORK_S = 3.0
PIECE = bytes(64 << 10)
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_WORK_PATH = re.compile(rb"[A-Z]+ /work\?ms=(\d+) ")
_BYTES_PATH = re.compile(rb"[A-Z]+ /bytes/(\d+)[ ?]")


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.WriteTransport
        self.head = b""
        self.request_line = b""
        self.body_left = 0
        self.bytes_left = 0
        self.writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)  # uvloop's own class does not derive from it
        self.transport.set_write_buffer_limits(high=1 << 20, low=1 << 18)

    def data_received(self, data: bytes) -> None:
        while data:
            if self.body_left:
                taken = min(self.body_left, len(data))
                self.body_left -= taken
                data = data[taken:]
            else:
                head, end, rest = (self.head + data).partition(b"\r\n\r\n")
                if not end:
                    self.head = head
                    return
                self.head, data = b"", rest
                self.request_line = head[: head.find(b"\r\n")]
                length = _LENGTH.search(head)
                self.body_left = int(length[1]) if length else 0
                if self.body_left:
                    continue
            if not self.body_left:
                self.answer()

    def answer(self) -> None:
        if b" /bytes/" in self.request_line:
            match = _BYTES_PATH.match(self.request_line)
            self.bytes_left = int(match[1]) if match else 0
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % self.bytes_left)
            self.resume_writing()
        elif b" /stream" in self.request_line:
            self.transport.write(STREAM_HEAD + STREAM_CHUNK)
            asyncio.get_running_loop().call_later(STREAM_PAUSE_S, self.transport.write, STREAM_END)
        elif b" /work" in self.request_line:
            match = _WORK_PATH.match(self.request_line)
            work_s = int(match[1]) / 1000 if match else WORK_S
            asyncio.get_running_loop().call_later(work_s, self.transport.write, ANSWER)
        else:
            self.transport.write(ANSWER)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        while self.bytes_left and self.writable:
            size = min(len(PIECE), self.bytes_left)
            self.bytes_left -= size
            self.transport.write(PIECE[:size] if size < len(PIECE) else PIECE)

    def connection_lost(self, exc: Exception | None) -> None:
        self.bytes_left = 0


async def serve(ready_file: Path) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=4096)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    host, port = server.sockets[0].getsockname()
    part = ready_file.with_suffix(".part")
    part.write_text(json.dumps({"pid": os.getpid(), "address": f"{host}:{port}"}))
    part.rename(ready_file)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(Path(sys.argv[1])))
