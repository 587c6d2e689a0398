"""Counters of the hot path: exact, bounded, cheap."""

import timeit

from reach_sidecar.telemetry.metrics import MAX_CAPABILITIES, MAX_OUTCOMES, MAX_PEERS, OTHER, Metrics


def test_calls_are_counted_by_what_they_were() -> None:
    metrics = Metrics()
    for seconds in (0.001, 0.005, 0.006, 700.0):
        metrics.observe_call("out", "summarize", 200, "success", seconds)
    metrics.observe_call("out", "summarize", 503, "busy", 0.3)
    metrics.observe_call("in", "summarize", 201, "success", 0.3)
    series = metrics.calls["out", "summarize"]
    assert series.results == {(2, "success"): 4, (5, "busy"): 1}
    assert (series.buckets[0], series.buckets[1], series.buckets[-1]) == (2, 1, 1)
    assert sum(series.buckets) == 5
    assert round(series.seconds, 3) == 700.312
    assert metrics.calls["in", "summarize"].results == {(2, "success"): 1}


def test_labels_are_bounded_and_nothing_is_lost() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics.observe_call("out", f"capability-{number}", 200, "success", 0.1)
        metrics.observe_call("out", "one", 200, f"outcome-{number}", 0.1)
        metrics.observe_attempt(f"peer-{number}", "ok")
        metrics.observe_retry(f"capability-{number}", "busy")
        metrics.observe_breaker(f"peer-{number}", "open")
    assert len(metrics.calls) <= MAX_CAPABILITIES + 1
    assert len(metrics.retries) <= MAX_CAPABILITIES + 1
    assert len(metrics.attempts) <= MAX_PEERS + 1
    assert all(len(series.results) <= MAX_OUTCOMES + 1 for series in metrics.calls.values())
    assert sum(sum(series.buckets) for series in metrics.calls.values()) == 2000
    assert sum(metrics.retries.values()) == sum(metrics.attempts.values()) == 1000
    assert metrics.attempts[OTHER, "ok"] == 1000 - MAX_PEERS
    assert len(metrics.breakers) == MAX_PEERS + 1
    assert metrics.breakers[OTHER, "open"] == 1000 - MAX_PEERS
    metrics.observe_call("out", "one", 200, "success", 0.1)
    assert metrics.calls["out", "one"].results[2, "success"] == 1, "what was known before keeps its own count"


def test_retries_breakers_and_repeated_keys_by_their_reason() -> None:
    metrics = Metrics()
    for why in ("busy", "broken", "busy"):
        metrics.observe_retry("summarize", why)
    for state in ("open", "closed", "open"):
        metrics.observe_breaker("b", state)
    for result in ("join", "replay", "join"):
        metrics.observe_dedup(result)
    assert metrics.retries == {("summarize", "busy"): 2, ("summarize", "broken"): 1}
    assert metrics.breakers == {("b", "open"): 2, ("b", "closed"): 1}
    assert metrics.dedup == {"join": 2, "replay": 1}


def test_counting_is_cheap() -> None:
    metrics = Metrics()
    best = min(timeit.repeat(lambda: metrics.observe_call("out", "a", 200, "success", 0.2), number=1000, repeat=20))
    assert best / 1000 < 10e-6  # 0.35 µs measured; the bound only catches a change of kind
