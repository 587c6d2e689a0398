"""Seen before? Every state with every fact, and keys and fingerprints that never clash."""

import itertools
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.policy.dedup import (
    FINGERPRINT_AT_MOST,
    MADE_PREFIX,
    Decision,
    State,
    compare,
    decide,
    fingerprint,
    is_made,
    keeps,
    row_key,
)

STORE = b"5f1c"
OTHER = b"77aa"


@pytest.mark.parametrize(
    ("state", "same", "joinable", "repeatable", "journal", "then"),
    [
        # no row: new here, unless the store that would know is gone
        (None,       False, True,  False, None,   "run"),
        (None,       False, True,  False, STORE,  "run"),
        (None,       False, True,  False, OTHER,  "outcome_unknown"),
        (None,       False, True,  False, b"-",   "outcome_unknown"),
        (None,       False, True,  False, b"",    "outcome_unknown"),
        (None,       False, True,  True,  OTHER,  "outcome_unknown"),
        (None,       False, True,  True,  None,   "run"),
        # a row: its state says it, whatever the journal
        ("running",  True,  True,  False, None,   "join"),
        ("running",  True,  True,  False, b"-",   "join"),
        ("running",  True,  False, False, None,   "in_progress"),
        ("running",  True,  False, True,  None,   "in_progress"),
        ("done",     True,  True,  False, None,   "replay"),
        ("done",     True,  False, False, OTHER,  "replay"),
        ("not_kept", True,  True,  True,  None,   "answer_not_kept"),
        ("unknown",  True,  True,  False, None,   "outcome_unknown"),
        ("unknown",  True,  True,  False, STORE,  "outcome_unknown"),
        ("unknown",  True,  True,  True,  STORE,  "run"),
        # another request under the same key, in any state
        ("running",  False, True,  True,  None,   "key_reused"),
        ("done",     False, True,  True,  None,   "key_reused"),
        ("not_kept", False, True,  True,  STORE,  "key_reused"),
        ("unknown",  False, True,  True,  None,   "key_reused"),
    ],
)  # fmt: skip
def test_decide(state: State | None, same: bool, joinable: bool, repeatable: bool, journal: bytes | None,
                then: Decision) -> None:
    assert decide(state, same_request=same, joinable=joinable, repeatable=repeatable, journal=journal,
                  store_id=STORE) == then


def test_what_may_have_run_never_runs_again_unless_that_does_no_harm() -> None:
    """All there is: a second run of a call that must not run twice needs a store that knows it never ran."""
    seen = set()
    states: list[State | None] = [None, *get_args(State)]
    flags = itertools.product([True, False], repeat=3)
    for state, (same, joinable, repeatable) in itertools.product(states, flags):
        for journal in (None, STORE, OTHER, b"-"):
            then = decide(state, same_request=same, joinable=joinable, repeatable=repeatable, journal=journal,
                          store_id=STORE)
            seen.add(then)
            if then == "run" and not repeatable:
                assert state is None
                assert journal in (None, STORE)
    assert seen == set(get_args(Decision))


TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"
AGAIN = b"00f067aa0ba902b700f067aa0ba902b7"


def print_of(method: bytes = b"POST", target: bytes = b"/process?x=1", content_type: bytes = b"application/json",
             body: bytes | None = b"{}", length: int | None = None, trace_id: bytes = TRACE) -> bytes:
    return fingerprint(method, target, content_type, body, length, trace_id)


def test_each_part_counts() -> None:
    prints = [
        print_of(), print_of(method=b"PUT"), print_of(target=b"/process"), print_of(content_type=b""),
        print_of(body=b"{ }"), print_of(body=b""), print_of(body=None), print_of(body=None, length=0),
        print_of(body=None, length=2), print_of(body=None, length=22),
    ]
    assert len(set(prints)) == len(prints)
    assert {len(one) for one in prints[:6]} == {24}
    assert print_of() == print_of(length=2), "the length of a known body is the body's own"


def test_what_one_process_remembers_is_told_apart_as_well() -> None:
    def quick(method: bytes, target: bytes, content_type: bytes, body: bytes) -> bytes:
        return fingerprint(method, target, content_type, body, None, TRACE, lasting=False)

    same = quick(b"POST", b"/a", b"text/plain", b"body")
    assert same == quick(b"POST", b"/a", b"text/plain", bytes(bytearray(b"body")))
    assert len(same) == 16
    others = {quick(b"PUT", b"/a", b"text/plain", b"body"), quick(b"POST", b"/ab", b"text/plain", b"ody"),
              quick(b"POST", b"/a", b"", b"body"), quick(b"POST", b"/a", b"text/plain", b"")}
    assert len(others | {same}) == 5


@pytest.mark.parametrize(("one", "other", "found"), [
    ((b"body", None), (b"body", None), "same"),
    ((b"body", None), (b"bodY", None), "other"),
    ((None, 300_000), (None, 300_000), "same"),
    ((None, 300_000), (None, 300_001), "other"),
    ((None, None), (None, None), "unknown"),
    ((None, None), (b"body", None), "unknown"),
    ((b"body", None), (None, None), "unknown"),
])
@pytest.mark.parametrize("lasting", [True, False])
def test_a_body_that_streamed_cannot_be_compared(one: tuple[bytes | None, int | None],
                                                 other: tuple[bytes | None, int | None], found: str,
                                                 lasting: bool) -> None:
    def print_at(path: bytes, body: bytes | None, length: int | None) -> bytes:
        return fingerprint(b"POST", path, b"a/b", body, length, TRACE, lasting=lasting)

    assert compare(print_at(b"/x", *one), print_at(b"/x", *other)) == found
    assert compare(print_at(b"/x", *one), print_at(b"/y", *other)) == "other"


