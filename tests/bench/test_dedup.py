from pathlib import Path
from typing import Any

import pytest

from bench import dedup, wrk
from bench.pair import Pair

PAIRS = {name: Pair("pure", "127.0.0.1:1", f"/to/{name}") for name in ("off", "memory", "durable")}


def load(p50_ms: float = 0.0, p99_ms: float = 0.0) -> wrk.Load:
    return wrk.Load(calls=100, seconds=1.0, failed=0, broken=0, p50_ms=p50_ms, p99_ms=p99_ms, max_ms=9.0)


def test_what_is_added_is_looked_for_where_it_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The called side's hop for keys, both hops for a deadline."""
    costs = {"off": [50.0, 60.0], "made": [51.0, 70.0], "own": [53.0, 74.0], "deadline": [53.0, 71.0]}
    monkeypatch.setattr(dedup, "_cpu_us", lambda pair, script: costs[script.stem.removeprefix("call-")])
    found = dedup.cpu(PAIRS, tmp_path)
    assert (found["made_adds_us"], found["own_adds_us"], found["deadline_adds_us"]) == (10.0, 14.0, 3.0)
    assert (found["off_us"], found["made_us"]) == (55.0, 60.5)


def test_envoys_cost_stands_beside_each_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "_cpu_us", lambda pair, script: [60.0, 80.0])
    found = dedup.of_envoy(Pair("envoy", "127.0.0.1:1", ""), Path("call.lua"))
    assert found == {"off_us": 70.0, "made_us": 70.0, "own_us": 70.0, "deadline_us": 70.0}


def test_durable_is_compared_with_memory_at_the_same_concurrency(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commits = 0

    def run(url: str, connections: int, seconds: float, script: Path) -> wrk.Load:
        nonlocal commits
        durable = "/to/durable/" in url
        commits += durable * (300 if connections == 1 else 10)
        return load(p50_ms=connections * (3.0 if durable else 1.0), p99_ms=connections * (5.0 if durable else 2.0))

    monkeypatch.setattr(wrk, "run", run)
    monkeypatch.setattr(dedup, "_commits", lambda pair, directory: commits)
    found = dedup.latency(PAIRS, tmp_path)
    for keys in ("made", "own"):
        assert (found[f"{keys}1_adds_p50_ms"], found[f"{keys}100_adds_p99_ms"]) == (2.0, 300.0)
        assert (found[f"{keys}1_commits"], found[f"{keys}100_commits"]) == (3.0, 0.1)
    assert found["memory1_commits"] == 0.0


def test_variants_take_turns_forwards_and_backwards() -> None:
    first, second = ([one.name for one in dedup._in_turn(dedup.CPU)] for _ in range(2))
    assert first == second[::-1]


def test_only_the_callers_own_keys_are_sent(tmp_path: Path) -> None:
    sent: dict[str, Any] = {one.name: dedup._script(one, tmp_path).read_text() for one in dedup.CPU}
    assert [name for name, text in sent.items() if "Idempotency-Key" in text] == ["own"]
    assert [name for name, text in sent.items() if "Reach-Timeout" in text] == ["deadline"]
