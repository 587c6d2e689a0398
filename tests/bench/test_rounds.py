from typing import Any

from bench import rounds
from bench.measures import Measure


class Rig:
    def __init__(self, *systems: str) -> None:
        self.pairs = dict.fromkeys(systems)


def test_systems_alternate_and_the_order_turns_round() -> None:
    turns: list[str] = []

    def take(rig: Any, system: str) -> dict[str, float]:
        turns.append(system)
        return {"x": float(len(turns))}

    rig: Any = Rig("direct", "envoy", "compiled", "pure")
    said: list[str] = []
    taken = rounds.interleave(rig, [Measure("m", take, systems=("envoy", "compiled"))], 3, said.append)
    assert turns == ["envoy", "compiled", "compiled", "envoy", "envoy", "compiled"]
    assert taken["m"]["compiled"] == [{"x": 2.0}, {"x": 3.0}, {"x": 6.0}]
    assert said[0] == "m: round 1 of 3, envoy"


def test_systems_that_do_not_run_are_left_out_and_a_share_is_rounded_up() -> None:
    rig: Any = Rig("direct", "envoy")
    measure = Measure("m", lambda rig, system: {"x": 1.0}, share=0.4)
    taken = rounds.interleave(rig, [measure], 2, lambda text: None)
    assert taken == {"m": {"direct": [{"x": 1.0}], "envoy": [{"x": 1.0}]}}


def test_pure_python_takes_the_place_of_a_compiled_build_that_is_not_there() -> None:
    def take(rig: Any, system: str) -> dict[str, float]:
        return {"x": 1.0}

    rig: Any = Rig("direct", "envoy", "pure")
    only_compiled = Measure("m", take, systems=("envoy", "compiled"))
    assert list(rounds.interleave(rig, [only_compiled], 1, lambda text: None)["m"]) == ["envoy", "pure"]
    assert list(rounds.interleave(rig, [Measure("m", take)], 1, lambda text: None)["m"]) == ["direct", "envoy", "pure"]
