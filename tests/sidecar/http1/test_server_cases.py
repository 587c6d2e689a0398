"""Raw bytes and what must come back: every case over a real socket, in one piece and byte by byte.

A case says what is sent, which answers come, and whether the connection can be used afterwards. The door echoes
what it understood, so that a case can also say what the handler must have seen. After a refusal nothing that
follows may be answered, and the connection ends: that is what makes smuggling pointless.
"""

import asyncio
from typing import Any, NamedTuple

import pytest
from sidecar.http1.raw import Door, Peer

GET = b"GET /a HTTP/1.1\r\nHost: a.reach\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: a.reach\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: a.reach\r\n\r\n"
BAD = "400 bad_request"
OPEN, CLOSED = True, False


class Case(NamedTuple):
    name: str
    send: bytes
    answers: list[str | dict[str, Any]]  # a status, a status and a problem's code, or what a 200 must echo
    stays_open: bool = OPEN


def refused(name: str, send: bytes, answer: str = BAD) -> Case:
    """One refusal, then the end; `NEXT` behind it must never be answered."""
    return Case(name, send, [answer], CLOSED)


def header(name: str, line: bytes, answer: str = BAD, *, method: bytes = POST) -> Case:
    return refused(name, method + line + b"\r\n\r\n" + NEXT, answer)


def first_line(name: str, line: bytes, answer: str = BAD) -> Case:
    return refused(name, line + b"\r\nHost: a.reach\r\n\r\n" + NEXT, answer)


def chunks(name: str, raw: bytes) -> Case:
    return refused(name, CHUNKED + raw + b"\r\n0\r\n\r\n" + NEXT)


