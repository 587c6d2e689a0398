import os
from urllib.request import proxy_bypass_environment

import httpx
import pytest

from reach_cli.run_environment import agent_environment, no_proxy

NAMES = {"outbound": "127.0.0.1:7070", "admin": "127.0.0.1:7072"}


def test_what_the_agent_finds() -> None:
    env = agent_environment({"HOME": "/h", "http_proxy": "http://corporate:3128"}, port=9001, **NAMES)
    assert env["REACH_URL"] == env["http_proxy"] == env["HTTP_PROXY"] == "http://127.0.0.1:7070"
    assert env["REACH_ADMIN"] == "http://127.0.0.1:7072"
    assert env["PORT"] == "9001"
    assert env["HOME"] == "/h"
    assert env["no_proxy"] == env["NO_PROXY"]
    assert "PORT" not in agent_environment({}, port=None, **NAMES)


def test_what_was_excluded_before_still_is() -> None:
    assert no_proxy("intern.example, 127.0.0.1", "other.example,") == (
        "intern.example,127.0.0.1,other.example,localhost,::1,127.0.0.0/8,.localhost"
    )
    assert no_proxy("*", "").startswith("*,")


@pytest.mark.parametrize("host", ["localhost:9001", "127.0.0.1:9001", "agent.localhost:9001"])
def test_urllib_keeps_loopback_to_itself(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", agent_environment({}, port=None, **NAMES))
    assert proxy_bypass_environment(host)
    assert not proxy_bypass_environment("summarize.reach")


def test_httpx_takes_every_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """httpx refuses the whole list if one entry cannot be part of a URL, as `[::1]` cannot."""
    for name, value in agent_environment({}, port=None, **NAMES).items():
        monkeypatch.setenv(name, value)
    with httpx.Client() as client:
        for url in ("http://localhost:1/", "http://127.0.0.1:1/", "http://[::1]:1/"):
            assert client._transport_for_url(httpx.URL(url)) is client._transport, url
        assert client._transport_for_url(httpx.URL("http://summarize.reach/")) is not client._transport
