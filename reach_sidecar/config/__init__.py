"""The sidecar's configuration: its sections, the checks between them, loading, and the flags of `reach run`."""

from reach_core.settings import Complaint, ConfigError, LogConfig
from reach_sidecar.config.agent import AgentConfig, CapabilityConfig, HealthConfig, ProbeConfig
from reach_sidecar.config.flags import sidecar_from_flags
from reach_sidecar.config.loading import complete, load_sidecar, parse_sidecar, read_sidecar
from reach_sidecar.config.sections import (
    DedupConfig,
    DrainConfig,
    JoinConfig,
    LimitsConfig,
    ListenConfig,
    SidecarConfig,
    WeightsConfig,
)

__all__ = [
    "AgentConfig",
    "CapabilityConfig",
    "Complaint",
    "ConfigError",
    "DedupConfig",
    "DrainConfig",
    "HealthConfig",
    "JoinConfig",
    "LimitsConfig",
    "ListenConfig",
    "LogConfig",
    "ProbeConfig",
    "SidecarConfig",
    "WeightsConfig",
    "complete",
    "load_sidecar",
    "parse_sidecar",
    "read_sidecar",
    "sidecar_from_flags",
]
