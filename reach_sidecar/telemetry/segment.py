"""A segment: the lines of a batch or of several, and the row that lets a query pass over them."""

import re
from importlib import resources

from reach_sidecar.telemetry.line import Line

# Small segments are merged into one of this size; longer batches are cut into pieces of it.
SEGMENT_LINES = 512
SEGMENT_BYTES = 256 * 1024
# From here on a batch stays as it is: writing it twice would cost more than scanning a row.
SMALL_LINES = 64
_TRACE_ID = re.compile(r"[0-9a-f]{32}")

# A row of segment_index: first_seq, lines, bytes, first_ms, last_ms, worst, traces
Segment = tuple[int, int, int, int, int, int, bytes]


def load_statements(package: str, name: str) -> dict[str, str]:
    """The statements of a .sql file, each under the word of its `-- name:` line."""
    parts = re.split(r"^-- name: (\w+)\n", resources.files(package).joinpath(name).read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


SQL = load_statements("reach_sidecar.telemetry", "sql/store.sql")


def cut(first_seq: int, batch: list[Line]) -> list[tuple[Segment, bytes]]:
    """`batch`, whose first line has the number `first_seq`, as segments: the index row and the lines of each."""
    segments = []
    for start in range(0, len(batch), SEGMENT_LINES):
        part = batch[start : start + SEGMENT_LINES]
        lines = b"\n".join([line[3] for line in part]) + b"\n"
        worst = max([line[1] for line in part])
        traces = trace_keys({line[2] for line in part})
        row = (first_seq + start, len(part), len(lines), part[0][0], part[-1][0], worst, traces)
        segments.append((row, lines))
    return segments


def is_small(row: Segment) -> bool:
    return row[1] < SMALL_LINES and row[2] < SEGMENT_BYTES


def merged(rows: list[Segment]) -> Segment:
    """The index row of neighbours made one."""
    _, counts, sizes, firsts, lasts, worsts, traces = zip(*rows, strict=True)
    joined = b"".join(traces)
    keys = {joined[at : at + 4] for at in range(0, len(joined), 4)}
    return rows[0][0], sum(counts), sum(sizes), min(firsts), max(lasts), max(worsts), b"".join(keys)


def trace_key(trace_id: str) -> bytes:
    """4 bytes that stand for `trace_id` in the index; b"" for what is no trace id."""
    return bytes.fromhex(trace_id[-8:]) if _TRACE_ID.fullmatch(trace_id) else b""


def trace_keys(ids: set[str | None]) -> bytes:
    """The keys of all `ids`, end to end."""
    joined = "".join([trace_id[-8:] for trace_id in ids if trace_id])
    try:
        keys = bytes.fromhex(joined)
    except ValueError:
        keys = b""
    if len(keys) == 4 * (len(ids) - (None in ids)):
        return keys
    return b"".join([trace_key(trace_id) for trace_id in ids if trace_id])


def is_damage(error: Exception) -> bool:
    """The file itself is broken, and opening it again will not help."""
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def is_full(error: Exception) -> bool:
    return getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
