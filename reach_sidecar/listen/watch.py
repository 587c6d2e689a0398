"""`GET /v1/watch`: who becomes callable, who no longer is, what else changes, as server-sent events.

What every agent looks like is compared with what it looked like before: at once when the table changed, and
once a second for what no table says (load, an address that is left alone for a while), and only while somebody
watches. The differences go into one ring that all watchers read at their own pace. So a slow reader costs the
64 KiB it has not taken yet and nothing more; one that has fallen off the ring is cut off, and comes back with
`Last-Event-ID`.

An event's id is `<epoch>-<number>`; the epoch is new with every process. A known id resumes behind it, any
other begins with the state of all agents. A comment (`: all`, or `: resumed`) ends that beginning: whoever keeps a
list knows by then who is no longer in it.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import orjson

from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.http1.message import Response, field
from reach_sidecar.listen.local_api_agents import Document, View, names_of

RING = 4096
GATHER_S = 0.02
SWEEP_S = 1.0
SWEEP_SHARE = 20
"""A sweep over a large table may take 1/20 of the time."""
CHUNK = 200
LINGER_S = 300.0
"""How long it goes on seeing without watchers, so that one who comes back can resume."""
KEEP_ALIVE_S = 15.0
RETRY_MS = 1000
_EVERY: frozenset[str] = frozenset()


class Seen(NamedTuple):
    """What of an agent decides between up, down and changed; `data` is its JSON."""

    available: bool
    names: frozenset[str]
    compared: bytes
    data: bytes


_NOBODY = Seen(False, frozenset(), b"", b"")


class Step(NamedTuple):
    """One agent's change."""

    before: Seen
    after: Seen

    def kind(self, names: frozenset[str]) -> str | None:
        """The event for somebody who watches `names` (none: every capability), None if it is not theirs."""
        had = not names or not names.isdisjoint(self.before.names)
        has = not names or not names.isdisjoint(self.after.names)
        was_up, is_up = self.before.available and had, self.after.available and has
        if was_up != is_up:
            return "up" if is_up else "down"
        return "changed" if had or has else None


