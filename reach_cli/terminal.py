"""What is written where: data on stdout, words for people on stderr, colour only where somebody looks."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import click


def is_terminal(stream: IO[Any]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def has_colour(stream: IO[Any]) -> bool:
    """https://no-color.org: set and not empty means none."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str | None = None, *, bold: bool = False, err: bool = False) -> str:
    """`text` in `colour` if the stream it goes to shows colours."""
    if not has_colour(sys.stderr if err else sys.stdout):
        return text
    return click.style(text, fg=colour, bold=bold or None)


def say(text: str) -> None:
    """A sentence for people, on stderr."""
    click.echo(text, err=True)


def print_json(data: Any) -> None:
    """One JSON document a line, so that every `--json` output can be read line by line."""
    click.echo(json.dumps(data, ensure_ascii=False, separators=(", ", ": ")))


STATUS_COLOURS = {
    "up": "green",
    "joining": "cyan",
    "suspect": "yellow",
    "down": "red",
    "left": "bright_black",
    "revoked": "red",
}


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], colours: Mapping[str, str] | None = None
) -> str:
    """Columns in plain text, the same in a file as on a terminal; a cell found in `colours` is painted."""
    rows = [[_one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(head), *rows]) for column in range(len(head))]
    lines = ["  ".join(name.upper().ljust(width) for name, width in zip(head, widths, strict=True)).rstrip()]
    lines[0] = paint(lines[0], "bright_black")
    for row in rows:
        cells = []
        for cell, width in zip(row, widths, strict=True):
            colour = (colours or {}).get(cell)
            padding = " " * (width - len(cell))
            cells.append((paint(cell, colour) if colour else cell) + padding)
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _one_line(cell: str) -> str:
    """Agents choose their own names: a control character in one must not reach the terminal."""
    return "".join(c if c.isprintable() else "�" for c in cell)
