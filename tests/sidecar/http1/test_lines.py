"""Lines are parsed once, remembered within bounds, and the memory never changes a verdict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.http1 import lines
from reach_sidecar.http1.lines import LineError, is_host, read_fields, read_request_line, read_status_line


@pytest.fixture(autouse=True)
def forgetful() -> None:
    lines._REMEMBERED.clear()


def test_fields_keep_case_order_and_repetitions_whether_remembered_or_not() -> None:
    known = [b"Accept: */*", b"X-A: 1"]
    read_fields(known)
    assert read_fields([b"X-New:2", *known, b"x-a: 3 \t", b"X-A: 1"]) == [
        (b"x-new", b"X-New", b"2"), (b"accept", b"Accept", b"*/*"), (b"x-a", b"X-A", b"1"), (b"x-a", b"x-a", b"3"),
        (b"x-a", b"X-A", b"1"),
    ]  # fmt: skip


@pytest.mark.parametrize("line", [
    b" X: 1", b"\tX: 1", b"X : 1", b": 1", b"X", b"", b"X(: 1", b"X: a\x00b", b"X: a\rb", b"X: a\nY: b", b"X\xff: 1",
])  # fmt: skip
def test_a_bad_line_is_refused_alone_and_among_known_ones(line: bytes) -> None:
    good = [b"Accept: */*", b"Host: a"]
    read_fields(good)
    for around in ([line], [good[0], line], [line, good[1]], [good[0], line, good[1]], [b"X-Fresh: 1", line]):
        for _ in range(2):
            with pytest.raises(LineError):
                read_fields(around)
    assert line not in lines._REMEMBERED


def test_secrets_long_lines_and_what_never_comes_twice_are_not_remembered() -> None:
    kept_out = [b"Authorization: Bearer s", b"cookie: a=b", b"Traceparent: 00-1-2-3", b"X: " + b"y" * 5000,
                b"X" * 5000 + b": 1"]
    read_fields([*kept_out, b"X-Kept: 1"])
    assert list(lines._REMEMBERED) == [b"X-Kept: 1"]


def test_the_memory_is_bounded() -> None:
    for number in range(2 * lines.MAX_REMEMBERED + 10):
        read_fields([b"X-Flood-%d: 1" % number])
    assert len(lines._REMEMBERED) <= lines.MAX_REMEMBERED
    assert len(lines._LOWER) <= lines.MAX_REMEMBERED + 1


def test_request_and_status_lines() -> None:
    assert read_request_line(b"GET /a?b HTTP/1.0") == (b"GET", b"/a?b", 10)
    assert read_request_line(b"GET /" + b"x" * 9000 + b" HTTP/1.1")[2] == 11
    assert read_status_line(b"HTTP/1.1 404 Not Found") == (404, b"Not Found", 11)
    assert read_status_line(b"HTTP/1.0 200") == (200, b"", 10)
    for bad in (b"HTTP/1.1 2000 OK", b"HTTP/1.1  200 OK", b"HTTP/2.0 200 OK", b"HTTP/1.1 600 X", b"HTTP/1.1 20", b""):
        with pytest.raises(LineError):
            read_status_line(bad)


def test_hosts() -> None:
    assert all(map(is_host, [b"a", b"a:1", b"[::1]:80", b"", b"x_y.reach"]))
    assert not any(map(is_host, [b"a b", b"a/b", b"a@b", b"a:b", b"[::1", b"a,b"]))


@given(st.lists(st.one_of(st.binary(max_size=40), st.from_regex(rb"[A-Za-z-]{1,8}: ?[ -~]{0,20}", fullmatch=True)),
                max_size=6))
def test_remembering_changes_no_verdict(some: list[bytes]) -> None:
    def verdict() -> object:
        try:
            return read_fields(list(some))
        except LineError:
            return None

    lines._REMEMBERED.clear()
    first = verdict()
    assert verdict() == first
    for line in some:
        try:
            read_fields([line])
        except LineError:
            pass
    assert verdict() == first
