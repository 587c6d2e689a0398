import cProfile
from pathlib import Path

from bench import counting


def inner(values: list[int]) -> None:
    values.append(1)


def outer() -> None:
    values: list[int] = []
    inner(values)
    inner(values)


def test_counts_python_and_c_functions_per_call(tmp_path: Path) -> None:
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(50):
        outer()
    profile.disable()
    file = tmp_path / "calls.profile"
    profile.dump_stats(file)
    counts = counting.read("reach-a", file, calls=50)
    assert (counts.python, counts.native) == (3, 2)  # outer, inner twice; append twice
    found = {row.function: row.per_call for row in counts.rows}
    assert found["inner (tests/bench/test_counting.py)"] == 2
    assert counting.summary(counts, top=1).startswith("reach-a: 3 Python and 2 C functions per call\n")
