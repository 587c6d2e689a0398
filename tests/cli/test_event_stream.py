import pytest

from reach_cli.event_stream import COMMENT, Event, events


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"event: up\nid: a-1\ndata: {}\n\n", [Event("up", "a-1", "{}")]),
        (b"retry: 1000\n\ndata: x\ndata: y\n\n", [Event("message", "", "x\ny")]),
        (b"id: a-1\ndata: 1\n\nevent: up\ndata: 2\n\n", [Event("message", "a-1", "1"), Event("up", "a-1", "2")]),
        (b": all\n\n:\n\n", [Event(COMMENT, "", "all"), Event(COMMENT, "", "")]),
        (b"event:up\r\ndata:x\r\n\r\n", [Event("up", "", "x")]),
        (b"event: up\n\ndata: x\n\n", [Event("message", "", "x")]),  # no data, no event
        (b"event: up\ndata: cut", []),
        (b"id: \0\ndata: \xff\n\n", [Event("message", "", "\N{REPLACEMENT CHARACTER}")]),
    ],
)
def test_what_a_stream_says(text: bytes, found: list[Event]) -> None:
    assert list(events(text.splitlines(keepends=True))) == found
