"""A body on its way in: who is woken, who is told to stop, and what a failure leaves."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.http1.body import HIGH_WATER, Body, BodyError, BodyTooLarge


class Source:
    def __init__(self) -> None:
        self.told: list[str] = []

    def pause_body(self) -> None:
        self.told.append("pause")

    def resume_body(self) -> None:
        self.told.append("resume")

    def abandon_body(self) -> None:
        self.told.append("abandon")


async def test_what_is_there_is_taken_at_once() -> None:
    body = Body()
    assert body.take() == b""
    body.feed(b"ab")
    body.feed(b"cd")
    assert (body.size, body.take(), body.size, body.taken) == (4, b"abcd", 0, 4)
    body.finish()
    assert body.at_end
    assert await body.read() == b""


async def test_a_reader_waits_for_what_comes() -> None:
    body = Body()
    reading = asyncio.ensure_future(body.read())
    await asyncio.sleep(0)
    assert not reading.done()
    body.feed(b"a")
    body.feed(b"b")
    assert await reading == b"ab"


async def test_nothing_is_no_end() -> None:
    body = Body()
    body.feed(b"")
    reading = asyncio.ensure_future(body.read())
    await asyncio.sleep(0)
    body.feed(b"")
    await asyncio.sleep(0)
    assert not reading.done()
    body.feed(b"a")
    assert await reading == b"a"


async def test_a_failure_comes_behind_what_was_there() -> None:
    body = Body()
    body.feed(b"half")
    body.fail(BodyError("first"))
    body.fail(BodyError("second"))
    assert await body.read() == b"half"
    for _ in range(2):
        with pytest.raises(BodyError, match="first"):
            await body.read()


async def test_a_failure_wakes_the_reader() -> None:
    body = Body()
    reading = asyncio.ensure_future(body.read())
    await asyncio.sleep(0)
    body.fail(BodyError("cut"))
    with pytest.raises(BodyError, match="cut"):
        await reading


async def test_a_complete_body_cannot_fail_any_more() -> None:
    body = Body.whole(b"all")
    body.fail(BodyError("too late"))
    assert await body.read() == b"all"
    assert await body.read() == b""


async def test_a_cancelled_reader_leaves_nothing_behind() -> None:
    body = Body()
    reading = asyncio.ensure_future(body.read())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    body.feed(b"a")
    assert await body.read() == b"a"


def test_the_source_is_paused_above_the_mark_and_resumed_when_all_is_taken() -> None:
    source = Source()
    body = Body(source)
    body.feed(bytes(HIGH_WATER))
    assert source.told == []
    body.feed(b"x")
    body.feed(b"y")
    assert source.told == ["pause"]
    body.take()
    body.take()
    assert source.told == ["pause", "resume"]


def test_discarding_lets_the_source_flow() -> None:
    source = Source()
    body = Body(source)
    body.feed(bytes(HIGH_WATER + 1))
    body.discard()
    body.feed(bytes(HIGH_WATER + 1))
    assert (source.told, body.size) == (["pause", "resume"], 0)


@pytest.mark.parametrize("end", ["read", "discard before", "discard after", "abandon"])
async def test_the_end_is_told_once_when_the_last_byte_is_gone(end: str) -> None:
    ended: list[bool] = []
    body = Body(Source())
    body.on_end = lambda: ended.append(True)
    body.feed(b"data")
    if end == "discard before":
        body.discard()
        assert not ended
    body.finish()
    if end == "discard after":
        body.discard()
    elif end == "abandon":
        body.abandon()
    elif end == "read":
        assert not ended
        await body.read()
    assert ended == [True]
    body.take()
    assert ended == [True]


def test_abandoning_stops_a_source_that_still_sends() -> None:
    source = Source()
    body = Body(source)
    body.abandon()
    assert source.told == ["abandon"]
    failed = Body(source)
    failed.fail(BodyError("cut"))
    failed.abandon()
    assert source.told == ["abandon"]


async def test_the_first_read_is_told_once() -> None:
    asked: list[bool] = []
    body = Body()
    body.on_first_read = lambda: asked.append(True)
    body.feed(b"a")
    assert (body.take(), asked) == (b"a", [])
    body.feed(b"b")
    await body.read()
    body.feed(b"c")
    await body.read()
    assert asked == [True]


@pytest.mark.parametrize("pieces", [[b"abc"], [b"ab", b"c"], []])
async def test_collect(pieces: list[bytes]) -> None:
    body = Body()
    collecting = asyncio.ensure_future(body.collect(3))
    for piece in pieces:
        await asyncio.sleep(0)
        body.feed(piece)
    body.finish()
    assert await collecting == b"".join(pieces)


@pytest.mark.parametrize("whole", [True, False])
async def test_collect_has_a_bound(whole: bool) -> None:
    body = Body.whole(b"abcd") if whole else Body()
    if not whole:
        body.feed(b"abcd")
    with pytest.raises(BodyTooLarge, match="over 3 bytes"):
        await body.collect(3)


async def test_collect_of_a_body_that_breaks_off() -> None:
    body = Body()
    body.feed(b"a")
    body.fail(BodyError("cut"))
    with pytest.raises(BodyError):
        await body.collect(10)


@given(st.lists(st.one_of(st.binary(max_size=40_000), st.just("take")), max_size=12))
def test_pauses_and_resumes_alternate_and_nothing_is_lost(steps: list[bytes | str]) -> None:
    source = Source()
    body = Body(source)
    fed, taken = b"", b""
    for step in steps:
        if isinstance(step, bytes):
            body.feed(step)
            fed += step
        else:
            taken += body.take()
        assert (source.told[-1:] == ["pause"]) == (len(fed) - len(taken) > HIGH_WATER)
    body.finish()
    assert taken + body.take() == fed
    assert source.told == ["pause", "resume"] * (len(source.told) // 2)


def test_looking_takes_nothing() -> None:
    body = Body()
    assert body.peek() == b""
    body.feed(b"ab")
    body.feed(b"cd")
    assert (body.peek(), body.peek(), body.size, body.taken) == (b"abcd", b"abcd", 4, 0)
    body.feed(b"e")
    assert body.peek() == b"abcde"
    assert body.take() == b"abcde"
    assert (body.peek(), body.taken) == (b"", 5)


def test_a_tap_sees_what_is_taken_once_and_in_order() -> None:
    body = Body()
    seen: list[bytes] = []
    body.tap = seen.append
    body.feed(b"ab")
    body.peek()
    assert seen == [], "not what is only looked at"
    assert body.take() == b"ab"
    body.feed(b"c")
    body.feed(b"d")
    body.finish()
    assert body.take() == b"cd"
    assert body.take() == b""
    assert seen == [b"ab", b"cd"]
