"""Where calls to hosts outside go; where they must not go is shown with real calls in test_egress.py."""

import pytest

from reach_core.problem import Problem
from reach_sidecar.forward.route import Routes, Upstream, split_authority, upstream_of

OWN = 7072


async def test_addresses_as_they_resolve() -> None:
    addresses, proxied = await Routes(lambda: {OWN}, None).find("127.0.0.1", 9001)
    assert (addresses, proxied) == ([("127.0.0.1", 9001)], False)
    assert ("127.0.0.1", 9001) in (await Routes(lambda: {OWN}, None).find("localhost", 9001))[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "2130706433"])
async def test_own_listeners(host: str) -> None:
    with pytest.raises(Problem) as problem:
        await Routes(lambda: {OWN}, None).find(host, OWN)
    assert problem.value.code == "not_allowed"


async def test_the_next_proxy_and_who_goes_past_it() -> None:
    routes = Routes(lambda: {OWN}, Upstream("127.0.0.1", 3128, ("example.org",)))
    assert await routes.find("other.invalid", 80) == ([("127.0.0.1", 3128)], True)
    assert await routes.find("127.0.0.1", 80) == ([("127.0.0.1", 3128)], True)
    for host in ("169.254.169.254", "fe80::1"):
        with pytest.raises(Problem):
            await routes.find(host, 80)
    for host in ("example.org", "a.EXAMPLE.org."):
        try:
            assert not (await routes.find(host, 80))[1]
        except Problem as problem:
            assert problem.code == "bad_gateway", "resolved here, as far as that goes"


@pytest.mark.parametrize(("environment", "expected"), [
    ({}, None), ({"http_proxy": ""}, None), ({"no_proxy": "x"}, None),
    ({"http_proxy": "http://proxy:3128"}, Upstream("proxy", 3128)),
    ({"http_proxy": "proxy:3128/"}, Upstream("proxy", 3128)),
    ({"http_proxy": "HTTP://proxy"}, Upstream("proxy", 80)),
    ({"http_proxy": "http://[::1]:3128/path", "no_proxy": " .a.org, B.org ,,[::1]"},
     Upstream("::1", 3128, (".a.org", "b.org", "::1"))),
    ({"http_proxy": "http://u:p@proxy:1"}, Upstream("proxy", 1, (), b"Basic dTpw")),
])
def test_what_http_proxy_says(environment: dict[str, str], expected: Upstream | None) -> None:
    assert upstream_of(environment) == expected


@pytest.mark.parametrize("text", ["http://", "http://proxy:x", "http://proxy:99999", "socks5://proxy:1080",
                                  "https://proxy", "http://user:s3cret@"])
def test_what_http_proxy_cannot_say(text: str) -> None:
    with pytest.raises(ValueError, match="http_proxy cannot be used: ") as error:
        upstream_of({"http_proxy": text})
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(("authority", "expected"), [
    ("example.org", ("example.org", 80)), ("example.org:81", ("example.org", 81)), ("[::1]", ("::1", 80)),
    ("[::1]:81", ("::1", 81)), ("example.org:", ("example.org", 80)),
])
def test_authorities(authority: str, expected: tuple[str, int]) -> None:
    assert split_authority(authority, 80) == expected


@pytest.mark.parametrize("authority", ["h:x", "h:0", "h:65536", "h:-1", "h:²", "[::1]:x"])
def test_authorities_that_are_none(authority: str) -> None:
    with pytest.raises(Problem):
        split_authority(authority, 80)
