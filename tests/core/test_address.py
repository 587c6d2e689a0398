"""Addresses as text."""

import pytest

from reach_core.address import (
    check_host,
    is_loopback,
    is_wildcard,
    join_address,
    split_address,
    split_base_url,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7070", ("127.0.0.1", 7070)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:65535", ("localhost", 65535)),
        ("a-b.example_c.org:1", ("a-b.example_c.org", 1)),
    ],
)
def test_split_and_join(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address
    assert join_address(*address) == text


@pytest.mark.parametrize(
    "text",
    ["", "7070", "a", ":1", "*:1", "a:", "a:b", "a:-1", "a:65536", "a:1.0", "::1", "[::1]", "[a]:1", "[::g]:1"]
    + ["1.2.3:1", "256.0.0.1:1", "a b:1", "-a:1", "a..b:1", "a/b:1", f"{'a' * 64}:1", f"{'a.' * 130}a:1", "a:١"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        split_address(text)


def test_loopback_and_wildcard() -> None:
    assert [is_loopback(h) for h in ("localhost", "LocalHost.", "127.9.9.9", "::1", "0.0.0.0", "10.0.0.1", "x")] == [
        True, True, True, True, False, False, False,
    ]  # fmt: skip
    assert [is_wildcard(h) for h in ("0.0.0.0", "::", "127.0.0.1", "x")] == [True, True, False, False]


@pytest.mark.parametrize("text", ["http://a", "http://a:1/", "http://[::1]:80", "http://u:p@a:1"])
def test_base_urls(text: str) -> None:
    assert split_base_url(text, ("http",)).geturl() == text


@pytest.mark.parametrize(
    "text",
    ["", "a", "a:1", "//a", "https://a", "http://", "http://:1", "http://a:0", "http://a:x", "http://a/b", "http://a?b"]
    + ["http://a#", "http://a b", "http://[::1", "http://a:99999", "http://a\n"],
)  # fmt: skip
def test_what_is_no_base_url(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        split_base_url(text, ("http",))


def test_hosts() -> None:
    assert check_host("::1") == "::1"
    with pytest.raises(ValueError, match="not a host name"):
        check_host("a_b!")
