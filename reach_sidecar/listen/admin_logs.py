"""`GET /v1/logs`: stored lines as JSON lines; with `follow=1` stored and live ones as server-sent events."""

import asyncio
import re
import sqlite3
import time
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from aiohttp import web

from reach_core.names import near
from reach_core.problem import Problem
from reach_core.units import parse_duration
from reach_sidecar.telemetry.follow import Followed, Follower
from reach_sidecar.telemetry.line import level_rank
from reach_sidecar.telemetry.log import LogWriter

KEEP_ALIVE_S = 15.0
MAX_FOLLOWERS = 64
MAX_LIMIT = 10_000
_NAMES = ("trace_id", "since", "level", "limit", "follow")
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")


class Asked(NamedTuple):
    trace_id: str | None
    since_ms: int
    level: str
    limit: int
    follow: bool


def read_query(query: Mapping[str, str], now_s: float) -> Asked:
    """What was asked for. Raises Problem `bad_request` that says what can be."""
    for name in query:
        if name not in _NAMES:
            close = near(name, _NAMES)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            raise Problem("bad_request", f"There is no parameter {name!r}; there are {', '.join(_NAMES)}.{meant}")
    trace_id = query.get("trace_id", "").strip().lower() or None
    if trace_id is not None:
        whole = _TRACEPARENT.fullmatch(trace_id)
        trace_id = whole[1] if whole else trace_id
        if not _TRACE_ID.fullmatch(trace_id):
            raise Problem("bad_request", f"trace_id {trace_id[:80]!r} is not one: 32 hexadecimal digits are.")
    level = query.get("level") or "debug"
    try:
        level_rank(level)
        since_ms = _since_ms(query["since"], now_s) if query.get("since") else 0
    except ValueError as error:
        raise Problem("bad_request", f"{error}.") from None
    limit = query.get("limit") or str(MAX_LIMIT)
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MAX_LIMIT):
        raise Problem("bad_request", f"limit {limit[:20]!r} is not a number from 1 to {MAX_LIMIT}.")
    return Asked(trace_id, since_ms, level, int(limit), query.get("follow", "0").lower() in ("1", "true", "yes", ""))


def _since_ms(text: str, now_s: float) -> int:
    if text[:4].isdigit() and "T" in text:
        try:
            # A `+` of an offset that was not escaped arrives as a space.
            return int(datetime.fromisoformat(text.replace(" ", "+")).timestamp() * 1000)
        except ValueError:
            raise ValueError(f"{text!r} is not a time: write one such as 2026-01-31T12:00:00Z, or 10m") from None
    return int((now_s - parse_duration(text)) * 1000)


class LogsEndpoint:
    """Answers for one `LogWriter`."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._following: set[Follower] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        asked = read_query(request.query, time.time())
        if asked.follow:
            return await self._follow(request, asked)
        lines, _ = await self._stored(asked)
        body = b"".join([line.data + b"\n" for line in lines])
        return web.Response(body=body, content_type="application/x-ndjson")

    async def _stored(self, asked: Asked, after_seq: int = 0) -> tuple[list[Followed], int]:
        """The stored lines, and the number they come after."""
        store = self._log.store
        if store is None:
            return [], 0
        await self._log.flush()
        if after_seq >= self._log.followers.next_seq:  # numbers began anew with a new store
            after_seq = 0
        try:
            lines = await asyncio.to_thread(
                store.query, asked.trace_id, asked.since_ms, asked.level, asked.limit, after_seq
            )
        except sqlite3.Error as error:
            detail = f"The log store cannot be read ({error}). What is logged goes to stderr all the same."
            raise Problem("internal_error", detail, status=503, executed="no") from error
        return lines, after_seq

    async def _follow(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        if len(self._following) >= MAX_FOLLOWERS:
            raise Problem("backpressure", f"{MAX_FOLLOWERS} followers are connected; close one of them.")
        follower = self._log.followers.add(asked.trace_id, level_rank(asked.level))
        self._following.add(follower)
        try:
            seen = request.headers.get("Last-Event-ID", "")
            resumed = int(seen[:18]) if seen.isascii() and seen.isdigit() else 0
            stored, after_seq = await self._stored(asked, resumed)
            answer = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
            answer.content_type = "text/event-stream"
            await answer.prepare(request)
            await _stream(answer, follower, stored, after_seq)
        finally:
            self._following.discard(follower)
            follower.close()
        return answer

    def stop(self) -> None:
        """End every stream, with its `end` event."""
        for follower in list(self._following):
            follower.end()


async def _stream(
    answer: web.StreamResponse, follower: Follower, stored: list[Followed], after_seq: int
) -> None:
    """Stored lines, then live ones, each once: what is in both has the same number."""
    last = stored[-1].seq if stored else after_seq
    await answer.write(b": log\n\n" + b"".join([_event(line) for line in stored]))
    while (lines := await follower.next(KEEP_ALIVE_S)) is not None:
        events = [_event(line) for line in lines if line.missed or line.seq > last]
        if events:
            await answer.write(b"".join(events))
        elif not lines:
            await answer.write(b": keep-alive\n\n")
    await answer.write(b"event: end\ndata: {}\n\n")
    await answer.write_eof()


def _event(line: Followed) -> bytes:
    if line.missed:
        return b'event: gap\ndata: {"missed":%d}\n\n' % line.missed
    return b"id: %d\ndata: %s\n\n" % (line.seq, line.data)
