"""`reach peers --watch`: the table as it changes, by the sidecar's `GET /v1/watch`.

A thread reads the stream and opens it again when it breaks, behind the last event it saw; the main thread keeps the
board and shows it, so that Ctrl-C is taken at once. On a terminal the table is drawn anew, changes that come together
only once; elsewhere each change is a line as soon as it is known.
"""

import http.client
import json
import os
import queue
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import click

from reach_cli.admin import Sidecar, find_sidecar, problem_of, reason, token
from reach_cli.agents import printable, show, summary
from reach_cli.event_stream import COMMENT, Event, events
from reach_cli.failure import Failed
from reach_cli.peers_change import AT_FIRST, Agent, Board, Change
from reach_cli.run_directory import notes
from reach_cli.terminal import is_terminal, paint, print_json, say

SILENCE_S = 40.0
"""The sidecar says something every 15 s: one that is silent for longer is gone, although nobody closed the stream."""
PAUSES_S = (0.1, 0.2, 0.5, 1.0)
GATHER_S = 0.03
REDRAW_S = 1.0  # at least: the window may have another size
RECENT = 6
COLOURS = {"up": "green", "down": "red"}


class Lost(NamedTuple):
    """The stream broke off, or could not be opened; said once until it is `Back`."""

    why: str


class Back(NamedTuple):
    """The stream is open (again)."""


News = Event | Lost | Back


def watch(admin: str | None, as_json: bool) -> None:
    """Until Ctrl-C. Raises Failed where there is no sidecar to begin with."""
    stream = Stream(admin)
    news: queue.SimpleQueue[News] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(stream, stream.open(), news), name="watch", daemon=True).start()
    if is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb" and not as_json:
        _draw_all(stream.url, news)
    write_lines(iter(news.get, None), as_json)


class Stream:
    """Where the stream is, and how far it has been read."""

    def __init__(self, admin: str | None) -> None:
        named = admin or os.environ.get("REACH_ADMIN") or ""
        self._is_url = "/" in named or ":" in named
        self._sidecar = find_sidecar(admin)
        self.last_id = ""

    @property
    def url(self) -> str:
        return self._sidecar.admin.url

    def again(self) -> http.client.HTTPResponse:
        """The same sidecar, started anew perhaps, on other ports if it was not named by URL. Raises Failed."""
        url = self.url
        if not self._is_url:
            places = [note["admin"] for note in notes("sidecar") if note["id"] == self._sidecar.agent_id]
            url = f"http://{places[0]}" if places else url
        self._sidecar = find_sidecar(url)
        return self.open()

    def open(self) -> http.client.HTTPResponse:
        """The stream, its events still to be read. Raises Failed."""
        door = self._sidecar.outbound
        _check_is_same(self._sidecar)
        connection = door.connect(SILENCE_S)
        headers = {**token(), "Accept": "text/event-stream"}
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        try:
            connection.request("GET", "/v1/watch", headers=headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"{door.name} at {door.url} does not answer ({reason(error)}).") from None
        if answer.status != 200:
            detail = problem_of(answer.read(65536)).get("detail")
            raise Failed(str(detail or f"{door.url}/v1/watch answered {answer.status}. Is that {door.name}?"))
        return answer


def _check_is_same(sidecar: Sidecar) -> None:
    """Behind a forwarded admin port the outbound address may lead to a sidecar of this machine instead."""
    here, there = sidecar.admin.get("/v1/self"), sidecar.outbound.get("/v1/self")
    if any(here.get(key) != there.get(key) for key in ("agent_id", "pid")):
        raise Failed(
            f"The sidecar at {sidecar.admin.url} takes calls at {sidecar.outbound.url}, but there another one answers. "
            "Run this on the sidecar's own machine, or without --watch."
        )


def _read(stream: Stream, answer: http.client.HTTPResponse, news: "queue.SimpleQueue[News]") -> None:
    """Put what the stream says into `news`, for ever."""
    while True:
        news.put(Back())
        why = "it ended the stream"
        try:
            with answer:
                for event in events(answer):
                    stream.last_id = event.id or stream.last_id
                    news.put(event)
        except TimeoutError:
            why = f"nothing was heard from it for {SILENCE_S:.0f} s"
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = f"the connection broke: {reason(error)}"
        answer = _reopen(stream, why, news)


def _reopen(stream: Stream, why: str, news: "queue.SimpleQueue[News]") -> http.client.HTTPResponse:
    """Try at once and then ever more slowly; only the second failure is worth a word."""
    tried = 0
    while True:
        try:
            return stream.again()
        except click.ClickException as error:
            if tried == 0:
                news.put(Lost(why))
            elif tried == len(PAUSES_S):
                news.put(Lost(error.message))
        except Exception as error:  # half an answer of a sidecar that is going or coming
            if tried == 0:
                news.put(Lost(f"{why} ({error!r})"))
        time.sleep(PAUSES_S[min(tried, len(PAUSES_S) - 1)])
        tried += 1


