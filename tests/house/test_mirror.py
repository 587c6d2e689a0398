"""A reader knows where the proof is: every source file X/y.py has its tests at tests/X/test_y.py."""

import pytest
from house.source import ROOT, committed, python_files

# Shown by real processes instead, or too thin to have behaviour of their own. Each with its reason.
EXEMPT: dict[str, str] = {
    "reach_control/app.py": "wiring only; tests/e2e runs it in real processes",
    "reach_control/lifecycle.py": "signals and start order of a real process: tests/e2e/test_start_stop.py",
    "reach_cli/demo.py": "starts real processes: tests/e2e/test_demo.py",
    "reach_cli/demo_mesh.py": "the demo's processes: tests/e2e/test_demo.py",
    "reach_cli/run.py": "starts real processes: tests/e2e/test_run.py",
    "reach_cli/run_session.py": "a sidecar and an agent from start to end: tests/e2e/test_run.py",
    "reach_cli/sidecar.py": "starts a real process: tests/e2e/test_start_stop.py",
    "reach_cli/control.py": "starts a real process: tests/e2e/test_start_stop.py",
}


def mirror(source: str) -> str:
    """`reach_sidecar/http1/head.py` is tested by `tests/sidecar/http1/test_head.py`."""
    folder, _, name = source.removeprefix("reach_").rpartition("/")
    return f"tests/{folder}/test_{name}"


@pytest.mark.parametrize("source", [name for name in python_files() if not name.endswith("__init__.py")])
def test_has_its_tests(source: str) -> None:
    if source in EXEMPT:
        return
    assert (ROOT / mirror(source)).is_file(), (
        f"{source} has no tests at {mirror(source)}. Write them there; only what shows in real processes "
        "alone may be exempt, with its reason, in tests/house/test_mirror.py."
    )


def test_exemptions_are_needed() -> None:
    for source in EXEMPT:
        if (ROOT / source).is_file():
            assert not (ROOT / mirror(source)).is_file(), f"{source} has tests now: drop it from EXEMPT."


@pytest.mark.parametrize(
    "test",
    [
        name
        for name in committed()
        if name.startswith(("tests/core/", "tests/os/", "tests/sidecar/", "tests/control/", "tests/cli/"))
        and name.rpartition("/")[2].startswith("test_")
        and name.endswith(".py")
    ],
)
def test_tests_have_their_source(test: str) -> None:
    """A renamed source file takes its tests along. `test_y_more.py` belongs to `y.py` too."""
    folder, _, name = test.removeprefix("tests/").rpartition("/")
    stem = name.removeprefix("test_").removesuffix(".py")
    words = stem.split("_")
    candidates = ["_".join(words[:count]) for count in range(len(words), 0, -1)]
    assert any((ROOT / f"reach_{folder}" / f"{candidate}.py").is_file() for candidate in candidates), (
        f"{test} mirrors no source file: expected reach_{folder}/{stem}.py, or a name that it begins with."
    )
