"""Durations and sizes as people write them: `1500ms`, `30s`, `10m`, `256MiB`.

One grammar for configuration files and for the `Reach-Timeout` header (design: headers, capability YAML).
"""

import re

_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h|d)", re.ASCII)
_DURATION_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d{1,15})(B|KiB|MiB|GiB)?", re.ASCII)
_SIZE_UNITS = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_duration(text: str) -> float:
    """Seconds of `text`; several parts add up (`1m30s`). Raises ValueError with what was expected."""
    seconds, position = 0.0, 0
    for part in _DURATION.finditer(text):
        if part.start() != position:
            break
        seconds += float(part[1]) * _DURATION_UNITS_S[part[2]]
        position = part.end()
    if not text or position != len(text):
        raise ValueError(f"{text!r} is not a duration: write a number and ms, s, m, h or d, such as 1500ms or 30s")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest exact spelling down to a millisecond: 0.25 -> `250ms`, 30 -> `30s`."""
    ms = round(seconds * 1000)
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def parse_size(text: str) -> int:
    """Bytes of `text` (`256MiB`, `64KiB`, `1024`). Raises ValueError with what was expected."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size: write a whole number and B, KiB, MiB or GiB, such as 256MiB")
    return int(match[1]) * _SIZE_UNITS[match[2]]


def format_size(size: int) -> str:
    """The largest unit that divides `size`: 65536 -> `64KiB`."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"