class Reporter:
    """Keeps the board and says what each piece of news means: changes, or that the sidecar went or came back."""

    def __init__(self) -> None:
        self.board = Board()
        self.lost = ""
        self.is_whole = False

    def take(self, piece: News) -> list[Change | Lost | Back]:
        if isinstance(piece, Lost):
            is_news, self.lost = not self.lost, piece.why
            return [piece] if is_news else []
        if isinstance(piece, Back):
            was_lost, self.lost = bool(self.lost), ""
            self.board.begin()
            return [piece] if was_lost else []
        if piece.kind == COMMENT:
            if piece.data != "all":
                return []
            self.is_whole = True
            return [*self.board.complete()]
        try:
            agent = json.loads(piece.data)
        except ValueError:
            return []
        change = self.board.learn(agent) if isinstance(agent, dict) else None
        return [] if change is None else [change]


# -- a line for each change


def write_lines(news: Iterable[News], as_json: bool) -> None:
    """One line a change on stdout. That the sidecar is gone is JSON too where JSON is asked for, else words."""
    reporter = Reporter()
    for piece in news:
        for one in reporter.take(piece):
            at = now_text()
            if isinstance(one, Change) and as_json:
                print_json({"at": at, "event": one.event, "why": one.why, **one.agent})
            elif isinstance(one, Change):
                click.echo(line(at, one))
            elif as_json:
                print_json({"at": at, "event": "sidecar_gone" if isinstance(one, Lost) else "sidecar_back",
                            **one._asdict()})
            else:
                say(f"{at}  {printable(sentence(one))}")


def line(at: str, change: Change) -> str:
    """`2026-01-31T12:00:00.123Z  down     planner-01  up -> suspect`."""
    event = paint(change.event.ljust(7), COLOURS.get(change.event))
    return f"{at}  {event}  {printable(change.agent_id)}  {printable(change.why)}"


def sentence(one: Lost | Back) -> str:
    if isinstance(one, Lost):
        return f"The sidecar is gone ({one.why}). What is shown is as it was; trying to reach it again."
    return "The sidecar is back."


def now_text() -> str:
    """RFC 3339 with milliseconds, as the log has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- a table that is drawn anew


def _draw_all(url: str, news: "queue.SimpleQueue[News]") -> None:
    reporter = Reporter()
    recent: deque[str] = deque(maxlen=RECENT)
    click.clear()
    while True:
        for piece in _batch(news):
            for one in reporter.take(piece):
                if isinstance(one, Change) and not one.why.startswith(AT_FIRST):
                    recent.append(line(now_text(), one))
                elif isinstance(one, Lost | Back):
                    recent.append(f"{now_text()}  {printable(sentence(one))}")
        if reporter.is_whole or reporter.lost:
            height = shutil.get_terminal_size().lines
            rows = screen(reporter.board.agents, [*recent], heading(url, reporter.lost), height)
            click.echo(over(rows), nl=False)


def _batch(news: "queue.SimpleQueue[News]") -> Iterator[News]:
    """What comes within GATHER_S of the first, or nothing after REDRAW_S."""
    try:
        yield news.get(timeout=REDRAW_S)
        give_up = time.monotonic() + GATHER_S
        while (left_s := give_up - time.monotonic()) > 0:
            yield news.get(timeout=left_s)
    except queue.Empty:
        return


def heading(url: str, lost: str) -> str:
    if lost:
        return paint(f"{url} is gone: {printable(lost)}. Trying again; below is what it knew.", "red")
    return paint(f"{url}, live. Ctrl-C ends it.", "bright_black")


def screen(agents: Sequence[Agent], recent: Sequence[str], head: str, height: int) -> list[str]:
    """At most `height` - 1 lines: the table, cut where it is too long, and the latest changes below it."""
    table = show(agents).splitlines() if agents else ["No agent is known yet."]
    below = ["", *recent] if recent else []
    room = max(2, height - 5 - len(below))  # heading, column names, "more", summary, the cursor's line
    if len(table) - 1 > room:
        left_out = len(table) - 1 - room
        table = [*table[: room + 1], paint(f"... and {left_out} more: `reach peers` lists all.", "bright_black")]
    return [head, *table, summary(agents, None), *below][: max(1, height - 1)]


def over(rows: Sequence[str]) -> str:
    """Written over what is there, line by line, which does not flicker; long lines are cut, not wrapped."""
    return "\x1b[?7l\x1b[H" + "".join(f"{row}\x1b[K\n" for row in rows) + "\x1b[J\x1b[?7h"
