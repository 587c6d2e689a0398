import dataclasses

import pytest

from bench import figures
from bench.figures import Ratio
from bench.measures import MEASURES


def samples(metric: str, **systems: list[float]) -> dict[str, dict[str, list[dict[str, float]]]]:
    return {"m": {name: [{metric: value} for value in values] for name, values in systems.items()}}


def figure(**fields: object) -> figures.Figure:
    return dataclasses.replace(figures.Figure("k", "title", "ms", "m", "x"), **fields)  # type: ignore[arg-type]


def test_the_ratio_is_the_median_of_what_was_measured_side_by_side() -> None:
    """The machine halves its speed after the first round: each round's ratio stays 0.5."""
    taken = samples("x", envoy=[10, 20, 20], compiled=[5, 10, 11])
    (result,) = figures.compute(taken, (figure(ratio_at_most=0.75),))
    assert result.compiled_ratio == Ratio(0.5, 0.5, 0.55)
    assert (result.compiled, result.pure, result.envoy) == (10, None, 20)
    assert result.met is True


def test_added_latency_is_what_direct_calls_do_not_have() -> None:
    taken = samples("x", direct=[1, 2], envoy=[3, 4], compiled=[4, 5])
    (result,) = figures.compute(taken, (figure(added=True, ratio_at_most=1.2),))
    assert (result.compiled, result.envoy, result.direct, result.compiled_ratio) == (3, 2, 1.5, Ratio(1.5, 1.5, 1.5))
    assert result.met is False


def test_one_stall_of_the_direct_calls_spoils_only_its_round() -> None:
    taken = samples("x", direct=[1, 50, 1], envoy=[3, 3, 3], compiled=[2, 2, 2])
    (result,) = figures.compute(taken, (figure(added=True),))
    assert (result.compiled, result.envoy, result.compiled_ratio) == (1, 2, Ratio(0.5, 0.5, 0.5))


def test_the_compiled_build_is_judged_and_the_pure_one_shown() -> None:
    taken = samples("x", envoy=[10, 10], compiled=[5, 5], pure=[15, 5])
    (result,) = figures.compute(taken, (figure(ratio_at_most=0.75),))
    assert (result.compiled, result.pure, result.met) == (5, 10, True)
    assert (result.compiled_ratio, result.pure_ratio) == (Ratio(0.5, 0.5, 0.5), Ratio(1.0, 0.5, 1.5))


def test_without_a_compiled_build_pure_python_is_judged() -> None:
    (result,) = figures.compute(samples("x", envoy=[10], pure=[11]), (figure(ratio_at_most=0.75),))
    assert (result.compiled_ratio, result.pure_ratio, result.met) == (None, Ratio(1.1, 1.1, 1.1), False)


def test_no_ratio_against_a_system_that_added_nothing() -> None:
    taken = samples("x", direct=[3], envoy=[3], compiled=[4])
    (result,) = figures.compute(taken, (figure(added=True, ratio_at_most=1.2),))
    assert result.compiled_ratio is None
    assert result.met is None


@pytest.mark.parametrize(
    ("bound", "value", "met"),
    [({"at_most": 60}, 60, True), ({"at_most": 60}, 61, False), ({"at_least": 3800}, 3799, False),
     ({"at_least": 3800}, 4000, True), ({}, 1, None)],
)  # fmt: skip
def test_bounds_on_the_value_itself(bound: dict[str, float], value: float, met: bool | None) -> None:
    (result,) = figures.compute(samples("x", envoy=[1], compiled=[value]), (figure(**bound),))
    assert result.met is met


def test_without_a_system_its_cells_stay_empty() -> None:
    (result,) = figures.compute(samples("x", envoy=[1, 2, 3]), (figure(ratio_at_most=1.0),))
    assert (result.compiled, result.envoy, result.compiled_ratio, result.met) == (None, 2, None, None)


def test_memory_shows_its_worst_round() -> None:
    (result,) = figures.compute(samples("x", compiled=[1, 9, 2]), (figure(at_most=16, over_rounds=max),))
    assert result.compiled == 9


def test_no_ratio_where_it_would_say_nothing() -> None:
    (result,) = figures.compute(samples("x", envoy=[0.01], compiled=[5]), (figure(at_most=16, compared=False),))
    assert (result.compiled_ratio, result.compiled, result.met) == (None, 5, True)


def test_selection_takes_keys_and_beginnings() -> None:
    assert [one.key for one in figures.selected("cpu16, latency1")] == ["cpu16", "latency1_p50", "latency1_p99"]
    assert figures.selected("") == figures.FIGURES
    with pytest.raises(ValueError, match="there is no figure 'speed'; there are cpu16"):
        figures.selected("speed")


def test_every_figure_names_a_measure() -> None:
    assert {one.measure for one in figures.FIGURES} == {measure.name for measure in MEASURES}
    keys = [one.key for one in figures.FIGURES]
    assert len(keys) == len(set(keys))
