"""A request's body, for as many attempts as the call gets."""

import asyncio

import pytest

from reach_sidecar.forward.replay import KEEP_AT_MOST, Replay, ReplayedBody
from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.http1.message import field


async def all_of(reading: "bytes | Replay") -> bytes:
    if isinstance(reading, bytes):
        return reading
    parts = []
    while data := await reading.read():
        parts.append(data)
    return b"".join(parts)


def coming(*pieces: bytes, end: bool = True) -> Body:
    """A body whose pieces come one at a time."""
    body = Body()
    loop = asyncio.get_running_loop()

    def feed(rest: tuple[bytes, ...]) -> None:
        if rest:
            body.feed(rest[0])
            loop.call_soon(feed, rest[1:])
        elif end:
            body.finish()

    loop.call_soon(feed, pieces)
    return body


async def test_what_is_at_hand_travels_as_bytes_each_time() -> None:
    body = Body()
    body.feed(b"ab")
    body.feed(b"c")
    body.finish()
    replayed = ReplayedBody(body)
    assert [replayed.for_attempt(), replayed.for_attempt()] == [b"abc", b"abc"]
    assert replayed.replayable


async def test_an_empty_one_is_empty_bytes() -> None:
    body = Body()
    body.finish()
    assert ReplayedBody(body).for_attempt() == b""


async def test_trailers_keep_it_streaming() -> None:
    body = Body()
    body.feed(b"ab")
    body.trailers = [field("X-Sum", "1")]
    body.finish()
    replayed = ReplayedBody(body)
    for _ in range(2):
        reading = replayed.for_attempt()
        assert isinstance(reading, Replay)
        assert await all_of(reading) == b"ab"
        assert reading.trailers == body.trailers


async def test_what_has_passed_is_read_again() -> None:
    replayed = ReplayedBody(coming(b"a", b"b", b"c"))
    first = replayed.for_attempt()
    assert isinstance(first, Replay)
    assert await first.read() == b"a"
    second, third = replayed.for_attempt(), replayed.for_attempt()
    assert await all_of(second) == b"abc"
    assert await all_of(third) == b"abc"


@pytest.mark.parametrize(("size", "replayable"), [(KEEP_AT_MOST - 1, True), (KEEP_AT_MOST, True),
                                                  (KEEP_AT_MOST + 1, False)])
async def test_the_bound(size: int, replayable: bool) -> None:
    pieces = [bytes([number % 251]) * 1024 for number in range(size // 1024)] + [b"x" * (size % 1024)]
    replayed = ReplayedBody(coming(*pieces))
    assert await all_of(replayed.for_attempt()) == b"".join(pieces)
    assert replayed.replayable is replayable
    if replayable:
        assert await all_of(replayed.for_attempt()) == b"".join(pieces)
    else:
        assert replayed._kept == [], "memory is given back"


async def test_a_second_reading_may_outgrow_the_bound() -> None:
    """It has sent what was kept by then, so it needs it no more; only a third reading is too late."""
    pieces = [b"%08d" % number * 4096 for number in range(12)]
    replayed = ReplayedBody(coming(*pieces))
    first = replayed.for_attempt()
    assert isinstance(first, Replay)
    for _ in range(3):
        await first.read()
    assert await all_of(replayed.for_attempt()) == b"".join(pieces)
    assert not replayed.replayable


async def test_nothing_is_lost_when_a_reading_is_given_up_while_it_waits() -> None:
    source = Body()
    replayed = ReplayedBody(source)
    first = replayed.for_attempt()
    assert isinstance(first, Replay)
    waiting = asyncio.ensure_future(first.read())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    source.feed(b"ab")
    source.finish()
    assert await all_of(replayed.for_attempt()) == b"ab"


async def test_a_break_reaches_every_reading() -> None:
    source = Body()
    source.feed(b"a")
    source.fail(BodyError("gone"))
    replayed = ReplayedBody(source)
    for _ in range(2):
        reading = replayed.for_attempt()
        assert isinstance(reading, Replay)
        assert await reading.read() == b"a"
        with pytest.raises(BodyError):
            await reading.read()
