"""YAML text to a tree of nodes that know their place, or one complaint in words an operator can act on.

Only the composer of PyYAML is used: values stay the text that was written (`1.4` is not a float, `no` is not a
boolean), and nothing is ever constructed from a tag.
"""

import re

import yaml

from reach_core.settings.complaint import Complaint, ConfigError

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
_MAX_ALIASES = 100

_PLAINER = (
    (r"found character '\\t' that cannot start any token", "a tab is used for indentation; YAML wants spaces"),
    (r"but found another document", "a second document starts here; a configuration is one document"),
    (r"mapping values are not allowed here", "a `:` stands where no key can be; indent the line, or quote the value"),
    (r"could not find expected ':'", "this line is no `key: value`; the `:` (with a space after it) is missing"),
    (r"found undefined alias '?(.*?)'?", r"the alias `*\1` refers to no anchor"),
    (r"found duplicate anchor.*", "this anchor is defined twice"),
    (r"expected <block end>, but found .*", "the indentation does not match the lines above, or a quote is missing"),
    (r"expected ',' or '\]', but got .*", "a `,` or the closing `]` is missing"),
    (r"expected ',' or '\}', but got .*", "a `,` or the closing `}` is missing"),
    (r"expected the node content, but found '<stream end>'", "the file ends where a value is missing"),
    (r"expected the node content, but found (.*)", r"a value is missing before \1"),
    (r"found unexpected end of stream", "the file ends inside a quoted text; the closing quote is missing"),
    (r"found character '(.*)' that cannot start any token", r"a value cannot start with `\1`; put it in quotes"),
)


def unreadable(error: OSError | ValueError, file: str) -> ConfigError:
    """What to say when the file could not be read at all."""
    match error:
        case FileNotFoundError():
            message = "there is no such file"
        case IsADirectoryError():
            message = "that is a directory; name the file in it"
        case PermissionError():
            message = "this user may not read the file"
        case OSError():
            message = f"the file cannot be read: {error.strerror}"
        case _:
            message = "that is not the name of a file"
    return ConfigError([Complaint(file, 0, 0, message)])


def decode(data: bytes, file: str) -> str:
    """The text of a file's bytes; a UTF-8 byte order mark is dropped. Raises ConfigError for other encodings."""
    if len(data) > MAX_BYTES:
        raise ConfigError([Complaint(file, 0, 0, f"the file is {len(data)} bytes long; at most {MAX_BYTES} are read")])
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError([Complaint(file, 1, 1, "the file is UTF-16; save it as UTF-8")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise ConfigError([Complaint(file, line, column, message)]) from None


class _Composer(yaml.SafeLoader):
    """The composer with bounds on depth and aliases, which recursion and "alias bombs" need."""

    depth = 0
    aliases = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        event = self.peek_event()
        self.aliases += isinstance(event, yaml.AliasEvent)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested more than {MAX_DEPTH} deep", problem_mark=event.start_mark)
        if self.aliases > _MAX_ALIASES:
            raise yaml.MarkedYAMLError(problem=f"more than {_MAX_ALIASES} aliases", problem_mark=event.start_mark)
        node = super().compose_node(parent, index)  # type: ignore[arg-type]
        self.depth -= 1
        return node


def compose(text: str, file: str) -> yaml.Node:
    """The root node of `text`, a mapping. Raises ConfigError with the one place where reading had to stop."""
    if len(text) > MAX_BYTES:
        raise ConfigError([Complaint(file, 0, 0, f"the file is {len(text)} long; at most {MAX_BYTES} are read")])
    text = text.removeprefix("\ufeff")
    loader = None
    try:
        loader = _Composer(text)
        node = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line, column = _place(text, error.position)
        # PyYAML's own annotation says str; for text it is the code point.
        character = error.character if isinstance(error.character, int) else ord(error.character)
        message = f"the character U+{character:04X} cannot stand in a YAML file"
        raise ConfigError([Complaint(file, line, column, message)]) from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_syntax(error, text, file)]) from None
    except (ValueError, OverflowError, RecursionError, yaml.YAMLError):
        # Some escapes and numbers in directives get past the scanner's own checks.
        line, column = _place(text, loader.index) if loader is not None else (1, 1)
        raise ConfigError([Complaint(file, line, column, "not valid YAML here")]) from None
    finally:
        if loader is not None:
            loader.dispose()
    if node is None:
        raise ConfigError([Complaint(file, 1, 1, "the file is empty; `{}` would mean: every default")])
    return node


def _place(text: str, index: int) -> tuple[int, int]:
    before = text[:index]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _syntax(error: yaml.MarkedYAMLError, text: str, file: str) -> Complaint:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "not valid YAML"
    if problem == "could not find expected ':'" and error.context_mark is not None:
        mark = error.context_mark  # the line itself, not where the scanner gave up on it
    for pattern, plainer in _PLAINER:
        match = re.fullmatch(pattern, problem, re.DOTALL)
        if match:
            problem = match.expand(plainer)
            break
    if mark is None:
        return Complaint(file, 1, 1, f"not valid YAML: {problem}")
    lines = text.splitlines()
    source = lines[mark.line] if mark.line < len(lines) else ""
    if re.search(r"(?<![\"'])\[[0-9a-fA-F]*:[0-9a-fA-F:]*\]:", source):
        problem += "; an address with brackets needs quotes"
    elif re.search(r"[\[{,:] *[^\"',\[{]*\$\{", source) and ("`,`" in problem or "','" in problem or "'{'" in problem):
        problem += "; inside [ ] or { } a value with ${…} needs quotes"
    elif error.context_mark is not None and error.context_mark.line != mark.line:
        problem += f" (it began on line {error.context_mark.line + 1})"
    return Complaint(file, mark.line + 1, mark.column + 1, f"not valid YAML: {problem}")
