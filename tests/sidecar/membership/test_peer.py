"""What a sidecar knows of another agent by itself: load, trouble, distance, breakers, calls under way."""

from random import Random

import msgspec
import pytest

from reach_core.peer import Capability, Entry, Limits, Rank
from reach_sidecar.http1.limits import Limits as Bounds
from reach_sidecar.membership.peer import LOAD_HALF_LIFE_S, RTT_SPAN_S, Peer
from reach_sidecar.policy.breaker import OPENS_AT
from reach_sidecar.policy.limit import BELIEVED_S
from reach_sidecar.policy.pick import rtt_factor
from reach_sidecar.policy.repeat import ADDRESS_OUT_S

ENTRY = Entry(agent_id="b", gen=5, ver=1, rank=Rank.UP, address="10.0.0.7:7071", version="1.2",
              capabilities=(Capability(name="summarize", aliases=("shorten",), attributes={"cost": ["low"]}),),
              limits=Limits(max_concurrency=10, weight=2.0))


def newer(**changes: object) -> Entry:
    return msgspec.structs.replace(ENTRY, **{"ver": 2, **changes})


@pytest.fixture
def peer() -> Peer:
    return Peer(ENTRY, Bounds())


def test_load_that_was_said_fades(peer: Peer) -> None:
    assert peer.load(0.0) == 0.0
    peer.hear_load(4, 2, 100.0)
    assert peer.load(100.0) == 0.6
    assert peer.load(100.0 + LOAD_HALF_LIFE_S) == 0.6
    assert peer.load(100.1 + LOAD_HALF_LIFE_S) == 0.3
    assert peer.load(100.1 + 4 * LOAD_HALF_LIFE_S) == 0.0


def test_own_calls_count_whatever_was_said(peer: Peer) -> None:
    peer.in_flight = 5
    assert peer.load(0.0) == 0.5
    peer.hear_load(9, 0, 0.0)
    assert peer.load(0.0) == 0.9
    peer.hear_load(1, 0, 0.0)
    assert peer.load(0.0) == 0.5


def break_it(peer: Peer, capability: str, now: float) -> None:
    """Fail often enough for its breaker to open."""
    breaker = peer.track(capability).breaker
    assert [breaker.failed(now, Random(1)) for _ in range(OPENS_AT)][-1]


def test_full_is_what_it_said_a_moment_ago(peer: Peer) -> None:
    limits = ENTRY.limits
    peer.hear_load(limits.max_concurrency, limits.queue, 100.0)
    assert peer.is_full(100.0 + BELIEVED_S)
    assert peer.excluded(100.0) == (
        "full", f"all of its {limits.max_concurrency} places are taken and {limits.queue} calls wait")
    assert not peer.is_full(100.01 + BELIEVED_S)
    assert peer.excluded(100.01 + BELIEVED_S) is None
    peer.hear_load(limits.max_concurrency, limits.queue - 1, 100.0)
    assert not peer.is_full(100.0), "there is room in the queue"


def test_full_is_what_this_sidecar_has_there_itself_at_any_time(peer: Peer) -> None:
    peer.in_flight = ENTRY.limits.max_concurrency + ENTRY.limits.queue
    assert peer.is_full(1e6)
    peer.in_flight -= 1
    assert not peer.is_full(1e6)


def test_a_breaker_belongs_to_one_capability(peer: Peer) -> None:
    break_it(peer, "summarize", 100.0)
    assert peer.track("summarize") is peer.track("summarize")
    excluded = peer.excluded(100.0, "summarize")
    assert excluded is not None
    assert excluded.reason == "breaker"
    assert excluded.detail.startswith(f"{OPENS_AT} calls in a row failed; ")
    assert peer.excluded(100.0, "translate") is None
    assert peer.excluded(100.0) == excluded, "of whichever capability, where none is asked for"
    assert peer.is_open(100.0), "the breaker is asked for by itself"
    assert peer.describe(100.0, "summarize")["excluded"] == excluded._asdict()
    assert peer.describe(100.0, "translate")["excluded"] is None


@pytest.mark.parametrize(("entry", "state"), [(newer(), "open"), (newer(gen=6), "closed"),
                                              (newer(address="10.0.0.8:7071"), "closed")])
def test_another_process_or_place_has_not_failed_yet(peer: Peer, entry: Entry, state: str) -> None:
    break_it(peer, "summarize", 100.0)
    peer.update(entry)
    assert peer.track("summarize").breaker.state(100.0) == state


