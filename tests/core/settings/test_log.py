"""The `log` section."""

import pytest

from reach_core.settings.complaint import ConfigError
from reach_core.settings.log import LogConfig
from reach_core.settings.reading import read_settings


def test_all_of_it() -> None:
    text = "{level: debug, format: text, keep: 90m, max_size: 1GiB}"
    assert read_settings(text, LogConfig, file="f", env={}) == LogConfig(
        level="debug", format="text", keep=5400.0, max_size=1 << 30
    )


def test_bounds() -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings("{keep: 0s, max_size: 1KiB}", LogConfig, file="f", env={})
    assert [c.message for c in caught.value.complaints] == [
        "`keep`: expected more than 0ms, found `0s`",
        "`max_size`: expected at least 1MiB, found `1KiB`",
    ]


@pytest.mark.parametrize(("written", "level"), [("warn", "warn"), ("warning", "warn"), ("error", "error")])
def test_one_word_for_each_level(written: str, level: str) -> None:
    assert read_settings(f"level: {written}", LogConfig, file="log.yaml", env={}).level == level
