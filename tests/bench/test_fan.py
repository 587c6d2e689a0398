from collections import Counter
from typing import Any

import pytest

from bench import fan
from bench.daemon import BenchError
from bench.pair import Pair

CALLER = Pair("fleet", "127.0.0.1:1", "/to/spread")


class Sender:
    """Takes a round's time and the share of the fullest agent from a list."""

    rounds = ((1.65, 18), (1.23, 12), (1.25, 11))
    answer = "200"

    def __init__(self, address: str, path: str, connections: int) -> None:
        assert (address, path, connections) == (CALLER.address, "/to/spread/work?ms=400", fan.PIECES)
        self.left = iter(self.rounds)
        self.latencies_s: list[float] = []
        self.answers: Counter[str] = Counter()
        self.agents: Counter[str] = Counter()

    def run(self, times: list[float]) -> None:
        total_s, fullest = next(self.left)
        self.latencies_s += [total_s, 0.4]
        self.answers[self.answer] += len(times)
        self.agents += Counter({"w-1": fullest, "w-2": 3})

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan, "Sender", Sender)
    monkeypatch.setattr(fan, "ROUNDS", len(Sender.rounds))
    monkeypatch.setattr(fan, "REST_S", 0.0)


def test_the_ideal_is_three_waves() -> None:
    assert pytest.approx(1.2) == fan.IDEAL_S


def test_the_median_the_worst_and_the_fullest_of_all_rounds() -> None:
    found = fan._spread(CALLER)
    assert (found["total_s"], found["worst_s"], found["fullest_percent"]) == (1.25, 1.65, 18.0)
    assert found["ideal"] == pytest.approx(1.25 / 1.2)


def test_a_refused_piece_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sender, "answer", "503")
    with pytest.raises(BenchError, match="'503': 100"):
        fan._spread(CALLER)


def test_picking_is_the_difference_within_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine halves its speed after the first turn."""
    booked = iter([0, 100_000, 0, 120_000, 0, 240_000, 0, 200_000])
    asked: list[str] = []

    def run(url: str, *_: object) -> Any:
        asked.append(url)
        return Load()

    monkeypatch.setattr(fan.accounting, "cpu_ns", lambda pid: next(booked))
    monkeypatch.setattr(fan.wrk, "run", run)
    monkeypatch.setattr(fan, "TURNS", 2)
    monkeypatch.setattr(Pair, "pids", [1])
    found = fan._pick(CALLER, "/to/single", fan.Path("call.lua"))
    assert asked == [f"http://127.0.0.1:1/to/{name}/process" for name in ("single", "spread", "spread", "single")]
    assert found == pytest.approx({"one_us": 1.5, "all_us": 1.8, "pick_us": 0.3})


class Load:
    calls = 100

    def require_clean(self, who: str) -> None:
        pass
