"""Settings that may be written already and do nothing yet: whoever relies on one has to be told."""

import msgspec

from reach_sidecar.config_agent import AgentConfig, CapabilityConfig
from reach_sidecar.config_sections import SidecarConfig, WeightsConfig

_CAPABILITY = ("adaptive", "key", "outcome", "fallback")
_WEIGHTS = ("match", "rtt", "prefer", "fail")
_SECTIONS = ("dedup", "join")


def without_effect(config: SidecarConfig) -> list[str]:
    """The keys that are set to something else than their default and have no effect in this version."""
    found = [f"weights.{name}" for name in _differing(config.weights, WeightsConfig(), _WEIGHTS)]
    found += _differing(config, SidecarConfig(), _SECTIONS)
    if config.agent is not None:
        found += _of_agent(config.agent)
    return found


def _of_agent(agent: AgentConfig) -> list[str]:
    found = ["agent.probe"] if agent.probe is not None else []
    for number, one in enumerate(agent.capabilities):
        names = _differing(one, CapabilityConfig(name=one.name), _CAPABILITY)
        if one.dedup == "durable":
            names.append("dedup")
        found += [f"agent.capabilities[{number}].{name}" for name in names]
    return found


def _differing(one: msgspec.Struct, other: msgspec.Struct, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(one, name) != getattr(other, name)]
