"""What a log line is: levels, time stamp, JSON bytes.

A line travels as a plain tuple, because it is made on the path of every call.
"""

import time
from collections.abc import Mapping
from typing import Any

import orjson

# Rank of each level; a line is kept when its rank is at least that of `log.level`.
LEVELS: dict[str, int] = {"debug": 10, "info": 20, "warn": 30, "warning": 30, "error": 40}

# A longer line is shortened: one huge `detail` must not fill the store or a terminal.
MAX_LINE_BYTES = 16 * 1024

# (ms since the epoch, rank of the level, trace id or None, JSON without newline)
Line = tuple[int, int, str | None, bytes]


def level_rank(level: str) -> int:
    """Rank of `level`. ValueError names the levels there are."""
    try:
        return LEVELS[level.lower()]
    except KeyError:
        raise ValueError(f"{level!r} is not a level: use one of debug, info, warn, error") from None


def rfc3339(ms: int) -> str:
    """`2026-01-31T12:00:00.123Z` of milliseconds since the epoch."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(ms // 1000))}.{ms % 1000:03d}Z"


def encode(record: Mapping[str, object]) -> bytes:
    """JSON of `record`, whatever is in it: foreign objects as text, broken text repaired, long text shortened."""
    try:
        data = orjson.dumps(record, default=str, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):  # lone surrogates, integers over 64 bits, circles
        data = orjson.dumps({_plain(key): _plain(value) for key, value in record.items()})
    if len(data) <= MAX_LINE_BYTES:
        return data
    return orjson.dumps({_plain(key): _shorten(value) for key, value in record.items()})


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    return str(value).encode("utf-8", "replace").decode()


def _shorten(value: Any) -> Any:
    value = _plain(value)
    if isinstance(value, str) and len(value) > 256:
        return f"{value[:256]}… ({len(value)} characters)"
    return value
