"""The settings in effect as plain data, the way they would be written, with secrets hidden."""

import re
from typing import Any

from reach_core.settings.shape import ListShape, MapShape, ScalarShape, Section, SectionShape, Shape, section_shape

HIDDEN = "(hidden)"
_SECRET = re.compile(r"(?:^|[_.-])(?:token|secret|password|passwd|credentials?|api[_-]?key)$", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def show(settings: Section) -> dict[str, Any]:
    """`settings` as `reach config show` prints them: durations and sizes in their units, secrets as `(hidden)`.

    Hidden are values of keys called token, secret, password and the like, and whatever stands before the `@` of a URL.
    A path of a file that holds a secret (`token_file`) is no secret.
    """
    shown: dict[str, Any] = plain(section_shape(type(settings)), settings)
    return shown


def plain(shape: Shape, value: Any, key: str = "") -> Any:
    """`value` as JSON and YAML know it."""
    if value is None:
        return None
    if _SECRET.search(key):
        return HIDDEN
    match shape:
        case ScalarShape():
            written = shape.kind.render(value)
            return _USERINFO.sub("***", written) if isinstance(written, str) else written
        case ListShape():
            return [plain(shape.item, item) for item in value]
        case MapShape():
            return {name: plain(shape.value, item, name) for name, item in value.items()}
        case SectionShape():
            return {
                name: plain(field.shape, getattr(value, field.info.name), name) for name, field in shape.fields.items()
            }
