import pytest

from reach_core.door import MAX_REMEMBERED, Door, check, check_token
from reach_core.problem import Problem


@pytest.mark.parametrize(
    "host",
    [
        b"127.0.0.1:7070",
        b"127.1.2.3",
        b"localhost",
        b"LocalHost:80",
        b"[::1]:7070",
        b"summarize.reach",
        b"a.agent.reach:80",
    ],
)
def test_names_that_no_foreign_dns_answers_for(host: bytes) -> None:
    assert check(host, None, None) is None


@pytest.mark.parametrize(
    "host",
    [
        None,
        b"",
        b"evil.example",
        b"127.0.0.1.evil.example",
        b"reach",
        b"10.0.0.1",
        b"a b",
        b"user@localhost",
        b"localhost:x",
    ],
)
def test_other_names(host: bytes | None) -> None:
    assert check(host, None, None) == "bad_host"


def test_allowed_hosts_and_addresses() -> None:
    assert check(b"host.docker.internal:7070", None, None, ["Host.Docker.Internal"]) is None
    assert check(b"10.0.0.1:7080", None, None, any_address=True) is None
    assert check(b"evil.example", None, None, any_address=True) == "bad_host"


@pytest.mark.parametrize(
    ("origin", "site", "verdict"),
    [
        (b"http://127.0.0.1:7070", None, None),
        (b"https://127.0.0.1:7070/", None, None),
        (b"http://127.0.0.1:9", None, "not_allowed"),
        (b"http://127.0.0.1", None, "not_allowed"),
        (b"http://localhost:7070", None, "not_allowed"),
        (b"http://evil.localhost:7070", None, "not_allowed"),
        (b"http://summarize.reach", None, "not_allowed"),
        (b"http://localhost:3000", None, "not_allowed"),
        (b"http://localhost:3000", b"cross-site", "not_allowed"),
        (b"https://evil.example", None, "not_allowed"),
        (b"null", None, "not_allowed"),
        (b"http://127.0.0.1.evil.example", None, "not_allowed"),
        (None, b"cross-site", "not_allowed"),
        (None, b"same-origin", None),
        (b"https://app.example", b"cross-site", None),
    ],
)
def test_pages_of_other_sites(origin: bytes | None, site: bytes | None, verdict: str | None) -> None:
    assert check(b"127.0.0.1:7070", origin, site, (), ["https://app.example/"]) == verdict


def test_a_door_remembers_a_bounded_number_of_verdicts() -> None:
    door = Door(["a.example"])
    for n in range(3 * MAX_REMEMBERED):
        assert door.check(b"host-%d.example" % n, None, None) == "bad_host"
    assert door.check(b"a.example", None, None) is None
    assert door.check(b"a.example", None, None) is None
    assert len(door._verdicts) <= MAX_REMEMBERED


def test_headers_as_text() -> None:
    door = Door()
    assert door.check_headers({"Host": "localhost"}) is None
    assert door.check_headers({}) == "bad_host"
    assert door.check_headers({"Host": "localhost\udcff"}) == "bad_host"
    assert door.check_headers({"Host": "localhost", "Origin": "https://evil.example"}) == "not_allowed"


def test_a_token_in_either_header() -> None:
    check_token({"Reach-Api-Token": "sécret"}, "sécret")
    check_token({"Authorization": "Bearer sécret"}, "sécret")
    for headers in ({}, {"Reach-Api-Token": "secre\udcff"}, {"Authorization": "Basic secret"}):
        with pytest.raises(Problem, match="REACH_API_TOKEN"):
            check_token(headers, "secret")


def test_other_lists_count_at_once() -> None:
    door = Door()
    assert door.check(b"box.example", None, None) == "bad_host"
    door.allow(["box.example"], ["https://page.example"])
    assert door.check(b"box.example", None, None) is None
    assert door.check(b"localhost", b"https://page.example", None) is None
    door.allow([], [])
    assert door.check(b"box.example", None, None) == "bad_host"
