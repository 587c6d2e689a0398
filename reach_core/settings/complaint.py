"""What is wrong with a configuration file, and where."""

import difflib
import re
from collections.abc import Iterable
from typing import NamedTuple

MAX_COMPLAINTS = 100
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_FOUND_MAX = 60


class Complaint(NamedTuple):
    """One mistake. `line` and `column` count from 1; 0 means that the file as a whole (or a flag) is meant."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


class ConfigError(Exception):
    """A configuration that cannot be used: `complaints` holds every mistake found, sorted by place."""

    def __init__(self, complaints: Iterable[Complaint]) -> None:
        self.complaints = sorted(set(complaints))
        super().__init__("\n".join(map(str, self.complaints)))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `word` is most likely a misspelling of."""
    names = {name.lower().replace("_", ""): name for name in known}
    plain = word.lower().replace("-", "").replace("_", "").replace(" ", "")
    hits = difflib.get_close_matches(plain[:_FOUND_MAX], names, n=1, cutoff=0.6)
    return names[hits[0]] if hits else None


def quoted(value: str) -> str:
    """`value` fit for one line of a message: shortened, control characters escaped, a URL's password hidden."""
    plain = _USERINFO.sub("***", value)
    if len(plain) > _FOUND_MAX:
        plain = plain[: _FOUND_MAX - 1] + "…"
    return "`" + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain) + "`"
