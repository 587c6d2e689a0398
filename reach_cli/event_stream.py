"""Server-sent events one by one, with their ids and the comments between them (WHATWG HTML, "Server-sent events")."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

COMMENT = ""


class Event(NamedTuple):
    """`id` is what a `Last-Event-ID` would say now. A comment has no kind, and its text as data."""

    kind: str
    id: str
    data: str


def events(lines: Iterable[bytes]) -> Iterator[Event]:
    """What a stream of lines says; an event that the stream's end cuts off is none."""
    kind, last_id = "message", ""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield Event(kind, last_id, "\n".join(data))
            kind, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            yield Event(COMMENT, last_id, value)
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "id" and "\0" not in value:
            last_id = value