def test_the_shortest_way_lately_is_the_distance(peer: Peer) -> None:
    assert peer.rtt == 1.0, "nobody is thought to be far before the first answer"
    peer.hear_rtt(0.050, 0.0)
    assert peer.rtt == rtt_factor(0.050)
    peer.hear_rtt(0.010, 1.0)
    assert peer.rtt == rtt_factor(0.010)
    peer.hear_rtt(0.900, 2.0)
    assert peer.rtt == rtt_factor(0.010), "queueing somewhere is no distance"
    peer.hear_rtt(0.080, 1.0 + RTT_SPAN_S)
    assert peer.rtt == rtt_factor(0.080), "it may have moved"


def test_is_open_is_the_short_form_of_excluded(peer: Peer) -> None:
    for entry in (newer(), newer(rank=Rank.SUSPECT), newer(flags=("unfit",)), newer(flags=("draining",))):
        peer.update(entry)
        assert peer.is_open(100.0) is (peer.excluded(100.0) is None)
    peer.update(newer(ver=3))
    peer.put_out("refused", 100.0)
    assert (peer.is_open(100.0), peer.is_open(100.0 + ADDRESS_OUT_S)) == (False, True)


def test_put_out_for_a_while(peer: Peer) -> None:
    peer.put_out("connection refused", 100.0)
    excluded = peer.excluded(102.0)
    assert excluded is not None
    assert excluded == ("unreachable", "connection refused; tried again in 3.0 s")
    assert peer.excluded(100.0 + ADDRESS_OUT_S) is None


@pytest.mark.parametrize("entry", [newer(), newer(ver=1, gen=6), newer(address="10.0.0.8:7071"),
                                   newer(flags=("something",))])
def test_until_a_newer_entry(peer: Peer, entry: Entry) -> None:
    peer.put_out("connection refused", 100.0)
    peer.update(entry)
    assert peer.excluded(100.0) is None


def test_suspicion_is_no_news_from_its_owner(peer: Peer) -> None:
    peer.put_out("connection refused", 100.0)
    peer.update(newer(ver=1, rank=Rank.SUSPECT))
    assert peer.out_until > 100.0


def test_load_is_forgotten_with_the_process_it_was_of(peer: Peer) -> None:
    peer.hear_load(4, 0, 1.0)
    peer.update(newer())
    assert peer.heard_at == 1.0, "the same process still"
    peer.update(newer(gen=6))
    assert peer.heard_at is None
    peer.hear_load(4, 0, 1.0)
    peer.update(newer(gen=6, ver=3, address="10.0.0.8:7071"))
    assert peer.heard_at is None
    assert (peer.host, peer.port, peer.pool.host) == ("10.0.0.8", 7071, "10.0.0.8")


def test_the_pool_stays_while_the_address_does(peer: Peer) -> None:
    pool = peer.pool
    peer.update(newer(gen=9))
    assert peer.pool is pool
    peer.update(newer(gen=10, address="10.0.0.7:7072"))
    assert peer.pool is not pool


def test_described_as_the_api_says(peer: Peer) -> None:
    peer.hear_load(3, 1, 10.0)
    peer.in_flight = 5
    peer.put_out("refused", 10.0)
    assert peer.describe(12.0) == {
        "agent_id": "b", "status": "up", "version": "1.2", "address": "10.0.0.7:7071",
        "capabilities": [{"name": "summarize", "aliases": ["shorten"], "attributes": {"cost": ["low"]}}],
        "load": {"running": 5, "queued": 1, "limit": 10, "age_s": 2.0}, "gen": 5, "ver": 1, "flags": [],
        "excluded": {"reason": "unreachable", "detail": "refused; tried again in 3.0 s"},
    }
    peer.update(newer())
    assert peer.describe(12.0)["excluded"] is None


@pytest.mark.parametrize(("address", "expected"), [
    ("10.0.0.7:7071", ("10.0.0.7", 7071)), ("[::1]:7071", ("::1", 7071)), ("b.example:80", ("b.example", 80)),
    *((text, ("", 0)) for text in ("", "b", "b:", "b:x", "b:-1", "b:65536", "b:99999", "b:²", "b:٣")),
])
def test_addresses(peer: Peer, address: str, expected: tuple[str, int]) -> None:
    """A port that is none must not become another one by wrapping around."""
    peer.update(newer(address=address))
    assert (peer.host, peer.port) == expected
