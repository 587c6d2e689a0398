"""Four ways to name a target, and what is left of the path for the agent."""

import pytest

from reach_sidecar.policy import naming
from reach_sidecar.policy.naming import Destination, NamingError, destination, own_path, split_absolute

LOCAL = b"127.0.0.1:7070"


def cap(name: str, path: bytes | None, query: bytes = b"") -> Destination:
    return Destination("capability", name, path, query)


def agent(name: str, path: bytes | None, query: bytes = b"") -> Destination:
    return Destination("agent", name, path, query)


def test_header_path_is_kept_whole() -> None:
    for target in (b"/", b"/process?x=1", b"/to/other/x", b"/a//b/../c;p=1?q=%2F&&=", b"/v1/agents", b"*"):
        assert destination(target, LOCAL, b"summarize") == cap("summarize", target)


@pytest.mark.parametrize(("value", "expected"), [
    (b"summarize", cap("summarize", b"/")),
    (b"  Text Summarize\t", cap("Text Summarize", b"/")),
    (b"@summarizer-01", agent("summarizer-01", b"/")),
    (b" @summarizer-01 ", agent("summarizer-01", b"/")),
    ("zusammenfassen-für".encode(), cap("zusammenfassen-für", b"/")),
    (b"broken-\xff", cap("broken-�", b"/")),
])
def test_header(value: bytes, expected: Destination) -> None:
    assert destination(b"/", LOCAL, value) == expected


@pytest.mark.parametrize(("target", "expected"), [
    (b"http://summarize.reach/process", cap("summarize", b"/process")),
    (b"HTTP://Summarize.REACH/Process", cap("summarize", b"/Process")),
    (b"http://summarize.reach:80/x?y=/z", cap("summarize", b"/x?y=/z")),
    (b"http://summarize.reach:7070", cap("summarize", b"/")),
    (b"http://summarize.reach?x=http://y/z", cap("summarize", b"/?x=http://y/z")),
    (b"http://text.summarize.reach./x", cap("text.summarize", b"/x")),
    (b"http://summarizer-01.agent.reach/x", agent("summarizer-01", b"/x")),
    (b"http://SUMMARIZER-01.AGENT.REACH:81/x", agent("summarizer-01", b"/x")),
    (b"http://agent.reach/x", cap("agent", b"/x")),
    (b"http://summarize.reach/to/other/x", cap("summarize", b"/to/other/x")),
    (b"http://example.org/x?y", Destination("outside", "example.org", b"/x?y")),
    (b"http://example.org:8080", Destination("outside", "example.org:8080", b"/")),
    (b"http://[::1]:9001/x", Destination("outside", "[::1]:9001", b"/x")),
    (b"http://reach/x", Destination("outside", "reach", b"/x")),
    (b"http://summarize.reach.evil.org/", Destination("outside", "summarize.reach.evil.org", b"/")),
    (b"http://notreach/", Destination("outside", "notreach", b"/")),
])
def test_absolute_form(target: bytes, expected: Destination) -> None:
    assert destination(target, b"ignored.reach", None) == expected


@pytest.mark.parametrize(("host", "expected"), [
    (b"summarize.reach", cap("summarize", b"/x?y")),
    (b"Summarize.Reach.:7070", cap("summarize", b"/x?y")),
    (b"summarizer-01.agent.reach:80", agent("summarizer-01", b"/x?y")),
    (b"a.b.agent.reach", agent("a.b", b"/x?y")),
    (b"127.0.0.1:7070", Destination("here", "", b"/x?y")),
    (b"[::1]:7070", Destination("here", "", b"/x?y")),
    (b"[::1]", Destination("here", "", b"/x?y")),
    (b"localhost", Destination("here", "", b"/x?y")),
    (None, Destination("here", "", b"/x?y")),
])
def test_host(host: bytes | None, expected: Destination) -> None:
    assert destination(b"/x?y", host, None) == expected


