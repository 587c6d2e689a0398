"""Settings that may be written already and do nothing yet: whoever relies on one has to be told."""

from reach_sidecar.config_sections import SidecarConfig


def without_effect(config: SidecarConfig) -> list[str]:
    """The keys that are set and have no effect in this version."""
    found = ["join"] if config.join is not None else []
    if config.agent is not None and config.agent.probe is not None:
        found.append("agent.probe")
    return found
