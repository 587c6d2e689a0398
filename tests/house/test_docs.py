"""Documents stay in step with the code, and nothing in the tree points outside it."""

import re
from pathlib import Path

import pytest
from house.source import ROOT, committed

from reach_core.problem import KINDS

DOCUMENTS = [name for name in committed() if name.endswith(".md")]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
BINARY = {".png", ".jpg", ".gif", ".ico", ".woff2", ".gz", ".whl", ".db"}

# Written in pieces, so that this file does not find itself.
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(?:ho" r"me|ro" r"ot|wo" r"rk|Us" r"ers)/\w")
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|NotImplemented" r"Error)\b")
REGISTRY = re.compile(r"py" r"pi\.org|python" r"hosted\.org|registry\.npm" r"js|deb\.deb" r"ian\.org")


def text_of(name: str) -> str:
    if Path(name).suffix in BINARY:
        return ""
    try:
        return (ROOT / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def find(pattern: re.Pattern[str], names: list[str]) -> list[str]:
    found = []
    for name in names:
        for number, line in enumerate(text_of(name).splitlines(), 1):
            if pattern.search(line):
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    return found


def anchor(heading: str) -> str:
    """The fragment that web views give a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_relative_links_resolve(document: str) -> None:
    broken = []
    for match in LINK.finditer(text_of(document)):
        target = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        goal = (ROOT / document).parent / path if path else ROOT / document
        if not goal.exists():
            broken.append(f"{document}: ({target}) points at nothing")
        elif fragment and goal.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", goal.read_text(encoding="utf-8"), re.M)
            if fragment not in {anchor(heading) for heading in headings}:
                broken.append(f"{document}: ({target}) names a heading that is not there")
    assert not broken, "\n".join(broken) + "\nMend the link or the file it points at."


def test_no_paths_of_one_machine() -> None:
    found = find(MACHINE_PATH, list(committed()))
    assert not found, "\n".join(found) + "\nUse a path relative to the repository, or a placeholder."


def test_no_registry_hosts() -> None:
    found = find(REGISTRY, list(committed()))
    assert not found, "\n".join(found) + "\nPackages come by name; the machine knows the registry."


def test_nothing_is_left_unfinished() -> None:
    code = [name for name in committed() if name.endswith((".py", ".sql", ".yaml", ".js", ".mjs"))]
    found = find(UNFINISHED, code)
    assert not found, "\n".join(found) + "\nFinish it, or leave it out and say so in docs/decisions.md."


def test_errors_are_explained_as_they_are() -> None:
    """The status and the `executed` of each row are those of the code."""
    rows = re.findall(r"^\| `([a-z_]+)` \| (\d+) \| (\w+)", text_of("docs/errors.md"), re.M)
    assert {code for code, _, _ in rows} == set(KINDS)
    for code, status, executed in rows:
        assert int(status) == KINDS[code].status, f"docs/errors.md: {code} has status {KINDS[code].status}"
        assert executed in (KINDS[code].executed, "the"), f"docs/errors.md: {code} is {KINDS[code].executed}"
