"""Heads as bytes: exactly what is sent, and what is sent is understood again."""

from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.http1.head import parse_request, parse_response
from reach_sidecar.http1.lines import METHODS
from reach_sidecar.http1.message import REASONS, Field, field
from reach_sidecar.http1.wire import CONTINUE, request_head, response_head

TOKEN = st.text("abcXYZ019!#$%&'*+-.^_`|~", min_size=1, max_size=12).map(str.encode)
OWN = {b"content-length", b"transfer-encoding", b"host", b"connection", b"upgrade", b"expect"}
NAME = TOKEN.filter(lambda name: name.lower() not in OWN)
VALUE = st.binary(max_size=30).map(
    lambda raw: bytes(byte for byte in raw if byte == 9 or (byte >= 0x20 and byte != 0x7F)).strip(b" \t")
)
HEADERS = st.lists(st.tuples(NAME, VALUE).map(lambda pair: (pair[0].lower(), *pair)), max_size=12)
TARGET = st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="#"), max_size=40)


def test_a_request_head() -> None:
    head = request_head(b"POST", b"/process?x=1", [field("Host", "a.reach"), field("X-Case", "Kept"), field("x-e", "")])
    assert head == b"POST /process?x=1 HTTP/1.1\r\nHost: a.reach\r\nX-Case: Kept\r\nx-e: \r\n\r\n"


def test_a_response_head() -> None:
    headers = [field("A", "1"), field("a", "2")]
    assert response_head(200, b"OK", headers) == b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\n\r\n"


def test_an_unusual_reason_and_an_unknown_status_pass_through() -> None:
    assert response_head(200, b"Fine", []) == b"HTTP/1.1 200 Fine\r\n\r\n"
    assert response_head(599, b"", []) == b"HTTP/1.1 599 \r\n\r\n"
    assert response_head(204, b"", []) == b"HTTP/1.1 204 \r\n\r\n"


def test_continue_is_an_answer() -> None:
    assert parse_response(CONTINUE).status == 100


@given(
    method=st.sampled_from(sorted(METHODS - {b"CONNECT"})),
    path=TARGET,
    host=st.sampled_from([b"a.reach", b"localhost:7070", b"[::1]:80", b""]),
    headers=HEADERS,
)
def test_a_request_parses_to_what_was_written(method: bytes, path: str, host: bytes, headers: list[Field]) -> None:
    fields = [*headers, (b"host", b"Host", host)]
    head = parse_request(request_head(method, b"/" + path.encode(), fields))
    assert (head.method, head.target, head.headers) == (method, b"/" + path.encode(), fields)
    again = parse_request(request_head(head.method, head.target, head.headers))
    assert (again.method, again.target, again.headers) == (head.method, head.target, head.headers)


@given(status=st.sampled_from(sorted(REASONS.keys() - {101})), reason=VALUE, headers=HEADERS)
def test_an_answer_parses_to_what_was_written(status: int, reason: bytes, headers: list[Field]) -> None:
    head = parse_response(response_head(status, reason, headers))
    assert (head.status, head.reason, head.headers) == (status, reason, headers)
