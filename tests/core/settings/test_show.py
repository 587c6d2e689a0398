"""The settings in effect, secrets hidden."""

from typing import Annotated

import msgspec

from reach_core.settings.scalar import Duration, FilePath, ServerUrl, Size, Text
from reach_core.settings.shape import Derived, Section
from reach_core.settings.show import HIDDEN, show


class Shown(Section, frozen=True, kw_only=True):
    """Everything there is to show."""

    wait: Duration = 90.0
    room: Size = 65536
    token: Text | None = None
    api_token: Text = "hush"
    db_password: Text = "hush"
    token_file: FilePath = "/run/token"
    servers: list[ServerUrl] = msgspec.field(default_factory=lambda: ["http://me:hush@h:1"])
    free: dict[Text, Text] = msgspec.field(default_factory=lambda: {"secret": "hush", "open": "x"})
    made: Annotated[str, Derived] = "made"


def test_show() -> None:
    assert show(Shown()) == {
        "wait": "90s",
        "room": "64KiB",
        "token": None,
        "api_token": HIDDEN,
        "db_password": HIDDEN,
        "token_file": "/run/token",
        "servers": ["http://***@h:1"],
        "free": {"secret": HIDDEN, "open": "x"},
    }
