"""Heads from bytes to values: what is taken, what is refused, and that nothing else can come out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.http1.head import HeadError, parse_request, parse_response
from reach_sidecar.http1.lines import METHODS

HOST = b"Host: a.reach\r\n"


def request(*lines: bytes, first: bytes = b"POST /x HTTP/1.1", host: bytes = HOST) -> bytes:
    return first + b"\r\n" + host + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def test_a_plain_head() -> None:
    head = parse_request(request(b"X-Case: Kept", b"x-case: twice", b"Empty:", first=b"POST /x?q=1 HTTP/1.1"))
    assert (head.method, head.target, head.version) == (b"POST", b"/x?q=1", 11)
    assert head.headers == [
        (b"host", b"Host", b"a.reach"), (b"x-case", b"X-Case", b"Kept"), (b"x-case", b"x-case", b"twice"),
        (b"empty", b"Empty", b""),
    ]  # fmt: skip
    assert (head.length, head.chunked, head.keep_alive, head.upgrade) == (None, False, True, None)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_each_known_method_parses(method: bytes) -> None:
    target = b"a.reach:80" if method == b"CONNECT" else b"/"
    assert parse_request(request(first=method + b" " + target + b" HTTP/1.1")).method == method


@pytest.mark.parametrize(("line", "value"), [
    (b"X:v", b"v"), (b"X: v", b"v"), (b"X:\t v", b"v"), (b"X: v \t", b"v"), (b"X:  ", b""), (b"X: a  b", b"a  b"),
    (b"X: caf\xc3\xa9", b"caf\xc3\xa9"), (b"X: a:b: c", b"a:b: c"),
])  # fmt: skip
def test_space_around_a_value_is_no_part_of_it(line: bytes, value: bytes) -> None:
    assert parse_request(request(line, b"Y: z")).headers[1:] == [(b"x", b"X", value), (b"y", b"Y", b"z")]


@pytest.mark.parametrize(("line", "length", "chunked"), [
    (b"Content-Length: 0", 0, False), (b"Content-Length: 5", 5, False), (b"content-length:007", 7, False),
    (b"Content-Length: 5 ", 5, False), (b"Content-Length: 9223372036854775807", (1 << 63) - 1, False),
    (b"Transfer-Encoding: chunked", None, True), (b"transfer-encoding:CHUNKED", None, True),
    (b"Transfer-Encoding:\tchunked ", None, True),
])  # fmt: skip
def test_framing(line: bytes, length: int | None, chunked: bool) -> None:
    head = parse_request(request(line))
    assert (head.length, head.chunked) == (length, chunked)


@pytest.mark.parametrize(("version", "connection", "keep_alive"), [
    (b"HTTP/1.1", b"", True), (b"HTTP/1.1", b"close", False), (b"HTTP/1.1", b"x, CLOSE ,y", False),
    (b"HTTP/1.1", b"keep-alive", True), (b"HTTP/1.0", b"", False), (b"HTTP/1.0", b"Keep-Alive", True),
    (b"HTTP/1.0", b"keep-alive, close", False),
])  # fmt: skip
def test_who_keeps_the_connection(version: bytes, connection: bytes, keep_alive: bool) -> None:
    head = parse_request(request(b"Connection: " + connection, first=b"GET / " + version))
    assert head.keep_alive is keep_alive


def test_what_connection_names_adds_up_over_its_lines() -> None:
    head = parse_request(request(b"Connection: X-A, x-b", b"Upgrade: websocket", b"connection: upgrade, close"))
    assert (head.upgrade, head.keep_alive) == (b"websocket", False)


@pytest.mark.parametrize(("lines", "upgrade"), [
    ([b"Connection: Upgrade", b"Upgrade: WebSocket"], b"websocket"),
    ([b"Connection: keep-alive, upgrade", b"Upgrade: h2c"], b"h2c"),
    ([b"Upgrade: websocket"], None),
    ([b"Connection: upgrade"], None),
])  # fmt: skip
def test_an_upgrade_counts_where_connection_names_it(lines: list[bytes], upgrade: bytes | None) -> None:
    assert parse_request(request(*lines)).upgrade == upgrade
    assert parse_request(request(*lines, first=b"GET / HTTP/1.0")).upgrade is None


def test_expect_counts_in_http_1_1_only() -> None:
    line = b"Expect: 100-Continue"
    assert parse_request(request(line)).expects_continue
    assert not parse_request(request(line, first=b"POST / HTTP/1.0")).expects_continue


@pytest.mark.parametrize("target", [
    b"/", b"//a", b"/%zz", b"/a?b?c", b"/{|}^`\"<>\\", b"http://a", b"HTTP://a.reach/x", b"http://[::1]:80/x",
    b"http://a?x", b"http://a:/",
])  # fmt: skip
def test_targets_that_pass(target: bytes) -> None:
    assert parse_request(request(first=b"GET " + target + b" HTTP/1.1")).target == target


@pytest.mark.parametrize("target", [
    b"*", b"a", b"a:80", b"https://a/", b"http:/a", b"http://", b"http:///x", b"http://?x", b"http://:80/",
    b"http://u@a/", b"http://u:p@a:80/", b"http://a:x/", b"http://a:123456/", b"http://a\\b/", b"/a#b", b"/\xc3\xa9",
    b"http://[::1/", b"ftp://a/", b"http://a,b\xff/",
])  # fmt: skip
def test_targets_that_do_not(target: bytes) -> None:
    with pytest.raises(HeadError) as caught:
        parse_request(request(first=b"GET " + target + b" HTTP/1.1"))
    assert caught.value.code == "bad_request"


@pytest.mark.parametrize("target", [b"a", b":80", b"a:", b"a:0", b"a:65536", b"a:8o", b"http://a:80", b"/", b"u@a:80"])
def test_connect_names_a_host_and_a_port(target: bytes) -> None:
    with pytest.raises(HeadError):
        parse_request(request(first=b"CONNECT " + target + b" HTTP/1.1"))


@pytest.mark.parametrize("line", [b"Content-Length: 5", b"Transfer-Encoding: chunked"])
def test_connect_has_no_body(line: bytes) -> None:
    with pytest.raises(HeadError, match="CONNECT has no body"):
        parse_request(request(line, first=b"CONNECT a:80 HTTP/1.1"))
    assert parse_request(request(b"Content-Length: 0", first=b"CONNECT a:80 HTTP/1.1")).length == 0


@pytest.mark.parametrize("host", [b"", b"a", b"A.b-c_d~", b"a:80", b"a:", b"[::1]", b"[::1]:80", b"[fe80::1%25eth0]"])
def test_hosts_that_pass(host: bytes) -> None:
    assert parse_request(request(host=b"Host: " + host + b"\r\n")).headers[0][2] == host


@pytest.mark.parametrize("host", [
    b"a b", b"a,b", b"a/b", b"u@a", b"a:x", b"a:123456", b"::1", b"a:80:80", b"\xe9", b"a#", b"a?b", b"[::1", b"[x]",
    b"a\\b", b"<a>", b"[::1]x",
])  # fmt: skip
def test_hosts_that_do_not(host: bytes) -> None:
    with pytest.raises(HeadError, match="Host"):
        parse_request(request(host=b"Host: " + host + b"\r\n"))


def test_http_1_0_needs_no_host() -> None:
    assert parse_request(request(first=b"GET / HTTP/1.0", host=b"")).version == 10
    with pytest.raises(HeadError, match="exactly one Host"):
        parse_request(request(host=b""))
    with pytest.raises(HeadError, match="exactly one Host"):
        parse_request(request(HOST[:-2], first=b"GET / HTTP/1.0"))


def test_an_answer() -> None:
    head = parse_response(b"HTTP/1.1 201 Made it\r\nA: 1\r\nContent-Length: 3\r\n\r\n")
    assert (head.status, head.reason, head.length, head.keep_alive) == (201, b"Made it", 3, True)
    assert head.headers == [(b"a", b"A", b"1"), (b"content-length", b"Content-Length", b"3")]


def test_an_answer_needs_no_reason() -> None:
    assert parse_response(b"HTTP/1.1 200 \r\n\r\n").reason == b""
    assert parse_response(b"HTTP/1.0 200\r\n\r\n").version == 10


RAW = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.sampled_from([
            b"GET", b"POST", b"CONNECT", b" ", b" ", b"/", b"a:80", b"http://", b"HTTP/1.1", b"HTTP/1.0", b"\r\n", b"\r\n",
            b"\r", b"\n", b"\t", b"\0", b":", b": ", b"Host", b"Host: a\r\n", b"Content-Length", b"Content-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\n", b"Connection: upgrade\r\n", b"Upgrade: websocket\r\n", b"5", b"-1", b"\xff",
            b"200", b"101", b"OK", b",", b"gzip",
        ]),
        max_size=14,
    ).map(b"".join),
)  # fmt: skip


@given(RAW)
def test_arbitrary_bytes_give_a_head_or_a_refusal(raw: bytes) -> None:
    for parse in (parse_request, parse_response):
        for start in (b"", b"GET / HTTP/1.1\r\nHost: a\r\n", b"HTTP/1.1 200 OK\r\n"):
            try:
                head = parse(start + raw + b"\r\n\r\n")
            except HeadError as error:
                assert error.code in ("bad_request", "not_implemented", "bad_agent_response")
                assert error.detail.endswith(".")
            else:
                assert head.length is None or 0 <= head.length < 1 << 63
                assert not (head.chunked and head.length is not None)
                for lower, name, value in head.headers:
                    assert lower == name.lower()
                    assert not set(name) & set(b" \t\r\n:\0")
                    assert not set(value) & set(b"\r\n\0")
                    assert value == value.strip(b" \t")
