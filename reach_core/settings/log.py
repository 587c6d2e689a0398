"""The `log` section, the same in both daemons."""

from typing import Annotated, Literal

from reach_core.settings.scalar import Between, Duration, Size, one_of
from reach_core.settings.shape import Section

Level = Annotated[str, one_of("debug", "info", "warn", "error", spellings={"warning": "warn"})]


class LogConfig(Section, frozen=True, kw_only=True):
    """What is logged on stderr and kept in the log store that `reach logs` asks."""

    level: Annotated[Level, "Lines below this level are neither written nor kept."] = "info"
    format: Annotated[
        Literal["json", "text"], "How lines look on stderr: one JSON object each, or text for people."
    ] = "json"
    keep: Annotated[Duration, Between(0, 366 * 86400.0, above=True), "How long the log store keeps a line."] = (
        24 * 3600.0
    )
    max_size: Annotated[
        Size, Between(1 << 20, 1 << 50), "Size of the log store above which the oldest lines are dropped."
    ] = 256 << 20