def test_the_trace_of_the_call_is_no_part_of_the_request() -> None:
    body = b'{"task": 1, "trace_id": "%b", "again": ["%b"]}'
    assert print_of(body=body % (TRACE, TRACE)) == print_of(body=body % (AGAIN, AGAIN), trace_id=AGAIN)
    assert print_of(body=body % (TRACE, TRACE)) != print_of(body=body % (TRACE, AGAIN))
    assert print_of(body=TRACE) == print_of(body=AGAIN, trace_id=AGAIN)
    assert print_of(body=TRACE) != print_of(body=b""), "that it stands there counts"
    assert print_of(body=b"ab" + TRACE) != print_of(body=TRACE + b"ab")
    assert print_of(trace_id=b"") == print_of()


def test_a_long_body_is_known_by_its_length() -> None:
    most = b"a" * FINGERPRINT_AT_MOST
    assert print_of(body=most) != print_of(body=most[:-1] + b"b")
    longer = most + b"a"
    assert print_of(body=longer) == print_of(body=longer[:-1] + b"b")
    assert print_of(body=longer) == print_of(body=None, length=len(longer))
    assert print_of(body=longer) != print_of(body=longer + b"a")
    assert print_of(body=None, length=5, content_type=b"a/b") == print_of(body=None, length=5, content_type=b"c/d")


SMALL = st.binary(max_size=3) | st.sampled_from([b"1", b"1 ", b" 1", b";", b"12;", b"#", b"2:", b":"])


@given(st.lists(st.tuples(SMALL, SMALL, SMALL, SMALL | st.none(), st.none() | st.integers(0, 12)), max_size=20))
def test_no_two_requests_frame_alike(requests: list[tuple[bytes, bytes, bytes, bytes | None, int | None]]) -> None:
    prints: dict[bytes, tuple[object, ...]] = {}
    for method, target, content_type, body, length in requests:
        same: tuple[object, ...] = (method, target, length) if body is None else (method, target, content_type, body)
        assert prints.setdefault(fingerprint(method, target, content_type, body, length, b"1"), same) == same or (
            body is not None and b"1" in body)


@given(st.binary(max_size=12), st.integers(0, 3))
def test_two_traces_in_any_body(text: bytes, count: int) -> None:
    pieces = [text] * (count + 1)
    one, other = TRACE.join(pieces), AGAIN.join(pieces)
    assert print_of(body=one) == print_of(body=other, trace_id=AGAIN)
    assert (print_of(body=one) == print_of(body=other)) == (count == 0)


PART = SMALL | st.sampled_from([b"x" * 96, b"x" * 97, b"x" * 98, b"y" * 97, b"z" * 5000])
FOUR = st.tuples(PART, PART, PART, PART)


@given(st.lists(FOUR, max_size=20))
def test_row_keys_never_clash_and_stay_short(fours: list[tuple[bytes, bytes, bytes, bytes]]) -> None:
    keys = {row_key(*four): four for four in set(fours)}
    assert len(keys) == len(set(fours))
    assert all(len(key) <= 512 for key in keys)


def test_row_key_of_shifted_parts() -> None:
    assert row_key(b"ab", b"c", b"", b"k") != row_key(b"a", b"bc", b"", b"k")
    assert row_key(b"a", b"c", b"", b"k") != row_key(b"a", b"c", b"k", b"")
    assert row_key(b"a", b"c", b"s", b"k") == row_key(b"a", b"c", b"s", b"k")


def test_a_part_that_looks_like_a_hash_is_none() -> None:
    hashed = row_key(b"x" * 200, b"", b"", b"")
    assert hashed.startswith(b"#")
    assert row_key(hashed[:33], b"", b"", b"") != hashed


MADE = MADE_PREFIX + b"0123456789abcdef01234567-"


@pytest.mark.parametrize(
    ("key", "made"),
    [
        (MADE + b"00000001",             True),
        (MADE + b"1ffffffff",            True),
        (MADE + b"0000001",              False),
        (MADE + b"0000000g",             False),
        (MADE + b"00000001\n",           False),
        (MADE + b"00000001-x",           False),
        (MADE.upper() + b"00000001",     False),
        (b"x" + MADE + b"00000001",      False),
        (MADE_PREFIX + b"-00000001",     False),
        (MADE.removeprefix(MADE_PREFIX) + b"00000001", False),
        (b"order-1234",                  False),
        (b"",                            False),
    ],
)  # fmt: skip
def test_is_made(key: bytes, made: bool) -> None:
    assert is_made(key) is made


@pytest.mark.parametrize(
    ("status", "outcome", "retry_after", "once", "repeatable"),
    [
        (200, "",                  False, "answer", "answer"),
        (200, "success",           False, "answer", "answer"),
        (200, "failure",           False, "answer", "answer"),
        (200, "invalid_request",   False, "answer", "answer"),
        (200, "retryable_failure", False, "forget", "forget"),
        (404, "",                  False, "answer", "answer"),
        (429, "",                  False, "answer", "answer"),
        (429, "",                  True,  "forget", "forget"),
        (503, "",                  True,  "forget", "forget"),
        (503, "",                  False, "answer", "forget"),
        (500, "",                  False, "answer", "forget"),
        (500, "failure",           False, "answer", "answer"),
        (500, "success",           False, "answer", "answer"),
        (500, "retryable_failure", False, "forget", "forget"),
    ],
)  # fmt: skip
def test_keeps(status: int, outcome: str, retry_after: bool, once: str, repeatable: str) -> None:
    assert keeps(status, outcome, retry_after, False) == once
    assert keeps(status, outcome, retry_after, True) == repeatable
