"""Where a caller's own key is found, and in what form it travels."""

import asyncio
import string

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.given_key import LONG, given_key
from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.http1.message import Request, field

JSON = {"id": "order-7", "n": 42, "f": 1.5, "yes": True, "no": None, "empty": "", "list": ["a", {"b": "c"}],
        "a/b": "slash", "m~n": "tilde", "": "nameless", "deep": {"er": {"": "here"}}, "0": "zero"}


def call_with(body: bytes | Body, *fields: str) -> Call:
    headers = [field(*line.split(": ", 1)) for line in fields]
    call = Call(Request(b"POST", b"/x", 11, headers, Body.whole(body) if isinstance(body, bytes) else body), 0.0)
    call.deadline = asyncio.get_running_loop().time() + 5.0
    return call


@pytest.mark.parametrize(("place", "key"), [
    ("json:/id", b"order-7"), ("json:/n", b"42"), ("json:/f", b"1.5"), ("json:/list/0", b"a"),
    ("json:/list/1/b", b"c"), ("json:/a~1b", b"slash"), ("json:/m~0n", b"tilde"), ("json:/", b"nameless"),
    ("json:/deep/er/", b"here"), ("json:/0", b"zero"),
    # nothing there that could be a key
    ("json:/yes", None), ("json:/no", None), ("json:/empty", None), ("json:/list", None), ("json:/deep", None),
    ("json:/other", None), ("json:/list/2", None), ("json:/list/-1", None), ("json:/list/x", None),
    ("json:/list/\u00b2", None), ("json:/id/x", None), ("json:", None),
    ("header:X-Order", b"from-a-header"), ("header:x-order", b"from-a-header"), ("header:X-None", None),
    ("somewhere:else", None),
])
async def test_places(place: str, key: bytes | None) -> None:
    body = orjson.dumps(JSON)
    call = call_with(body, "X-Order: from-a-header")
    assert await given_key(call, place) == key
    assert await given_key(call_with(body, "X-Order: from-a-header", "Idempotency-Key: usual"), place) == (
        key or b"usual"), "where that place is empty the usual header counts"
    assert call.request.body.peek() == body, "it is still to be sent"


@pytest.mark.parametrize("body", [b"", b"{", b"not json", b"[1, 2]", b"7", b"null", b'"text"', b"\xff\xfe"])
async def test_a_body_without_such_a_place(body: bytes) -> None:
    assert await given_key(call_with(body), "json:/id") is None


async def test_a_body_too_long_to_be_looked_into() -> None:
    long = orjson.dumps({"id": "k", "pad": "x" * 300_000})
    assert await given_key(call_with(long), "json:/id") is None
    assert await given_key(call_with(long, "Idempotency-Key: usual"), "json:/id") == b"usual"


async def test_a_body_that_breaks_off() -> None:
    body = Body()
    body.feed(b'{"id": ')
    waiting = asyncio.ensure_future(given_key(call_with(body, "Content-Length: 20"), "json:/id"))
    await asyncio.sleep(0)
    body.fail(BodyError("cut"))
    with pytest.raises(Problem, match="did not arrive whole"):
        await waiting


@pytest.mark.parametrize(("key", "hashed"), [
    ("x" * LONG, False), ("x" * (LONG + 1), True), ("two words", True), ("caf\u00e9", True), ("line\nbreak", True),
    ("\U0001f600", True), ("!~", False), ("\x7f", True),
])
async def test_one_that_fits_no_header_travels_as_its_hash(key: str, hashed: bool) -> None:
    body = orjson.dumps({"id": key})
    found = await given_key(call_with(body), "json:/id")
    assert found is not None
    assert found.startswith(b"hash-") is hashed
    assert (found == key.encode()) is not hashed
    assert await given_key(call_with(body), "json:/id") == found, "the same each time"


@given(st.text(min_size=1, max_size=300))
async def test_whatever_it_is_it_can_be_sent(text: str) -> None:
    found = await given_key(call_with(orjson.dumps({"id": text})), "json:/id")
    assert found is not None
    assert set(found.decode()) <= set(string.printable) - set(string.whitespace)
    assert len(found) <= LONG


async def test_two_keys_are_two_hashes() -> None:
    bodies = [orjson.dumps({"id": "x" * 200 + str(number)}) for number in range(100)]
    assert len({await given_key(call_with(body), "json:/id") for body in bodies}) == 100