REQUEST_LINE = [
    first_line("no version: HTTP/0.9", b"GET /"),
    first_line("HTTP/1.2", b"GET / HTTP/1.2"),
    first_line("HTTP/2.0", b"GET / HTTP/2.0"),
    first_line("HTTP/0.9 by name", b"GET / HTTP/0.9"),
    first_line("HTTP/01.1", b"GET / HTTP/01.1"),
    first_line("version in lower case", b"GET / http/1.1"),
    first_line("another protocol", b"GET / RTSP/1.0"),
    first_line("space behind the version", b"GET / HTTP/1.1 "),
    first_line("two spaces before the target", b"GET  / HTTP/1.1"),
    first_line("tabs for spaces", b"GET\t/\tHTTP/1.1"),
    first_line("space inside the target", b"GET /a b HTTP/1.1"),
    first_line("leading space", b" GET / HTTP/1.1"),
    first_line("no target", b"GET HTTP/1.1"),
    first_line("empty target", b"GET  HTTP/1.1"),
    first_line("only a method", b"GET"),
    first_line("a method with a brace", b"GE{T / HTTP/1.1"),
    first_line("a method with a colon", b"GET: / HTTP/1.1"),
    first_line("an unknown method", b"BREW /pot HTTP/1.1", "501 not_implemented"),
    first_line("a method in lower case is another method", b"get / HTTP/1.1", "501 not_implemented"),
    first_line("a relative target", b"GET a/b HTTP/1.1"),
    first_line("a fragment", b"GET /a#b HTTP/1.1"),
    first_line("bytes beyond ASCII in the target", b"GET /caf\xc3\xa9 HTTP/1.1"),
    first_line("NUL in the target", b"GET /a\0b HTTP/1.1"),
    first_line("DEL in the target", b"GET /a\x7fb HTTP/1.1"),
    first_line("https in absolute form", b"GET https://a.reach/ HTTP/1.1"),
    first_line("absolute form without a host", b"GET http:///a HTTP/1.1"),
    first_line("absolute form with a password", b"GET http://u:p@a.reach/ HTTP/1.1"),
    first_line("asterisk form is for OPTIONS", b"GET * HTTP/1.1"),
    first_line("authority form is for CONNECT", b"GET a.reach:80 HTTP/1.1"),
    first_line("CONNECT without a port", b"CONNECT a.reach HTTP/1.1"),
    first_line("CONNECT with a path", b"CONNECT /a HTTP/1.1"),
    first_line("CONNECT to port 0", b"CONNECT a.reach:0 HTTP/1.1"),
    first_line("CONNECT beyond the last port", b"CONNECT a.reach:65536 HTTP/1.1"),
    first_line("a URL over 16 KiB", b"GET /" + b"a" * 16_384 + b" HTTP/1.1", "414 uri_too_long"),
    first_line("a URL without an end", b"GET /" + b"a" * 30_000, "414 uri_too_long"),
    refused("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    refused("TLS ClientHello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)),
    refused("SSH", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    refused("zero bytes", bytes(64)),
    refused("LF before the request", b"\n" + NEXT),
    refused("CR before the request", b"\r" + NEXT),
    refused("a response", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    refused("UTF-8 byte order mark", b"\xef\xbb\xbf" + NEXT),
    Case("CRLF before the request is forgiven", b"\r\n\r\n\r\n" + NEXT, [{"target": "/next"}]),
    Case("absolute form", b"GET http://a.reach/x?y HTTP/1.1\r\nHost: b\r\n\r\n", [{"target": "http://a.reach/x?y"}]),
    Case("asterisk form", b"OPTIONS * HTTP/1.1\r\nHost: a.reach\r\n\r\n", [{"target": "*"}]),
    Case("a URL of 16 KiB", b"GET /" + b"a" * 16_383 + b" HTTP/1.1\r\nHost: a.reach\r\n\r\n", ["200"]),
    Case("HTTP/1.0", b"GET /a HTTP/1.0\r\n\r\n", [{"version": 10, "headers": []}], CLOSED),
    Case("HTTP/1.0 keep-alive", b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", [{"version": 10}]),
    Case("HTTP/1.0 keep-alive and close",
         b"GET /a HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n" + NEXT, ["200"], CLOSED),
    Case("HTTP/1.0 with a body", b"POST /a HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi", [{"body": "hi"}], CLOSED),
]

FIELDS = [
    refused("no Host", b"GET / HTTP/1.1\r\n\r\n" + NEXT),
    header("two Hosts", b"Host: a.reach"),
    header("two different Hosts", b"host: b.reach"),
    refused("two Hosts in HTTP/1.0", b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"),
    refused("a Host with a path", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    refused("a Host with a user", b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"),
    refused("a Host with a space", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    refused("a list of Hosts", b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
    refused("a Host with a strange port", b"GET / HTTP/1.1\r\nHost: a:8o\r\n\r\n"),
    refused("a Host beyond ASCII", b"GET / HTTP/1.1\r\nHost: caf\xe9\r\n\r\n"),
    header("no colon", b"nonsense"),
    header("an empty name", b": x"),
    header("space before the colon", b"X-A : x"),
    header("tab before the colon", b"X-A\t: x"),
    header("a space in a name", b"X A: x"),
    header("a quote in a name", b"X\"A: x"),
    header("brackets in a name", b"X[A]: x"),
    header("bytes beyond ASCII in a name", b"X-\xc3\xa9: x"),
    header("NUL in a name", b"X\0A: x"),
    header("NUL in a value", b"X-A: x\0y"),
    header("ESC in a value", b"X-A: x\x1by"),
    header("DEL in a value", b"X-A: x\x7fy"),
    header("CR alone in a value", b"X-A: x\ry"),
    header("CR CR LF", b"X-A: x\r"),
    header("LF alone ends a line", b"X-A: x\nX-B: y"),
    header("LF in front of a hidden field", b"X-A: x\nTransfer-Encoding: chunked"),
    header("a folded line", b"X-A: x\r\n y"),
    header("a line folded by a tab", b"X-A: x\r\n\ty"),
    header("a folded Transfer-Encoding", b"Transfer-Encoding:\r\n chunked"),
    refused("the first field is folded", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
    refused("all lines end with LF", b"GET / HTTP/1.1\nHost: a\n\n"),
    refused("the head ends with LF LF", b"GET / HTTP/1.1\r\nHost: a\r\n\n"),
    header("a header block over 64 KiB", b"X-A: " + b"x" * 65_536, "431 header_too_large"),
    header("too many fields", b"\r\n".join([b"X-%d: x" % number for number in range(8000)]), "431 header_too_large"),
    Case("a thousand fields", GET + b"".join(b"X-%d: x\r\n" % number for number in range(1000)) + b"\r\n", ["200"]),
    Case("names keep their case, order and repetition", GET + b"B: 1\r\nx-A: 2\r\nb: 3\r\n\r\n",
         [{"headers": [["Host", "a.reach"], ["B", "1"], ["x-A", "2"], ["b", "3"]]}]),
    Case("an empty value", GET + b"X-A:\r\nX-B: y\r\n\r\n",
         [{"headers": [["Host", "a.reach"], ["X-A", ""], ["X-B", "y"]]}]),
    Case("bytes beyond ASCII in a value", GET + b"X-A: caf\xe9\r\n\r\n", ["200"]),
    Case("an empty Host", b"GET / HTTP/1.1\r\nHost:\r\n\r\n", ["200"]),
]  # fmt: skip

FRAMING = [
    header("CL and TE", b"Content-Length: 5\r\nTransfer-Encoding: chunked"),
    header("TE and CL", b"Transfer-Encoding: chunked\r\nContent-Length: 5"),
    header("TE and CL: 0", b"Transfer-Encoding: chunked\r\nContent-Length: 0", method=GET),
    header("CL twice, the same", b"Content-Length: 5\r\nContent-Length: 5"),
    header("CL twice, different", b"Content-Length: 5\r\ncontent-length: 6"),
    header("a list of lengths", b"Content-Length: 5, 5"),
    header("CL with a plus", b"Content-Length: +5"),
    header("CL with a minus", b"Content-Length: -5"),
    header("CL in hex", b"Content-Length: 0x5"),
    header("CL with a fraction", b"Content-Length: 5.0"),
    header("CL with an underscore", b"Content-Length: 1_0"),
    header("CL with a space inside", b"Content-Length: 1 0"),
    header("CL in quotes", b'Content-Length: "5"'),
    header("CL in Arabic digits", "Content-Length: ٥".encode()),
    header("an empty CL", b"Content-Length:"),
    header("CL over 2^63", b"Content-Length: 9223372036854775808"),
    header("CL over 2^64", b"Content-Length: 18446744073709551621"),
    header("CL with a space before its name", b"X-A: x\r\n Content-Length: 5"),
    header("CL with a space behind its name", b"Content-Length : 5"),
    header("TE with a space behind its name", b"Transfer-Encoding : chunked"),
    header("TE twice", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
    header("TE twice, other case", b"Transfer-Encoding: chunked\r\ntransfer-encoding: identity"),
    header("chunked twice", b"Transfer-Encoding: chunked, chunked"),
    header("gzip before chunked", b"Transfer-Encoding: gzip, chunked", "501 not_implemented"),
    header("gzip alone", b"Transfer-Encoding: gzip"),
    header("chunked before gzip", b"Transfer-Encoding: chunked, gzip"),
    header("identity", b"Transfer-Encoding: identity"),
    header("TE misspelt", b"Transfer-Encoding: xchunked"),
    header("TE in quotes", b'Transfer-Encoding: "chunked"'),
    header("TE with a parameter", b"Transfer-Encoding: chunked;q=1"),
    header("TE with a comma before", b"Transfer-Encoding: ,chunked", "501 not_implemented"),
    header("TE behind a vertical tab", b"Transfer-Encoding: \x0bchunked"),
    header("TE followed by NUL", b"Transfer-Encoding: chunked\0"),
    header("an empty TE", b"Transfer-Encoding:"),
    header("a tab behind chunked", b"Transfer-Encoding: chunked\t"),
    refused("TE in HTTP/1.0", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    refused("CONNECT with a body", b"CONNECT a.reach:80 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"),
    Case("TE in upper case", POST + b"TRANSFER-ENCODING: CHUNKED\r\n\r\n2\r\nhi\r\n0\r\n\r\n", [{"body": "hi"}]),
    Case("a tab before chunked", POST + b"Transfer-Encoding:\tchunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", [{"body": "hi"}]),
    Case("an underscore makes another field", POST + b"Content_Length: 99\r\nContent-Length: 2\r\n\r\nhi", [{"body": "hi"}]),
    Case("GET with a body", GET + b"Content-Length: 2\r\n\r\nhi", [{"method": "GET", "body": "hi"}]),
    Case("POST without a length has no body", POST + b"\r\n" + NEXT, [{"body": ""}, {"target": "/next"}]),
    Case("a body that looks like a request", POST + b"Content-Length: %d\r\n\r\n" % len(NEXT) + NEXT,
         [{"body": NEXT.decode()}]),
    Case("more than the length says is the next request", POST + b"Content-Length: 2\r\n\r\nhiBAD / HTTP/1.1\r\n\r\n",
         [{"body": "hi"}, "501 not_implemented"], CLOSED),
]  # fmt: skip

CHUNKS = [
    chunks("size with a plus", b"+5\r\nhello"),
    chunks("size with a minus", b"-5\r\nhello"),
    chunks("size with 0x", b"0x5\r\nhello"),
    chunks("size behind a space", b" 5\r\nhello"),
    chunks("size before a space", b"5 \r\nhello"),
    chunks("size in quotes", b'"5"\r\nhello'),
    chunks("size with an underscore", b"0_5\r\nhello"),
    chunks("no size", b"\r\nhello"),
    chunks("only an extension", b";a=b\r\nhello"),
    chunks("size is no hex", b"5g\r\nhello"),
    chunks("size of 16 digits", b"0000000000000005\r\nhello"),
    chunks("size that overflows 64 bits", b"10000000000000005\r\nhello"),
    chunks("size line ends with LF", b"5\nhello"),
    chunks("size line ends with CR", b"5\rhello"),
    chunks("LF in an extension", b"5;a=b\nc\r\nhello"),
    chunks("NUL in an extension", b"5;a\0b\r\nhello"),
    chunks("an extension over 4 KiB", b"5;" + b"x" * 5000 + b"\r\nhello"),
    chunks("an extension without an end", b"5;" + b"x" * 20_000),
    refused("no CRLF behind the data", CHUNKED + b"5\r\nhello0\r\n\r\n" + NEXT),
    refused("only LF behind the data", CHUNKED + b"5\r\nhello\n0\r\n\r\n" + NEXT),
    refused("more data than the size says", CHUNKED + b"4\r\nhello\r\n0\r\n\r\n" + NEXT),
    refused("less data than the size says", CHUNKED + b"6\r\nhello\r\n0\r\n\r\n" + NEXT),
    refused("a last chunk with a minus", CHUNKED + b"-0\r\n\r\n" + NEXT),
    refused("a trailer without a colon", CHUNKED + b"0\r\nnonsense\r\n\r\n" + NEXT),
    refused("a folded trailer", CHUNKED + b"0\r\nA: b\r\n c\r\n\r\n" + NEXT),
    refused("a trailer ends with LF", CHUNKED + b"0\r\nA: b\n\r\n" + NEXT),
    refused("NUL in a trailer", CHUNKED + b"0\r\nA: \0\r\n\r\n" + NEXT),
    refused("trailers over 64 KiB", CHUNKED + b"0\r\n" + (b"A: " + b"x" * 1000 + b"\r\n") * 70 + b"\r\n" + NEXT),
    Case("chunks", CHUNKED + b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", [{"body": "hello world"}]),
    Case("extensions are dropped", CHUNKED + b'5;a="b;c"\r\nhello\r\n0;d\r\n\r\n', [{"body": "hello"}]),
    Case("no data", CHUNKED + b"0\r\n\r\n" + NEXT, [{"body": ""}, {"target": "/next"}]),
    Case("trailers", CHUNKED + b"2\r\nhi\r\n0\r\nX-Sum: 1\r\nx-sum: 2\r\nContent-Length: 9\r\nHost: b\r\n\r\n",
         [{"body": "hi", "trailers": [["X-Sum", "1"], ["x-sum", "2"]]}]),
    Case("a last chunk of many zeros", CHUNKED + b"2\r\nhi\r\n0000\r\n\r\n" + NEXT, [{"body": "hi"}, {"target": "/next"}]),
]  # fmt: skip

CONNECTIONS = [
    Case("pipelining", NEXT * 3, [{"target": "/next"}] * 3),
    Case("more pipelined than are read ahead", NEXT * 30, [{"target": "/next"}] * 30),
    Case("pipelined bodies", (POST + b"Content-Length: 2\r\n\r\nhi") * 2 + CHUNKED + b"3\r\nyou\r\n0\r\n\r\n" + NEXT,
         [{"body": "hi"}, {"body": "hi"}, {"body": "you"}, {"target": "/next"}]),
    Case("pipelined in front of a refused one", NEXT * 2 + b"GET / HTTP/3\r\n\r\n" + NEXT,
         [{"target": "/next"}, {"target": "/next"}, BAD], CLOSED),
    Case("pipelined in front of a broken chunk", NEXT + CHUNKED + b"x\r\n\r\n" + NEXT, [{"target": "/next"}, BAD], CLOSED),
    Case("close", GET + b"Connection: close\r\n\r\n" + NEXT, [{"target": "/a"}], CLOSED),
    Case("close among others, other case", GET + b"Connection: x, CLOSE\r\n\r\n" + NEXT, [{"target": "/a"}], CLOSED),
    Case("garbage behind a close", GET + b"Connection: close\r\n\r\n\0\xff{}", [{"target": "/a"}], CLOSED),
    Case("garbage behind a request", GET + b"\r\n" + b"\0\xff", [{"target": "/a"}, BAD], CLOSED),
    Case("Expect with a body", POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", ["100"], OPEN),
    Case("Expect, and the body is already there", POST + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
         [{"body": ""}]),
    Case("Expect without a body", GET + b"Expect: 100-continue\r\n\r\n", [{"body": ""}]),
    Case("Expect in HTTP/1.0", b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
         [{"body": "hi"}], CLOSED),
    Case("another expectation", GET + b"Expect: miracles\r\n\r\n", ["200"]),
    Case("h2c upgrade with a body", POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n"
         b"Content-Length: 2\r\n\r\nhi", [{"body": "hi", "upgrade": None}]),
    Case("h2c upgrade with chunks", POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n"
         b"2\r\nhi\r\n0\r\n\r\n", [{"body": "hi", "upgrade": None}]),
    Case("a declined WebSocket: what follows is HTTP", GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + NEXT,
         [{"upgrade": "websocket"}, {"target": "/next"}]),
    Case("WebSocket with a body is no upgrade", POST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
         b"Content-Length: 2\r\n\r\nhi", [{"body": "hi", "upgrade": None}]),
    Case("Upgrade that Connection does not name", GET + b"Upgrade: websocket\r\n\r\n", [{"upgrade": None}]),
    Case("a declined CONNECT: what follows is HTTP", b"CONNECT a.reach:80 HTTP/1.1\r\nHost: a.reach:80\r\n\r\n" + NEXT,
         ["200", {"target": "/next"}]),
    Case("CONNECT in HTTP/1.0 without Host", b"CONNECT a.reach:80 HTTP/1.0\r\n\r\n", ["200"], CLOSED),
]  # fmt: skip

CASES = REQUEST_LINE + FIELDS + FRAMING + CHUNKS + CONNECTIONS


def test_the_table_is_whole() -> None:
    assert len(CASES) >= 150
    assert len({case.name for case in CASES}) == len(CASES)


async def check(case: Case, peer: Peer, door: Door) -> None:
    for number, expected in enumerate(case.answers):
        answer = await peer.answer("GET")
        assert answer is not None, f"{case.name}: ended before answer {number + 1}"
        assert answer.whole
        if isinstance(expected, dict):
            assert answer.status == 200, answer.body
            assert {key: answer.json[key] for key in expected} == expected
        else:
            status, _, code = expected.partition(" ")
            assert (answer.status, answer.code or "") == (int(status), code), answer.body
            if code:
                assert answer.json["executed"] == "no"
                assert door.refusals
                assert door.refusals[-1][:2] == ("127.0.0.1", code)
        last = number == len(case.answers) - 1
        if answer.status >= 200:
            said_close = answer.header("connection") == "close"
            assert said_close is (last and not case.stays_open), "close is announced with the last answer, not before"
    assert not door.crashes


async def run(case: Case, peer: Peer, door: Door, pieces: list[bytes]) -> None:
    sending = asyncio.ensure_future(peer.send(*pieces))
    try:
        await check(case, peer, door)
        if case.stays_open:
            await sending
            if case.answers == ["100"]:
                assert (await (await peer.send(b"ok")).final()).json["body"] == "ok"
            probe = await (await peer.send(b"GET /probe HTTP/1.1\r\nHost: a\r\n\r\n")).final()
            assert probe.json["target"] == "/probe"
        else:
            assert await peer.ended(), "nothing may come behind the last answer"
    finally:
        sending.cancel()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_raw_bytes(door: Any, case: Case) -> None:
    opened = await door()
    await run(case, await opened.connect(), opened, [case.send])
    if len(case.send) < 1500:  # once more, byte by byte
        await run(case, await opened.connect(), opened, [case.send[at:at + 1] for at in range(len(case.send))])
