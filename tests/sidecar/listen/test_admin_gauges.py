"""What /metrics reads from the parts: the breakers; the rest is asked for in test_app.py."""

from random import Random

from harness.sidecars import Mesh

from reach_core.peer import Rank


async def test_breakers_that_are_not_closed(inner: Mesh) -> None:
    a, _ = await inner.pair(b"")
    gauge = {one.name: one for one in a.sidecar.metrics.gauges}["reach_breakers_open"]
    assert gauge.read() == {}
    track = a.peer("b").track("summarize")
    for _ in range(10):
        track.judge("broken", 0, False, 1.0, Random(1))
    assert gauge.read() == {"b": 1.0}
    track.answered(2.0)
    assert gauge.read() == {}


async def test_peers_by_their_status(inner: Mesh) -> None:
    a, b = await inner.pair(b"")
    a.learn(b.entry(rank=Rank.SUSPECT))
    gauge = {one.name: one for one in a.sidecar.metrics.gauges}["reach_peers"]
    found = gauge.read()
    assert isinstance(found, dict)
    assert found["suspect"] == 1.0