@pytest.mark.parametrize(("target", "expected"), [
    (b"/to/summarize/process", cap("summarize", b"/process")),
    (b"/to/summarize/", cap("summarize", b"/")),
    (b"/to/summarize/?q", cap("summarize", b"/?q")),
    (b"/to/summarize", cap("summarize", None)),
    (b"/to/summarize?a=1&b=/to/x", cap("summarize", None, b"?a=1&b=/to/x")),
    (b"/to/summarize?", cap("summarize", None, b"?")),
    (b"/to/summarize//x/../y?z", cap("summarize", b"//x/../y?z")),
    (b"/to/summarize/x%2Fy%20%zz", cap("summarize", b"/x%2Fy%20%zz")),
    (b"/to/text%20summarize/x", cap("text summarize", b"/x")),
    (b"/to/text%2Fsummarize/x", cap("text/summarize", b"/x")),
    (b"/to/f%C3%BCr/x", cap("für", b"/x")),
    (b"/to/%ff/x", cap("�", b"/x")),
    (b"/to/@summarizer-01/x?y", agent("summarizer-01", b"/x?y")),
    (b"/to/%40summarizer-01/x", agent("summarizer-01", b"/x")),
    (b"/to/@summarizer-01", agent("summarizer-01", None)),
    (b"/to", Destination("here", "", b"/to")),
    (b"//to/summarize/x", Destination("here", "", b"//to/summarize/x")),
    (b"/TO/summarize/x", Destination("here", "", b"/TO/summarize/x")),
    (b"/v1/agents?capability=x", Destination("here", "", b"/v1/agents?capability=x")),
    (b"*", Destination("here", "", b"*")),
])
def test_path(target: bytes, expected: Destination) -> None:
    assert destination(target, LOCAL, None) == expected


def test_precedence() -> None:
    absolute, path, host = b"http://b.reach/to/d/x", b"/to/d/x", b"c.reach"
    assert destination(absolute, host, b"a") == cap("a", b"/to/d/x")
    assert destination(absolute, host, None) == cap("b", b"/to/d/x")
    assert destination(path, host, None, b"e.reach:80") == cap("e", path)
    assert destination(path, host, None) == cap("c", path)
    assert destination(path, LOCAL, None) == cap("d", b"/x")
    assert destination(b"http://example.org/x", LOCAL, b"a") == cap("a", b"/x")


def test_inside_connect() -> None:
    assert destination(b"/x?y", LOCAL, None, b"Summarize.reach:80") == cap("summarize", b"/x?y")
    assert destination(b"*", LOCAL, None, b"b-1.agent.reach:80") == agent("b-1", b"*")
    assert destination(b"/x", LOCAL, None, b"example.org:80") == Destination("outside", "example.org:80", b"/x")


@pytest.mark.parametrize(("target", "host", "header"), [
    (b"/", LOCAL, b""), (b"/", LOCAL, b"  "), (b"/", LOCAL, b"@"), (b"/", LOCAL, b" @ "),
    (b"/to/", LOCAL, None), (b"/to//x", LOCAL, None), (b"/to/@", LOCAL, None), (b"/to/@/x", LOCAL, None),
    (b"/to/%20/x", LOCAL, None), (b"/to/?x", LOCAL, None),
    (b"/", b".reach", None), (b"/", b".reach:80", None), (b"/", b".agent.reach", None), (b"/", b"..reach", None),
    (b"http:///x", LOCAL, None), (b"http://?x", LOCAL, None), (b"http://.reach/", LOCAL, None),
    (b"http://.agent.reach/", LOCAL, None),
    (b"http://user@summarize.reach/x", LOCAL, None), (b"http://user:secret@example.org/x", LOCAL, None),
])
def test_nobody_named(target: bytes, host: bytes, header: bytes | None) -> None:
    with pytest.raises(NamingError) as error:
        destination(target, host, header)
    assert str(error.value).endswith(".")
    assert "secret" not in str(error.value)


def test_split_absolute() -> None:
    assert split_absolute(b"http://h:1/p?q#") == (b"h:1", b"/p?q#")
    assert split_absolute(b"http://h/?http://@/") == (b"h", b"/?http://@/")


@pytest.mark.parametrize(("path", "query", "expected"), [
    ("/process", b"", b"/process"),
    ("/process", b"?a=1", b"/process?a=1"),
    ("/run?mode=fast", b"", b"/run?mode=fast"),
    ("/run?mode=fast", b"?a=1", b"/run?mode=fast&a=1"),
    ("/a%20b/(c);d=1,2/é", b"", b"/a%20b/(c);d=1,2/%C3%A9"),
    ("/x HTTP/1.1\r\nEvil: 1", b"", b"/x%20HTTP/1.1%0D%0AEvil:%201"),
    ("/x#y", b"?z", b"/x%23y?z"),
])
def test_a_capabilitys_own_path(path: str, query: bytes, expected: bytes) -> None:
    """Whatever another agent's entry says, it is one request-target."""
    assert own_path(path, query) == expected


def test_only_the_usual_few_are_remembered() -> None:
    """Long targets would fill memory, and a query may hold a secret."""
    naming._remembered.cache_clear()
    for target in (b"/to/a/" + b"x" * 300, b"/to/a/x?token=s3cret", b"/to/a/x", b"/to/a/x"):
        assert destination(target, LOCAL, None).name == "a"
    assert naming._remembered.cache_info().currsize == 1
    assert naming._remembered.cache_info().hits == 1
