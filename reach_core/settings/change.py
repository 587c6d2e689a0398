"""What differs between two configurations, and the one in force after those changes that can be made while running."""

from collections.abc import Collection
from typing import TypeVar

import msgspec

from reach_core.settings.shape import Section, SectionShape, section_shape

S = TypeVar("S", bound=Section)


def adopt(before: S, after: S, live: Collection[str]) -> tuple[S, list[str], list[str]]:
    """`before` with those keys of `after` that `live` names (`log.level`, or `drain` for all below it).

    Besides it the dotted keys that took effect, and those that differ as well but need a restart.
    """
    return _adopt(before, after, frozenset(live), "")


def _adopt(before: S, after: S, live: frozenset[str], above: str) -> tuple[S, list[str], list[str]]:
    taken: dict[str, object] = {}
    changed: list[str] = []
    left: list[str] = []
    for name, field in section_shape(type(before)).fields.items():
        key, attribute = f"{above}{name}", field.info.name
        was, is_now = getattr(before, attribute), getattr(after, attribute)
        if was == is_now:
            continue
        if key in live:
            taken[attribute] = is_now
            changed.append(key)
        elif isinstance(field.shape, SectionShape) and was is not None and is_now is not None:
            taken[attribute], changed_below, left_below = _adopt(was, is_now, live, f"{key}.")
            changed += changed_below
            left += left_below
        else:
            left.append(key)
    return msgspec.structs.replace(before, **taken), changed, left
