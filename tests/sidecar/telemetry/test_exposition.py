"""What Prometheus reads, checked with its own parser."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from reach_sidecar.telemetry.exposition import Exposition
from reach_sidecar.telemetry.metrics import Gauge, Metrics


def broken() -> float:
    raise RuntimeError("not now")


def exposition() -> Exposition:
    metrics = Metrics(
        [
            Gauge("reach_table_entries", "Agents in the table.", lambda: 7),
            Gauge("reach_peers", "Agents by status.", lambda: {"up": 5, "down": 2}, label="status"),
            Gauge("reach_broken", "Cannot be read.", broken),
        ]
    )
    metrics.in_flight["out"] = 3
    metrics.observe_call("out", "summarize", 200, "success", 0.02)
    metrics.observe_call("out", "summarize", 0, "cancelled", 20.0)
    metrics.observe_attempt('odd"name\n', "refused")
    metrics.observe_retry("summarize", "broken")
    metrics.observe_breaker("b", "open")
    metrics.observe_dedup("join")
    lost = Gauge("reach_log_lines_lost", "Lines lost.", lambda: {"store": 4}, label="sink", counter=True)
    return Exposition(metrics, "0.1.0", extra=[lost])


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def test_every_figure_is_there() -> None:
    body, content_type = exposition().render("")
    assert content_type.startswith("text/plain")
    found = samples(body.decode())
    call = (("capability", "summarize"), ("outcome", "success"), ("side", "out"), ("status", "2xx"))
    assert found["reach_calls_total", call] == 1
    cancelled = (("capability", "summarize"), ("outcome", "cancelled"), ("side", "out"), ("status", "none"))
    assert found["reach_calls_total", cancelled] == 1
    series = (("capability", "summarize"), ("side", "out"))
    assert found["reach_call_duration_seconds_count", series] == 2
    assert found["reach_call_duration_seconds_sum", series] == 20.02
    assert found["reach_call_duration_seconds_bucket", (series[0], ("le", "0.025"), series[1])] == 1
    assert found["reach_call_duration_seconds_bucket", (series[0], ("le", "+Inf"), series[1])] == 2
    assert found["reach_attempts_total", (("peer", 'odd"name\n'), ("result", "refused"))] == 1
    assert found["reach_retries_total", (("capability", "summarize"), ("why", "broken"))] == 1
    assert found["reach_breaker_changes_total", (("peer", "b"), ("state", "open"))] == 1
    assert found["reach_dedup_total", (("result", "join"),)] == 1
    assert found["reach_calls_in_flight", (("side", "out"),)] == 3
    assert found["reach_table_entries", ()] == 7
    assert found["reach_peers", (("status", "down"),)] == 2
    assert found["reach_log_lines_lost_total", (("sink", "store"),)] == 4
    assert found["reach_build_info", (("version", "0.1.0"),)] == 1
    assert ("process_resident_memory_bytes", ()) in found
    assert "reach_broken" not in body.decode()


def test_openmetrics_when_asked_for() -> None:
    body, content_type = exposition().render("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text")
    assert {family.name for family in parse_openmetrics(body.decode())} >= {"reach_calls", "reach_retries"}
