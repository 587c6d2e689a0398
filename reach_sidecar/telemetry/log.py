"""The log: one JSON object a line on stderr, and the same in the store (design: Logs).

`line()` runs on the path of every call, so it does only what must be done there: serialise (a record kept for later
would pin its objects and raise p99) and append. A worker thread, woken by the first line of a batch and by nothing
else, takes what has gathered in 100 ms, hands it to stderr and writes it to the store in one transaction. A SIGKILL
therefore loses about the last 100 ms.

Measured per call line of 340 bytes on Debian's Python 3.11, shared 2-core machine: `line()` 1.4–1.7 µs warm, 0.5 of it
orjson; the worker 2.7 and stderr to a file 0.85 µs of CPU at 5,000 lines/s (5.7 and 1.7 at 2,000/s, where batches are
smaller). From `line()` to the commit: 111–122 ms median at 10,000 lines/s beside a busy loop, more when the disk or
both cores are overcommitted.

Nothing here ever blocks or fails a call. Lines that find no room (a stalled disk) or that a sink cannot take (a full
disk, a reader of stderr that stopped) are dropped, counted in `lost`, and announced once a minute.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import orjson

from reach_sidecar.telemetry.follow import Followers
from reach_sidecar.telemetry.line import LEVELS, MAX_LINE_BYTES, Line, encode, level_rank, rfc3339
from reach_sidecar.telemetry.stderr import StderrSink
from reach_sidecar.telemetry.store import LogStore

BATCH_S = 0.1
# About 8 MB of call lines: what may wait for a worker that is stuck in a slow disk.
MAX_PENDING_LINES = 20_000
WARN_EVERY_S = 60.0
CLOSE_TIMEOUT_S = 3.0

_dumps = orjson.dumps
_time = time.time
_rank_of: Callable[[Any, int], int] = LEVELS.get


class LogWriter:
    """Takes records from any thread. `store=None` writes to stderr only.

    `agent` is the id that every line carries; set it when the local agent declares another one.
    """

    def __init__(
        self,
        agent: str = "",
        store: LogStore | None = None,
        *,
        level: str = "info",
        format: str = "json",
        sink: StderrSink | None = None,
    ) -> None:
        self.store = store
        self.followers = Followers()
        self.lost = {"queue": 0, "store": 0}
        self._sink = sink if sink is not None else StderrSink(text=format == "text")
        self._threshold = level_rank(level)
        self._second: tuple[int, bytes] = (0, b"")
        self.agent = agent
        self._pending: deque[Line] = deque()
        self._awake = False
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._hurry = threading.Event()
        self._waiters: deque[Callable[[], None]] = deque()
        self._closing = False
        self._announced: dict[str, tuple[float, int]] = {}
        self._worker: threading.Thread | None = None
        self._start_lock = threading.Lock()

    @property
    def agent(self) -> str:
        return self._agent

    @agent.setter
    def agent(self, agent: str) -> None:
        self._agent = agent
        self._after_ts = b'Z","agent":%s,' % _dumps(agent) if agent else b'Z",'
        self._stamp: tuple[int, bytes] = (0, b"")

    @property
    def level(self) -> str:
        return next(name for name in ("debug", "info", "warn", "error") if level_rank(name) == self._threshold)

    @level.setter
    def level(self, level: str) -> None:
        self._threshold = level_rank(level)

    def lost_lines(self) -> dict[str, int]:
        """Lines lost since the start, by where: `queue`, `store`, `stderr`."""
        return {**self.lost, "stderr": self._sink.lost}

    def line(self, record: dict[str, object]) -> None:
        """Log `record`, which has at least `level` and `event`; `ts` and `agent` are put in front of it here."""
        rank = _rank_of(record.get("level"), 20)
        if rank < self._threshold:
            return
        ms = int(_time() * 1000)
        stamp = self._stamp
        if stamp[0] != ms:
            stamp = self._restamp(ms)
        try:
            data = stamp[1] + _dumps(record)[1:]
        except TypeError:
            data = stamp[1] + encode(record)[1:]
        if len(data) > MAX_LINE_BYTES:
            data = stamp[1] + encode(record)[1:]
        pending = self._pending
        if len(pending) >= MAX_PENDING_LINES:
            self.lost["queue"] += 1
            return
        pending.append((ms, rank, record.get("trace_id"), data))  # type: ignore[arg-type]
        # Append first, then look: the worker clears the flag before it drains, so no line is left lying.
        if not self._awake:
            self._rouse()

    def event(self, level: str, event: str, **fields: object) -> None:
        """Log something that is not a call. Fields that are None are left out."""
        record: dict[str, object] = {"level": level, "event": event}
        record.update((name, value) for name, value in fields.items() if value is not None)
        self.line(record)

    def _restamp(self, ms: int) -> tuple[int, bytes]:
        """The head of every line of this millisecond. One assignment, so that other threads see it whole."""
        second = self._second
        if second[0] != ms // 1000:
            second = self._second = (ms // 1000, b'{"ts":"%s' % rfc3339(ms)[:-4].encode())
        stamp = self._stamp = (ms, b"%s%03d%s" % (second[1], ms % 1000, self._after_ts))
        return stamp

    def _rouse(self) -> None:
        self._awake = True
        if self._worker is None:
            self._start()
        self._wake.put(None)

    def _start(self) -> None:
        with self._start_lock:
            if self._worker is None:
                self._worker = threading.Thread(target=self._run, name="reach-log", daemon=True)
                self._worker.start()

    async def flush(self, timeout_s: float = 1.0) -> bool:
        """Wait until what was logged so far is in the store, so that a query sees it. False: not in time."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def tell() -> None:
            try:
                loop.call_soon_threadsafe(done.set)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass

        if self._closing:
            return False
        self._waiters.append(tell)
        self._hurry.set()
        self._rouse()
        try:
            await asyncio.wait_for(done.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Write what is left and stop; waits a few seconds at most."""
        self._closing = True
        self._hurry.set()
        if self._worker is not None:
            self._rouse()
            self._worker.join(CLOSE_TIMEOUT_S)
        elif self.store is not None:
            self.store.close()
        self._sink.close(CLOSE_TIMEOUT_S)
        self.followers.close()

    def _run(self) -> None:
        """The worker: sleeps until a first line rouses it."""
        while True:
            self._wake.get()
            if not self._closing:
                self._hurry.wait(BATCH_S)
            self._hurry.clear()
            closing = self._closing
            waiters = [self._waiters.popleft() for _ in range(len(self._waiters))]
            self._awake = False
            batch = [self._pending.popleft() for _ in range(len(self._pending))]
            try:
                self._write(batch)
            except Exception as error:  # whatever it is, the next batch gets its chance
                self.lost["store"] += len(batch)
                self._announce("store", self.lost["store"], f"a batch was not written: {error!r}")
            for tell in waiters:
                tell()
            if closing:
                if self.store is not None:
                    self.store.close()
                return

    def _write(self, batch: list[Line]) -> None:
        """An empty batch, which somebody waits for, still opens the store and so learns the next number."""
        if batch:
            self._sink.write(batch)
        first = self.followers.next_seq
        if self.store is not None:
            self.store.next_seq = max(first, self.store.next_seq)
            first, error = self.store.append_batch(batch)
            if error is not None:
                self.lost["store"] += len(batch)
                self._announce("store", self.lost["store"], f"logs are not stored: {error}")
            elif "store" in self._announced:
                lost = self._announced.pop("store")[1]
                self._note("info", "logs_stored_again", f"the log store takes lines again; {lost} were lost")
            if self.store.moved_aside is not None:
                aside, self.store.moved_aside = self.store.moved_aside, None
                detail = f"the log store was damaged; it was moved to {aside} and a new one begun"
                self._note("warn", "log_store_damaged", detail)
        if self.lost["queue"]:
            self._announce("queue", self.lost["queue"], "logs come faster than they can be written")
        self.followers.publish(first, batch)

    def _announce(self, where: str, lost: int, why: str) -> None:
        said_at, said = self._announced.get(where, (-WARN_EVERY_S, 0))
        now = time.monotonic()
        if lost > said and now - said_at >= WARN_EVERY_S:
            self._announced[where] = (now, lost)
            self._note("warn", "logs_lost", f"{why}; {lost} lines lost so far. Calls are not affected.")
        elif where in self._announced:
            self._announced[where] = (said_at, lost)

    def _note(self, level: str, event: str, detail: str) -> None:
        """To stderr only: the store may be what is broken."""
        ms = int(_time() * 1000)
        record = {"ts": rfc3339(ms), "agent": self._agent, "level": level, "event": event, "detail": detail}
        self._sink.write([(ms, level_rank(level), None, _dumps(record))])
