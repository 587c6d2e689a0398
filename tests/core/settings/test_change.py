"""Which of the settings that differ are taken over while running."""

import msgspec

from reach_core.settings.change import adopt
from reach_sidecar.config import AgentConfig, DrainConfig, LogConfig, SidecarConfig

LIVE = ("agent.weight", "drain", "log.level")


def config(**sections: object) -> SidecarConfig:
    return SidecarConfig(**{"agent": AgentConfig(id="a"), **sections})


def test_nothing_differs() -> None:
    assert adopt(config(), config(), LIVE) == (config(), [], [])


def test_what_can_change_changes_and_the_rest_is_named() -> None:
    after = config(agent=AgentConfig(id="b", weight=2.0), drain=DrainConfig(grace=1.0), default_timeout=5.0,
                   log=LogConfig(level="debug", format="text"))
    settings, changed, left = adopt(config(), after, LIVE)
    assert settings == config(agent=AgentConfig(id="a", weight=2.0), drain=DrainConfig(grace=1.0),
                              log=LogConfig(level="debug"))
    assert changed == ["agent.weight", "log.level", "drain"]
    assert left == ["agent.id", "default_timeout", "log.format"]


def test_what_was_left_is_still_to_do_the_next_time() -> None:
    after = config(default_timeout=5.0)
    settings, _, left = adopt(config(), after, LIVE)
    assert left == ["default_timeout"]
    assert adopt(settings, after, LIVE)[2] == ["default_timeout"]
    assert adopt(settings, config(), LIVE) == (config(), [], [])


def test_a_section_that_comes_or_goes_is_one_change() -> None:
    without = config(agent=None)
    assert adopt(config(), without, LIVE) == (config(), [], ["agent"])
    assert adopt(without, config(), LIVE) == (without, [], ["agent"])
    assert adopt(without, config(), ("agent",)) == (config(), ["agent"], [])


def test_what_the_loader_fills_in_is_no_setting() -> None:
    before = msgspec.structs.replace(config(), id="a")
    assert adopt(before, config(), LIVE) == (before, [], [])
