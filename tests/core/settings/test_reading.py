"""Walking YAML and types side by side; the daemons' own files are tested with their configurations."""

from collections.abc import Iterable
from typing import Annotated

import msgspec
import pytest

from reach_core.settings.complaint import MAX_COMPLAINTS, ConfigError
from reach_core.settings.reading import Fault, Path, read_settings, said
from reach_core.settings.scalar import Duration, Text
from reach_core.settings.shape import OneOrMany, Section


class Part(Section, frozen=True, kw_only=True):
    """A part."""

    name: Text
    size: int = 1


class Whole(Section, frozen=True, kw_only=True):
    """The whole."""

    parts: list[Part] = msgspec.field(default_factory=list)
    one: Part | None = None
    plain: Part = msgspec.field(default_factory=lambda: Part(name="default"))
    tags: dict[Text, Annotated[list[Text], OneOrMany]] = msgspec.field(default_factory=dict)
    wait: Duration | None = None
    count: int = 3


def read(text: str, **env: str) -> Whole:
    return read_settings(text, Whole, file="f", env=env)


def complaints(text: str, **more: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_settings(text, Whole, file="f", env={}, **more)  # type: ignore[arg-type]
    return [str(complaint) for complaint in caught.value.complaints]


def test_what_is_not_said_has_its_default() -> None:
    assert read("{}") == Whole()


def test_values_of_every_shape() -> None:
    whole = read("parts: [{name: a}, {name: b, size: 2}]\none: {name: c}\ntags: {x: 1, y: [2, 3]}\nwait: 1m")
    assert [(part.name, part.size) for part in whole.parts] == [("a", 1), ("b", 2)]
    assert whole.one == Part(name="c")
    assert whole.tags == {"x": ["1"], "y": ["2", "3"]}
    assert whole.wait == 60.0


@pytest.mark.parametrize("text", ["parts:", "tags:\nparts: ~", "plain:", "one: null", "wait: ~", "count: ${N:-}"])
def test_nothing_stands_for_the_default_where_it_can_mean_only_that(text: str) -> None:
    assert read(text) == Whole()


@pytest.mark.parametrize("text", ["one:", "wait:", "count:", "count: ~", "parts: [~]"])
def test_nothing_is_refused_elsewhere(text: str) -> None:
    assert "found nothing" in complaints(text)[0]


def test_anchors_and_aliases_work_within_bounds() -> None:
    whole = read("parts: [&a {name: x}, *a]\none: *a")
    assert whole.parts == [Part(name="x")] * 2
    assert whole.one == Part(name="x")


def test_the_walk_goes_on_after_a_mistake() -> None:
    found = complaints("parts: [1, {size: x}, {name: ok, zzz: 1}]\ncount: []\none: {nam: a}")
    assert [line.split(": ")[0] for line in found] == ["f:1:9", "f:1:12", "f:1:19", "f:1:34", "f:2:8", "f:3:7"]


def test_complaints_are_bounded() -> None:
    assert len(complaints("\n".join(f"k{n}: 1" for n in range(1000)))) == MAX_COMPLAINTS


def test_values_are_bounded_with_aliases_counted() -> None:
    text = "parts: &a [" + ", ".join(["{name: x}"] * 1000) + "]\ntags:\n"
    levels = "".join(f"  t{n}: &t{n} [" + ", ".join(["x"] * 600) + "]\n" for n in range(1))
    text += levels + "".join(f"  u{n}: *t0\n" for n in range(100))
    assert "more than 50000 values, aliases counted" in complaints(text)[0]


def fault(path: Path, *compared: Path) -> object:
    def check(whole: Whole) -> Iterable[Fault]:
        yield Fault(path, "does not work", compared)

    return check


def test_a_check_is_placed_at_its_setting() -> None:
    assert complaints("count: 1\nwait: 2s", check=fault(("wait",))) == ["f:2:7: `wait`: does not work"]


def test_a_check_of_an_absent_setting_is_placed_at_the_one_it_was_compared_with() -> None:
    assert complaints("count: 1", check=fault(("wait",), ("count",))) == ["f:1:8: `wait`: does not work"]
    assert complaints("plain:\n  name: x", check=fault(("plain", "size"))) == ["f:2:3: `plain.size`: does not work"]
    assert complaints("count: 1", check=fault(("wait",))) == ["f:1:1: `wait`: does not work"]


def test_a_check_of_what_is_wrong_already_stays_silent() -> None:
    assert len(complaints("wait: x", check=fault(("wait",)))) == 1
    assert len(complaints("wait: x\ncount: 1", check=fault(("count",), ("wait",)))) == 1
    assert len(complaints("parts: x\ncount: 1", check=fault(("parts", 0, "name")))) == 1


def test_paths_are_said_as_people_write_them() -> None:
    assert said(("agent", "capabilities", 0, "timeout")) == "agent.capabilities[0].timeout"
    assert said(("a\n",)) == "a\\n"
