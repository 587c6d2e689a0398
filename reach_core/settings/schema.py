"""JSON Schema (draft 2020-12) of a section, for editors: made from the types that read the file."""

from typing import Any

from reach_core.settings.scalar import VARIABLE
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
from reach_core.settings.show import plain

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(cls: type[Section], title: str) -> dict[str, Any]:
    """The schema of a whole file whose top level is `cls`, with descriptions, defaults and patterns."""
    definitions: dict[str, Any] = {}
    root = _section(section_shape(cls), definitions)
    return {"$schema": DIALECT, "title": title, **root, "$defs": dict(sorted(definitions.items()))}


def _section(shape: SectionShape, definitions: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "description": " ".join((shape.cls.__doc__ or "").split()),
        "properties": {name: _field(field, definitions) for name, field in shape.fields.items()},
        "additionalProperties": False,
    }
    required = [name for name, field in shape.fields.items() if field.required]
    return {**schema, "required": required} if required else schema


def _field(field: FieldShape, definitions: dict[str, Any]) -> dict[str, Any]:
    schema = _any(field.shape, definitions)
    if field.optional or not isinstance(field.shape, ScalarShape):
        schema = {"anyOf": [schema, {"type": "null"}]}
    if field.text:
        schema["description"] = field.text
    if not field.required:
        schema["default"] = plain(field.shape, field.default)
    return schema


def _any(shape: Shape, definitions: dict[str, Any]) -> dict[str, Any]:
    match shape:
        case ScalarShape():
            return _scalar(shape)
        case ListShape():
            item = _any(shape.item, definitions)
            several = {"type": "array", "items": item}
            return {"anyOf": [item, several]} if shape.or_one else several
        case MapShape():
            value = _any(shape.value, definitions)
            return {"type": "object", "propertyNames": shape.key.schema, "additionalProperties": value}
        case SectionShape():
            name = shape.cls.__name__
            if name not in definitions:
                definitions[name] = {}
                definitions[name] = _section(shape, definitions)
            return {"$ref": f"#/$defs/{name}"}


def _scalar(shape: ScalarShape) -> dict[str, Any]:
    schema = dict(shape.kind.schema)
    bounds = shape.bounds
    if bounds is not None and shape.kind.plain_only:
        schema["exclusiveMinimum" if bounds.above else "minimum"] = bounds.low
        schema["maximum"] = bounds.high
    # Any value may come from the environment instead.
    return {"anyOf": [schema, {"type": "string", "pattern": VARIABLE}]}
