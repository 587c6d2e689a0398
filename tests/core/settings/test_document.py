"""YAML text to nodes: what is refused, and where."""

import pytest
import yaml

from reach_core.settings.complaint import ConfigError
from reach_core.settings.document import MAX_BYTES, compose, decode, unreadable


def place_of(text: str) -> tuple[int, int]:
    with pytest.raises(ConfigError) as caught:
        compose(text, "f")
    (complaint,) = caught.value.complaints
    return complaint.line, complaint.column


def test_values_stay_text() -> None:
    node = compose("a: 1.40\nb: no", "f")
    assert isinstance(node, yaml.MappingNode)
    assert [value.value for _, value in node.value] == ["1.40", "no"]


def test_depth_is_bounded() -> None:
    compose("a: " + "[" * 30 + "]" * 30, "f")
    assert place_of("a: " + "[" * 5000) == (1, 35)


def test_aliases_are_bounded() -> None:
    compose("a: &a 1\nb: [" + ", ".join(["*a"] * 100) + "]", "f")
    assert place_of("a: &a 1\nb: [" + ", ".join(["*a"] * 101) + "]")[0] == 2


def test_numbers_that_are_too_long_for_python() -> None:
    assert place_of("%YAML 1." + "9" * 5000 + "\n---\na: 1")[0] == 1


def test_length_is_bounded() -> None:
    assert place_of("#" * (MAX_BYTES + 1)) == (0, 0)
    with pytest.raises(ConfigError, match="at most"):
        decode(b"#" * (MAX_BYTES + 1), "f")


def test_bytes_to_text() -> None:
    assert decode("é: 1".encode(), "f") == "é: 1"
    assert decode(b"\xef\xbb\xbfa: 1", "f") == "a: 1"
    with pytest.raises(ConfigError, match="f:2:5: byte 0xff"):
        decode(b"a: 1\n\xc3\xa9: b\xff", "f")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_other_encodings(encoding: str) -> None:
    data = ("\ufeff" if encoding == "utf-16-be" else "") + "a: 1"
    with pytest.raises(ConfigError, match="UTF-16"):
        decode(data.encode(encoding), "f")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "x"), "there is no such file"),
        (IsADirectoryError(21, "x"), "that is a directory"),
        (PermissionError(13, "x"), "this user may not read"),
        (OSError(5, "Input/output error"), "cannot be read: Input/output error"),
        (ValueError("embedded null byte"), "not the name of a file"),
    ],
)
def test_unreadable(error: OSError | ValueError, said: str) -> None:
    assert str(unreadable(error, "f")).startswith("f: ")
    assert said in str(unreadable(error, "f"))
