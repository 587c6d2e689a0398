"""Walks a YAML tree and the types of the settings side by side.

Every mistake is noted and the walk goes on, with the default (or an empty value) in the place of what was wrong, so
that one run tells all. Checks that look at several settings then run on the result; what they say about a place that
was already found wrong is left out, since it would only repeat or mislead.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import yaml

from reach_core.settings.complaint import MAX_COMPLAINTS, Complaint, ConfigError, nearest, quoted
from reach_core.settings.document import compose
from reach_core.settings.expand import expand
from reach_core.settings.shape import (
    FieldShape,
    ListShape,
    MapShape,
    ScalarShape,
    Section,
    SectionShape,
    Shape,
    section_shape,
)

Path = tuple[str | int, ...]
S = TypeVar("S", bound=Section)
_MAX_NODES = 50_000
_NULLS = ("", "~", "null", "Null", "NULL")
_TAGS = ("str", "int", "float", "bool", "null", "timestamp", "value", "merge", "seq", "map")
_ABSENT = object()  # the value expanded to nothing: as if its line were not there


class Fault(NamedTuple):
    """What a check of several settings found: the setting to show, and the others it was compared with."""

    path: Path
    message: str
    compared: tuple[Path, ...] = ()


def read_settings(
    text: str,
    cls: type[S],
    *,
    file: str,
    env: Mapping[str, str],
    check: Callable[[S], Iterable[Fault]] = lambda settings: (),
) -> S:
    """The settings in `text`, checked. Raises ConfigError with every complaint; `file` only names the place."""
    walk = _Walk(text.removeprefix("\ufeff"), file, env)
    root = compose(walk.text, file)
    settings: S = walk.value(section_shape(cls), root, ())
    for fault in check(settings):
        walk.judge(fault)
    if walk.complaints:
        raise ConfigError(walk.complaints)
    return settings


class _Walk:
    def __init__(self, text: str, file: str, env: Mapping[str, str]) -> None:
        self.text, self.file, self.env = text, file, env
        self.complaints: list[Complaint] = []
        self.places: dict[Path, yaml.Mark] = {}
        self.broken: set[Path] = set()
        self.nodes = 0

    def complain(self, mark: yaml.Mark, path: Path, message: str, *, at: tuple[int, int] | None = None) -> None:
        line, column = at or (mark.line, mark.column)
        self.complaints.append(Complaint(self.file, line + 1, column + 1, message))
        self.broken.add(path)
        if len(self.complaints) >= MAX_COMPLAINTS:
            raise ConfigError(self.complaints)

    def judge(self, fault: Fault) -> None:
        """Note what a check found, unless it looked at something already found wrong."""
        for path in (fault.path, *fault.compared):
            if any(path[:n] in self.broken for n in range(1, len(path) + 1)):
                return
        # A setting that was left at its default has no place: then that of what it was compared with.
        place = next((path for path in (fault.path, *fault.compared) if path in self.places), fault.path)
        while place not in self.places:
            place = place[:-1]
        self.complain(self.places[place], fault.path, f"`{said(fault.path)}`: {fault.message}")
        self.broken.discard(fault.path)

    def value(self, shape: Shape, node: yaml.Node, path: Path) -> Any:
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            self.complain(node.start_mark, path, f"more than {_MAX_NODES} values, aliases counted")
            raise ConfigError(self.complaints)
        self.places.setdefault(path, node.start_mark)
        if node.tag.removeprefix("tag:yaml.org,2002:") not in _TAGS:
            self.complain(node.start_mark, path, f"tags are not used here: take {quoted(node.tag)} out")
        match shape:
            case ScalarShape():
                return self.scalar(shape, node, path)
            case ListShape():
                return self.list(shape, node, path)
            case MapShape():
                return self.map(shape, node, path)
            case SectionShape():
                return self.section(shape, node, path)

    def scalar(self, shape: ScalarShape, node: yaml.Node, path: Path) -> Any:
        kind = shape.kind
        if not isinstance(node, yaml.ScalarNode):
            return self.wrong(kind.expected, node, path, kind.placeholder)
        text, expanded = self.expanded(node, path)
        if path in self.broken:
            return kind.placeholder
        if node.style is None and expanded and not text:
            return _ABSENT
        if node.style is None and node.value in _NULLS:
            return self.wrong(kind.expected, node, path, kind.placeholder, "write a value, or take the line out")
        if kind.plain_only and node.style is not None and not expanded:
            return self.wrong(kind.expected, node, path, kind.placeholder, "take the quotes away")
        try:
            value = kind.parse(text)
        except ValueError as error:
            hint = str(error)
            if not hint and kind.schema.get("enum"):
                near = nearest(text, kind.schema["enum"])
                hint = f"did you mean `{near}`?" if near else ""
            return self.wrong(kind.expected, node, path, kind.placeholder, hint, found=quoted(text))
        within = shape.bounds and shape.bounds.complaint(value, kind.render)
        if within:
            return self.wrong(within, node, path, kind.placeholder, found=quoted(text))
        return value

    def expanded(self, node: yaml.ScalarNode, path: Path) -> tuple[str, bool]:
        text, failed = expand(node.value, self.env)
        source = self.text[node.start_mark.index : node.end_mark.index]
        start = 0
        for reference, message in failed:
            found = source.find(reference, start)
            at = None
            if found >= 0:
                start = found + len(reference)
                before = source[:found]
                newlines = before.count("\n")
                column = len(before) - before.rfind("\n") - 1 + (0 if newlines else node.start_mark.column)
                at = (node.start_mark.line + newlines, column)
            self.complain(node.start_mark, path, f"`{said(path)}`: {message}", at=at)
        return text, "${" in node.value

    def wrong(
        self, expected: str, node: yaml.Node, path: Path, instead: Any, hint: str = "", *, found: str = ""
    ) -> Any:
        """Complain about the value of `path`, and go on with `instead`."""
        found = found or _kind_of(node)
        if not hint and isinstance(node, yaml.ScalarNode) and "${" in node.value and not isinstance(instead, str):
            hint = "a variable stands for one value" if instead is None or isinstance(instead, list) else ""
        where = f"`{said(path)}`: " if path else "the whole file: "
        message = f"{where}expected {expected}, found {found}" + (f" ({hint})" if hint else "")
        self.complain(node.start_mark, path, message)
        return instead

    def list(self, shape: ListShape, node: yaml.Node, path: Path) -> list[Any]:
        if _is_null(node):
            return []
        if isinstance(node, yaml.SequenceNode):
            items = [self.value(shape.item, item, (*path, n)) for n, item in enumerate(node.value)]
        elif shape.or_one and isinstance(node, yaml.ScalarNode):
            items = [self.value(shape.item, node, path)]
        else:
            hint = f"write [{node.value[:40]}]" if isinstance(node, yaml.ScalarNode) else ""
            return self.wrong("a list", node, path, [], hint)  # type: ignore[no-any-return]
        return [item for item in items if item is not _ABSENT]

    def map(self, shape: MapShape, node: yaml.Node, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if _is_null(node):
            return values
        for key, key_node, value_node in self.pairs(node, path):
            try:
                key = shape.key.parse(key)
            except ValueError:
                self.complain(
                    key_node.start_mark,
                    (*path, key),
                    f"`{said(path)}`: expected {shape.key.expected}, found {quoted(key)}",
                )
                continue
            value = self.value(shape.value, value_node, (*path, key))
            if value is not _ABSENT:
                values[key] = value
        return values

    def section(self, shape: SectionShape, node: yaml.Node, path: Path) -> Section:
        values: dict[str, Any] = {}
        missing = {name for name, field in shape.fields.items() if field.required}
        if not isinstance(node, yaml.MappingNode):
            missing.clear()  # said already: the whole section is not one
        for key, key_node, value_node in self.pairs(node, path):
            field = shape.fields.get(key)
            if field is None:
                self.complain(key_node.start_mark, (*path, key), _unknown(key, path, shape))
                near = nearest(key, missing)
                missing.discard(near or "")
                continue
            value = self.field(field, value_node, (*path, key))
            if value is not _ABSENT:
                values[key] = value
                missing.discard(key)
            if (*path, key) in self.broken and not field.required:
                values[key] = field.default
        for name in shape.fields:
            field = shape.fields[name]
            if field.required and name not in values:
                if name in missing:
                    self.complain(
                        node.start_mark, (*path, name), f"`{said((*path, name))}` is missing: write `{name}: …` here"
                    )
                self.broken.add((*path, name))
                values[name] = _placeholder(field.shape)
        return shape.cls(**values)

    def field(self, field: FieldShape, node: yaml.Node, path: Path) -> Any:
        """The value of one key. `null` is a value where None is one; an empty `key:` only where it is unambiguous."""
        if _is_null(node):
            self.places.setdefault(path, node.start_mark)
            if field.optional and node.value:
                return None
            if isinstance(field.shape, SectionShape):
                if not field.optional:
                    return _ABSENT
                hint = "`{}` means every default; without the line there is none"
                return self.wrong("keys below it", node, path, None, hint)
        return self.value(field.shape, node, path)

    def pairs(self, node: yaml.Node, path: Path) -> Iterable[tuple[str, yaml.Node, yaml.Node]]:
        """(key, its node, the value's node) of a mapping, each key once."""
        if not isinstance(node, yaml.MappingNode):
            self.wrong("`key: value` lines", node, path, None)
            return
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            mark = key_node.start_mark
            if not isinstance(key_node, yaml.ScalarNode):
                self.complain(mark, path, f"a key is a plain word, found {_kind_of(key_node)}")
            elif key_node.value == "<<" and key_node.style is None:
                self.complain(mark, (*path, "<<"), "merge keys (`<<`) are not supported: write the keys out")
            elif key_node.value in seen:
                first = seen[key_node.value]
                self.complain(
                    mark,
                    (*path, key_node.value),
                    f"`{said((*path, key_node.value))}` is given twice, first on line {first}",
                )
            else:
                seen[key_node.value] = mark.line + 1
                yield key_node.value, key_node, value_node


def said(path: Path) -> str:
    """A path as people write it: `agent.capabilities[0].timeout`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return quoted(text)[1:-1]


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in _NULLS


def _kind_of(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "`key: value` lines"
    if _is_null(node):
        return "nothing"
    if isinstance(node, yaml.ScalarNode) and node.style is None:
        return quoted(node.value)
    return f"the text {quoted(node.value)}"


def _unknown(key: str, path: Path, shape: SectionShape) -> str:
    below = f" in `{said(path)}`" if path else ""
    near = nearest(key, shape.fields)
    if near:
        return f"unknown key {quoted(key)}{below}, did you mean `{near}`?"
    return f"unknown key {quoted(key)}{below}; known are {', '.join(shape.fields)}"


def _placeholder(shape: Shape) -> Any:
    match shape:
        case ScalarShape():
            return shape.kind.placeholder
        case ListShape():
            return []
        case MapShape():
            return {}
        case SectionShape():
            return shape.cls(**{name: _placeholder(f.shape) for name, f in shape.fields.items() if f.required})