class Watch:
    def __init__(self, view: View) -> None:
        self._view = view
        self._loop = asyncio.get_running_loop()
        self._epoch = secrets.token_hex(4)
        self._seen: dict[str, Seen] = {}
        self._ring: deque[Step] = deque(maxlen=RING)
        self._next = 1  # number of the next step
        self._news = asyncio.Event()
        self._dirty: set[str] = set()
        self._stirred = asyncio.Event()
        self._watchers: set[asyncio.Task[None]] = set()
        self._observer: asyncio.Task[None] | None = None
        self._alone_since = 0.0

    def changed(self, agent_ids: Iterable[str]) -> None:
        """The table changed for these agents."""
        if self._observer is not None:
            self._dirty.update(agent_ids)
            self._stirred.set()

    def open(self, capability: str, last_event_id: str) -> Response:
        """The stream of one watcher."""
        if self._observer is None:
            self._begin()
        body = Body(flow := _Flow())
        response = Response(
            200, [field("Content-Type", "text/event-stream"), field("Cache-Control", "no-store")], body)
        number = self._resume_at(last_event_id)
        names = self._view.names_meant(capability) if capability else _EVERY
        task = self._loop.create_task(self._serve(body, flow, names, number), name="watch")
        self._watchers.add(task)

        def ended(_: object) -> None:
            self._watchers.discard(task)
            self._alone_since = self._loop.time()
            if not task.cancelled() and (error := task.exception()) is not None:
                body.fail(BodyError(str(error)))
            elif body.error is None:
                body.finish()

        def stop(*_: object) -> None:
            task.cancel()

        task.add_done_callback(ended)
        flow.on_abandon = stop
        response.when_sent(stop)
        return response

    def close(self) -> None:
        """End all streams."""
        for task in [*self._watchers, *([self._observer] if self._observer else [])]:
            task.cancel()
        self._observer = None

    # -- seeing

    def _begin(self) -> None:
        """Whatever happened while nobody watched is not told: ids from before are unknown now."""
        self._epoch = secrets.token_hex(4)
        self._ring.clear()
        self._dirty.clear()
        now = self._loop.time()
        self._seen = {document["agent_id"]: seen_of(document)
                      for document in (peer.describe(now) for peer in self._view.peers())}
        self._observer = self._loop.create_task(self._observe(), name="watch observer")

    async def _observe(self) -> None:
        due = self._loop.time() + SWEEP_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - self._loop.time())):
                    await self._stirred.wait()
                    await asyncio.sleep(GATHER_S)
            self._stirred.clear()
            dirty, self._dirty = self._dirty, set()
            self._look_at(dirty)
            began = self._loop.time()
            if began >= due:
                if not self._watchers and began - self._alone_since > LINGER_S:
                    self._observer = None
                    return
                await self._sweep()
                took = self._loop.time() - began
                due = began + max(SWEEP_S, SWEEP_SHARE * took)

    async def _sweep(self) -> None:
        agent_ids = list({*self._seen, *(peer.agent_id for peer in self._view.peers())})
        for start in range(0, len(agent_ids), CHUNK):
            self._look_at(agent_ids[start : start + CHUNK])
            await asyncio.sleep(0)

    def _look_at(self, agent_ids: Iterable[str]) -> None:
        now = self._loop.time()
        told = False
        for agent_id in agent_ids:
            peer = self._view.peer(agent_id)
            before = self._seen.get(agent_id, _NOBODY)
            if peer is not None:
                after = seen_of(peer.describe(now))
                self._seen[agent_id] = after
            elif self._seen.pop(agent_id, None) is not None:
                after = gone(agent_id, before)
            else:
                continue
            if after.compared != before.compared:
                self._ring.append(Step(before, after))
                self._next += 1
                told = True
        if told:
            news, self._news = self._news, asyncio.Event()
            news.set()

    # -- telling

    def _resume_at(self, last_event_id: str) -> int | None:
        """The number of the step to go on with, None where that is not known: begin with all agents."""
        epoch, _, number = last_event_id.partition("-")
        if epoch != self._epoch or not (number.isascii() and number.isdecimal()):
            return None
        following = int(number[:18]) + 1
        return following if self._next - len(self._ring) <= following <= self._next else None

    async def _serve(self, body: Body, flow: "_Flow", names: frozenset[str], number: int | None) -> None:
        body.feed(b"retry: %d\n\n" % RETRY_MS)
        if number is None:
            number = self._next
            for seen in list(self._seen.values()):
                kind = "up" if seen.available else "down"
                if not names or not names.isdisjoint(seen.names):
                    body.feed(self._event(kind, seen, number - 1))
                    await flow.room()
            body.feed(b": all\n\n")
        else:
            body.feed(b": resumed\n\n")
        while True:
            news = self._news
            while number < self._next:
                oldest = self._next - len(self._ring)
                if number < oldest:
                    body.fail(BodyError("the reader is too slow: it missed events and has to begin anew"))
                    return
                step = self._ring[number - oldest]
                kind_or_none = step.kind(names)
                if kind_or_none is not None:
                    body.feed(self._event(kind_or_none, step.after, number))
                number += 1
                await flow.room()
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    await news.wait()
            except TimeoutError:
                body.feed(b":\n\n")
                await flow.room()

    def _event(self, kind: str, seen: Seen, number: int) -> bytes:
        return b"event: %b\nid: %b-%d\ndata: %b\n\n" % (kind.encode(), self._epoch.encode(), number, seen.data)


class _Flow:
    """Back-pressure of one watcher: `room` waits while over 64 KiB have not been taken."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.on_abandon: Callable[[], None] = _nothing

    def pause_body(self) -> None:
        self._open.clear()

    def resume_body(self) -> None:
        self._open.set()

    def abandon_body(self) -> None:
        self.on_abandon()

    async def room(self) -> None:
        if not self._open.is_set():
            await self._open.wait()


def seen_of(document: Document) -> Seen:
    """Ages are left out of the comparison: they change all the time and say nothing new."""
    load = document["load"]
    excluded = document["excluded"]
    compared = {
        **document,
        "load": (load["running"], load["queued"], load["limit"]),
        "excluded": None if excluded is None else excluded["reason"],
    }
    names = frozenset(name for one in document["capabilities"] for name in names_of(one))
    return Seen(excluded is None, names, orjson.dumps(compared), orjson.dumps(document))


def gone(agent_id: str, before: Seen) -> Seen:
    """An agent that is no longer in the table, as its last event shows it."""
    document = orjson.loads(before.data)
    document["status"] = "left"
    document["excluded"] = {"reason": "agent_down", "detail": "it is no longer in the table"}
    return Seen(False, before.names, b"", orjson.dumps(document))


def _nothing() -> None:
    pass

