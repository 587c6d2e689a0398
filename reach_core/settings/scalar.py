"""The kinds of single values a setting can have: how each is read, said, and written as JSON Schema.

A field's type is the Python type plus its kind, such as `Annotated[float, DURATION]`, so values are plain floats,
ints and texts.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from reach_core.address import (
    check_host,
    is_wildcard,
    join_address,
    split_address,
    split_base_url,
)
from reach_core.peer import AGENT_ID as AGENT_ID_PATTERN
from reach_core.units import format_duration, format_size, parse_duration, parse_size

_LONGEST_S = 366 * 86400.0
_LARGEST = 1 << 50


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """One kind of value. `parse` raises ValueError with a hint (or nothing) that follows "expected …, found …"."""

    expected: str
    parse: Callable[[str], Any]
    schema: dict[str, Any]
    render: Callable[[Any], Any] = lambda value: value
    placeholder: Any = ""
    plain_only: bool = False  # numbers and booleans: quotes around them make them text


@dataclass(frozen=True, slots=True)
class Between:
    """Bounds of a number, a duration (seconds) or a size (bytes), both included; `above` leaves `low` itself out."""

    low: float
    high: float
    above: bool = False

    def complaint(self, value: float, render: Callable[[Any], Any]) -> str | None:
        """What to write instead, or None when `value` is within."""
        if value < self.low or (self.above and value == self.low):
            return f"more than {render(self.low)}" if self.above else f"at least {render(self.low)}"
        if value > self.high:
            return f"at most {render(self.high)}"
        return None


def _duration(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError:
        hint = f"write {text}s or {text}ms" if text.replace(".", "", 1).isdecimal() else ""
        raise ValueError(hint) from None
    if seconds > _LONGEST_S:
        raise ValueError("that is more than a year")
    return seconds


def _size(text: str) -> int:
    try:
        size = parse_size(text)
    except ValueError:
        raise ValueError("") from None
    if size > _LARGEST:
        raise ValueError("that is more than any disk holds")
    return size


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,15}", text):
        raise ValueError("")
    return int(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(?:[eE][+-]?[0-9]{1,2})?", text):
        raise ValueError("")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("")
    return value


def _flag(text: str) -> bool:
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    meant = {"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}.get(text.lower())
    raise ValueError(f"write {meant}" if meant else "")


def _text(text: str) -> str:
    if not text or any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError("")
    return text


def matching(pattern: str, longest: int) -> Callable[[str], str]:
    """A parser for text of at most `longest` characters that matches `pattern` as a whole."""
    compiled = re.compile(pattern)

    def parse(text: str) -> str:
        if len(text) > longest:
            raise ValueError(f"it has at most {longest} characters")
        if not compiled.fullmatch(text):
            raise ValueError("")
        return text

    return parse


def _listen(text: str) -> str:
    return join_address(*split_address(text))


def _reachable(text: str) -> str:
    host, port = split_address(text)
    if port == 0:
        raise ValueError("port 0 cannot be called")
    if is_wildcard(host):
        raise ValueError("peers cannot call that address: name one of this machine's own")
    return join_address(host, port)


def _server(*schemes: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        url = split_base_url(text, schemes)
        if url.username is not None and "https" not in schemes:
            raise ValueError("no user name belongs here")
        return url.geturl().rstrip("/")

    return parse


def _origin(text: str) -> str:
    url = split_base_url(text, ("http", "https"))
    if url.username is not None or text.endswith("/"):
        raise ValueError("an origin is scheme, host and port, nothing more")
    return text.lower()


def _host(text: str) -> str:
    if ":" in text and text.count(":") == 1:
        raise ValueError("a host without port is meant")
    return check_host(text.strip("[]")).lower()


def one_of(*choices: str, spellings: Mapping[str, str] | None = None) -> Scalar:
    """Kind of a text that is one of a few words. `spellings` of them are accepted too, and read as the word."""
    said = " or ".join(", ".join(choices).rsplit(", ", 1))
    words = {**{choice: choice for choice in choices}, **(spellings or {})}

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError("")
        return words[text]

    return Scalar(said, parse, {"enum": list(words)}, placeholder=choices[0])


# What an editor may see instead of the value itself: a variable that is expanded when the file is read.
VARIABLE = r"^.*\$\{[^}]+\}.*$"
_DURATION_PATTERN = r"^([0-9]{1,12}(\.[0-9]{1,9})?(ms|s|m|h|d))+$"
_SIZE_PATTERN = r"^[0-9]{1,15}(B|KiB|MiB|GiB)?$"
_NAME_PATTERN = r"[^\W_](?:[\w ./-]*[^\W_])?"
_PATH_PATTERN = r"/[!-\"$-~]*"
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_KEY_PATTERN = rf"json:(?:/[ -~]*)|header:{_TOKEN}"

DURATION = Scalar(
    "a duration such as 1500ms, 30s or 10m",
    _duration,
    {"type": "string", "pattern": _DURATION_PATTERN},
    render=format_duration,
    placeholder=0.0,
)
SIZE = Scalar(
    "a size such as 64KiB, 256MiB or 1GiB",
    _size,
    {"anyOf": [{"type": "string", "pattern": _SIZE_PATTERN}, {"type": "integer", "minimum": 0}]},
    render=format_size,
    placeholder=0,
)
INTEGER = Scalar("a whole number", _integer, {"type": "integer"}, placeholder=0, plain_only=True)
NUMBER = Scalar("a number", _number, {"type": "number"}, placeholder=0.0, plain_only=True)
FLAG = Scalar("true or false", _flag, {"type": "boolean"}, placeholder=False, plain_only=True)
TEXT = Scalar("text", _text, {"type": ["string", "number", "boolean"], "minLength": 1})
FILE = Scalar(
    "a path of a file or directory",
    matching(r"[^\x00-\x1f\x7f\ud800-\udfff]+", 4096),
    {"type": "string", "minLength": 1},
)
VERSION = Scalar(
    "a version such as 1.4.2",
    matching(r"[A-Za-z0-9][A-Za-z0-9.+~_-]*", 64),
    {"type": ["string", "number"], "pattern": "^[A-Za-z0-9][A-Za-z0-9.+~_-]*$", "maxLength": 64},
)
LISTEN = Scalar("an address such as 127.0.0.1:7070", _listen, {"type": "string", "pattern": r"^.+:[0-9]{1,5}$"})
REACHABLE = Scalar("an address such as 10.0.3.7:7071", _reachable, {"type": "string", "pattern": r"^.+:[0-9]{1,5}$"})
SERVER = Scalar(
    "a URL such as http://127.0.0.1:7080", _server("http", "https"), {"type": "string", "pattern": "^https?://[^/]+/?$"}
)
PLAIN_SERVER = Scalar(
    "a URL such as http://127.0.0.1:9001", _server("http"), {"type": "string", "pattern": "^http://[^/]+/?$"}
)
ORIGIN = Scalar(
    "an origin such as https://tools.example.org", _origin, {"type": "string", "pattern": "^https?://[^/]+$"}
)
HOST = Scalar("a host name such as host.docker.internal", _host, {"type": "string", "minLength": 1})
AGENT_ID = Scalar(
    "an id of 1 to 63 letters, digits, `.`, `-`, `_`, `~` and `:`, a letter or digit first",
    matching(AGENT_ID_PATTERN.pattern, 63),
    {"type": ["string", "integer"], "pattern": f"^{AGENT_ID_PATTERN.pattern}$"},
)
CAPABILITY = Scalar(
    "a capability name such as text.summarize",
    matching(_NAME_PATTERN, 128),
    {"type": "string", "minLength": 1, "maxLength": 128},
)
ATTRIBUTE = Scalar(
    "an attribute name such as language",
    matching(r"[A-Za-z][A-Za-z0-9_.-]*", 64),
    {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_.-]*$", "maxLength": 64},
)
ATTRIBUTE_VALUE = Scalar(
    "a text without commas",
    matching(r"[^,\x00-\x1f\x7f\ud800-\udfff]+", 256),
    {"type": ["string", "number", "boolean"]},
)
PATH = Scalar(
    "a path that starts with `/`, such as /process",
    matching(_PATH_PATTERN, 1024),
    {"type": "string", "pattern": f"^{_PATH_PATTERN}$", "maxLength": 1024},
)
KEY_PLACE = Scalar(
    "`header:Name` or `json:/field`",
    matching(_KEY_PATTERN, 256),
    {"type": "string", "pattern": f"^({_KEY_PATTERN})$", "maxLength": 256},
)

Duration = Annotated[float, DURATION]
Size = Annotated[int, SIZE]
Text = Annotated[str, TEXT]
FilePath = Annotated[str, FILE]
Version = Annotated[str, VERSION]
ListenAddress = Annotated[str, LISTEN]
ReachableAddress = Annotated[str, REACHABLE]
ServerUrl = Annotated[str, SERVER]
PlainServerUrl = Annotated[str, PLAIN_SERVER]
Origin = Annotated[str, ORIGIN]
HostName = Annotated[str, HOST]
AgentId = Annotated[str, AGENT_ID]
CapabilityName = Annotated[str, CAPABILITY]
AttributeName = Annotated[str, ATTRIBUTE]
AttributeValue = Annotated[str, ATTRIBUTE_VALUE]
UrlPath = Annotated[str, PATH]
KeyPlace = Annotated[str, KEY_PLACE]
