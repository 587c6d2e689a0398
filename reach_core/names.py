"""Names of capabilities and the attribute forms that go with them (design: delivering one call, matching).

A name is normalised once on declaring and once on asking, so `Text_Summarize`, `text-summarize` and
`text/summarize` are one name. Word order is never touched: `message.push` and `push.message` may be two
different things, so they are only *near* each other, and the one who asked is told.
"""

import difflib
import functools
import re
from collections.abc import Iterable

_SEPARATORS = str.maketrans("_- /", "....")
_VERSIONED = re.compile(r"([a-z][a-z+#]*)[-_. ]?v?(\d+(?:\.\d+)*)", re.ASCII)
_VERSION_PART = re.compile(r"\d+|[a-z]+", re.ASCII)

MAX_NEAR = 3
MAX_COMPARED = 1_000
"""Names compared by spelling: 1,000 take about 10 ms, and one wrong name must not stall the loop."""
MAX_COMPARED_LENGTH = 64


@functools.lru_cache(maxsize=4096)
def normalise(name: str) -> str:
    """`Text_Summarize/v2` -> `text.summarize.v2`. Idempotent."""
    return name.translate(_SEPARATORS).casefold()


def near(name: str, known: Iterable[str]) -> list[str]:
    """At most three of `known` that the asker may have meant: same words in another order first, then by
    spelling.
    """
    asked = normalise(name)
    words = sorted(asked.split("."))
    reordered: list[str] = []
    spelled: dict[str, str] = {}
    for candidate in known:
        normal = normalise(candidate)
        if normal == asked:
            continue
        if sorted(normal.split(".")) == words:
            reordered.append(candidate)
        elif len(spelled) < MAX_COMPARED:
            spelled.setdefault(normal[:MAX_COMPARED_LENGTH], candidate)
    close = difflib.get_close_matches(asked[:MAX_COMPARED_LENGTH], spelled, n=MAX_NEAR, cutoff=0.6)
    return (sorted(set(reordered)) + [spelled[normal] for normal in close])[:MAX_NEAR]


def attribute_form(value: str) -> tuple[str, str | None]:
    """What an attribute says and in which version: `python3` -> (`python`, `3`), `Python-3.11` -> (`python`,
    `3.11`).

    A value that is not a word followed by a version stays whole: `qwen2.5-72b` -> (`qwen2.5-72b`, None).
    """
    folded = value.strip().casefold()
    match = _VERSIONED.fullmatch(folded)
    return (match[1], match[2]) if match else (folded, None)


VersionOrder = tuple[tuple[int, ...], int, tuple[tuple[int, int, str], ...]]


def version_order(version: str) -> VersionOrder:
    """A key by which versions compare as versions: 3.9 < 3.11, 3 = 3.0, 1.0-rc1 < 1.0; what follows `+` is
    ignored.
    """
    text = version.strip().casefold().partition("+")[0].removeprefix("v")
    release_text = re.match(r"\d*(?:\.\d+)*", text, re.ASCII)
    release_end = release_text.end() if release_text else 0
    release = [int(part[:18]) for part in text[:release_end].split(".") if part]
    while release and release[-1] == 0:
        release.pop()
    parts = _VERSION_PART.findall(text[release_end:])
    rest = tuple((1, int(part[:18]), "") if part.isdigit() else (0, 0, part) for part in parts)
    return tuple(release), 0 if rest else 1, rest
