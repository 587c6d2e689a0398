"""What the type of a setting allows, in a form that reading, schema and display share."""

from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from reach_core.settings.scalar import FLAG, INTEGER, NUMBER, TEXT, Between, Scalar, one_of


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A group of settings: its docstring and its fields' texts are what the JSON Schema and `reach config` say."""


class Derived:
    """Marks a field that the loader fills in: no key of the file, and not shown."""


class OneOrMany:
    """Marks a list that may also be written as its only item."""


@dataclass(frozen=True, slots=True)
class ScalarShape:
    """A single value, perhaps with bounds."""

    kind: Scalar
    bounds: Between | None = None


@dataclass(frozen=True, slots=True)
class ListShape:
    """A list of `item`; with `or_one` a lone item counts as a list of one."""

    item: "Shape"
    or_one: bool = False


@dataclass(frozen=True, slots=True)
class MapShape:
    """Free keys, each with a `value`."""

    key: Scalar
    value: "Shape"


@dataclass(frozen=True, slots=True)
class SectionShape:
    """Fixed keys, those of the struct `cls`."""

    cls: type[Section]
    fields: dict[str, "FieldShape"]


Shape = ScalarShape | ListShape | MapShape | SectionShape


@dataclass(frozen=True, slots=True)
class FieldShape:
    """One key of a section. `optional`: None is a value, and is what its absence means."""

    shape: Shape
    text: str
    optional: bool
    required: bool
    info: msgspec.structs.FieldInfo

    @property
    def default(self) -> Any:
        """The value when the key is absent (not for required ones)."""
        if self.info.default_factory is not msgspec.NODEFAULT:
            return self.info.default_factory()
        return self.info.default


@cache
def section_shape(cls: type[Section]) -> SectionShape:
    """The shape of a section and of everything below it. Raises TypeError for a type that settings cannot have."""
    settings = [info for info in msgspec.structs.fields(cls) if Derived not in _unwrap(info.type)[1]]
    return SectionShape(cls, {info.encode_name: _field(info) for info in settings})


def _field(info: msgspec.structs.FieldInfo) -> FieldShape:
    inner, notes = _unwrap(info.type)
    text = " ".join(note for note in notes if isinstance(note, str))
    optional = False
    if get_origin(inner) in (Union, UnionType):
        arms = [arm for arm in get_args(inner) if arm is not NoneType]
        optional = len(arms) < len(get_args(inner))
        if len(arms) != 1:
            raise TypeError(f"{info.name}: a setting has one type")
        inner, more = _unwrap(arms[0])
        notes = (*more, *notes)
    return FieldShape(_shape(inner, notes), text, optional, info.required, info)


def _unwrap(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        return inner, tuple(notes)
    return annotation, ()


def _shape(inner: Any, notes: tuple[Any, ...]) -> Shape:
    origin, args = get_origin(inner), get_args(inner)
    if origin is list:
        return ListShape(_shape(*_unwrap(args[0])), any(note is OneOrMany for note in notes))
    if origin is dict:
        key = _shape(*_unwrap(args[0]))
        assert isinstance(key, ScalarShape)
        return MapShape(key.kind, _shape(*_unwrap(args[1])))
    if origin is Literal:
        return ScalarShape(one_of(*args))
    if isinstance(inner, type) and issubclass(inner, Section):
        return section_shape(inner)
    kind = next((note for note in notes if isinstance(note, Scalar)), None)
    kind = kind or {bool: FLAG, int: INTEGER, float: NUMBER, str: TEXT}.get(inner)
    if kind is None:
        raise TypeError(f"{inner!r} is not a type of a setting")
    return ScalarShape(kind, next((note for note in notes if isinstance(note, Between)), None))
