"""Lines to stderr, which may be a terminal someone stopped, a full pipe, or closed.

stderr is shared with other processes, so it must not be made non-blocking. A thread of its own writes it and may
stand still; the backlog in front of it is bounded and what does not fit is dropped and counted.
"""

import os
import select
import threading
from collections import deque

from reach_sidecar.telemetry.line import Line, rfc3339
from reach_sidecar.telemetry.text import render

MAX_BACKLOG_BYTES = 4 * 1024 * 1024
_STALL_POLL_MS = 1000


class StderrSink:
    """`write()` never blocks. `lost` counts the lines that did not reach `fd`."""

    def __init__(self, fd: int = 2, *, text: bool = False, colour: bool | None = None) -> None:
        self.lost = 0
        self._fd = fd
        self._text = text
        self._colour = os.isatty(fd) and "NO_COLOR" not in os.environ if colour is None else colour
        self._backlog: deque[list[Line]] = deque()
        self._backlog_bytes = 0
        self._lost_unsaid = 0
        self._changed = threading.Condition()  # re-entrant
        self._closing = False
        self._thread: threading.Thread | None = None

    def write(self, batch: list[Line]) -> None:
        size = sum([len(line[3]) for line in batch])
        with self._changed:
            if self._backlog_bytes + size > MAX_BACKLOG_BYTES and self._backlog:
                self._drop(len(batch))
                return
            self._backlog.append(batch)
            self._backlog_bytes += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="reach-stderr", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self, timeout_s: float) -> None:
        """Give the thread `timeout_s` to write what is left; a reader that stopped is left behind."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._backlog and not self._closing:
                    self._changed.wait()
                if not self._backlog:
                    return
                batch = self._backlog.popleft()
            self._write_out(batch)
            with self._changed:
                self._backlog_bytes -= sum([len(line[3]) for line in batch])

    def _drop(self, lines: int) -> None:
        with self._changed:
            self.lost += lines
            self._lost_unsaid += lines

    def _write_out(self, batch: list[Line]) -> None:
        try:
            self._write_all(self._encode(batch))
        except OSError:  # the reader is gone, or stderr is closed: the next batch tries again
            self._drop(len(batch))
            return
        with self._changed:
            lost, self._lost_unsaid = self._lost_unsaid, 0
        if lost:
            detail = f"stderr was not read fast enough; {lost} lines are missing here"
            ms = batch[-1][0]
            notice = f'{{"ts":"{rfc3339(ms)}","level":"warn","event":"logs_lost","detail":"{detail}"}}'
            try:
                self._write_all(self._encode([(ms, 30, None, notice.encode())]))
            except OSError:
                with self._changed:
                    self._lost_unsaid += lost

    def _encode(self, batch: list[Line]) -> bytes:
        if self._text:
            return "".join([render(line[3], colour=self._colour) for line in batch]).encode("utf-8", "replace")
        return b"\n".join([line[3] for line in batch]) + b"\n"

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:  # another process made the shared description non-blocking
                waiting = select.poll()
                waiting.register(self._fd, select.POLLOUT)
                waiting.poll(_STALL_POLL_MS)
