"""Local doors: programs of this machine come in, web pages do not."""

import pytest

from reach_core.door import MAX_REMEMBERED, Door, check


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.0.0.1:7070", "127.8.9.10:1", "[::1]", "[::1]:7070", "localhost", "LOCALHOST:7070", "localhost.",
        "agent.localhost:80", "summarize.reach", "summarizer-01.agent.reach:80", "text_long.v2.REACH", "127.0.0.1:",
    ],
)  # fmt: skip
def test_local_hosts(host: str) -> None:
    assert check(host.encode(), None, None) is None


@pytest.mark.parametrize(
    "host",
    [
        None, "", " ", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil-localhost", "reach",
        ".reach", "x.reach.evil.example", "127.0.0.1:80:80", "127.0.0.1@evil.example", "evil.example#.reach", "[::1",
        "[::1]x", "::1", "10.0.0.1", "0.0.0.0", "[::]", "[::2]:7070", "128.0.0.1", "127.0.0.1:123456", "a b.reach",
        "127.0.0.1/", "1270.0.0.1", "host.docker.internal", "evil.example/.reach", "127.0.0.1\n", "x.reach\n",
        "\xe9.reach", "127.1",
    ],
)  # fmt: skip
def test_foreign_hosts(host: str | None) -> None:
    assert check(host.encode("latin-1") if host is not None else None, None, None) == "bad_host"


def test_allowed_hosts_count_with_any_port_and_case() -> None:
    allowed = ["host.docker.internal", "Build-Host"]
    assert check(b"host.docker.internal:7070", None, None, allowed) is None
    assert check(b"build-host", None, None, allowed) is None
    assert check(b"other.docker.internal", None, None, allowed) == "bad_host"


def test_a_door_opened_beyond_loopback_answers_for_addresses_but_not_for_names() -> None:
    assert check(b"10.0.3.7:7072", None, None, any_address=True) is None
    assert check(b"[fd00::1]:7072", None, None, any_address=True) is None
    assert check(b"evil.example", None, None, any_address=True) == "bad_host"


@pytest.mark.parametrize(
    ("origin", "site", "verdict"),
    [
        (b"http://127.0.0.1:7070", b"same-origin", None),
        (b"http://localhost:3000", b"same-site", "not_allowed"),
        (b"http://summarize.reach", None, "not_allowed"),
        (b"https://evil.example", None, "not_allowed"),
        (b"http://127.0.0.1.evil.example", None, "not_allowed"),
        (b"http://evil.example@127.0.0.1", None, "not_allowed"),
        (b"null", None, "not_allowed"),
        (b"", None, "not_allowed"),
        (b"chrome-extension://abcdef", None, "not_allowed"),
        (b"file://", None, "not_allowed"),
        (None, b"cross-site", "not_allowed"),
        (None, b"Cross-Site", "not_allowed"),
        (b"http://localhost:3000", b"cross-site", "not_allowed"),
        (None, b"none", None),
        (b"https://good.example", b"cross-site", None),
        (b"https://GOOD.example", None, None),
        (b"https://good.example:444", None, "not_allowed"),
    ],
)
def test_origins(origin: bytes | None, site: bytes | None, verdict: str | None) -> None:
    assert check(b"127.0.0.1:7070", origin, site, (), ["https://good.example"]) == verdict


def test_a_page_that_came_through_the_proxy_may_call_home() -> None:
    assert check(b"summarize.reach", b"http://summarize.reach", b"same-origin") is None
    assert check(b"other.reach", b"http://summarize.reach", b"same-site") == "not_allowed"


def test_a_foreign_host_stays_foreign_whatever_the_origin() -> None:
    assert check(b"evil.example", b"https://good.example", None, (), ["https://good.example"]) == "bad_host"


def test_verdicts_are_remembered_within_bounds() -> None:
    door = Door(["a.example"], ["https://good.example"])
    for _ in range(2):
        assert door.check(b"a.example", None, None) is None
        assert door.check(b"b.example", None, None) == "bad_host"
        assert door.check(b"127.0.0.1", b"https://bad.example", None) == "not_allowed"
    for number in range(3 * MAX_REMEMBERED):
        assert door.check(b"%d.example" % number, None, None) == "bad_host"
    assert len(door._verdicts) <= MAX_REMEMBERED
