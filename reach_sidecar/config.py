"""`sidecar.yaml` from disk to a configuration that is complete and checked."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from reach_core.settings.complaint import Complaint, ConfigError
from reach_core.settings.log import LogConfig
from reach_core.settings.reading import read_settings
from reach_os.settings_file import read_settings_file
from reach_os.state_dir import default_state_dir
from reach_sidecar.config_agent import AgentConfig, CapabilityConfig, HealthConfig, ProbeConfig
from reach_sidecar.config_checks import check
from reach_sidecar.config_flags import sidecar_from_flags
from reach_sidecar.config_sections import (
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
    "host_id",
    "load_sidecar",
    "parse_sidecar",
    "read_sidecar",
    "sidecar_from_flags",
]


def host_id() -> str:
    """This machine's host name as an agent id."""
    return re.sub(r"[^A-Za-z0-9._-]+|^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", socket.gethostname()[:63]) or "localhost"


def parse_sidecar(text: str, file: str, env: Mapping[str, str]) -> SidecarConfig:
    """The configuration in `text`, checked but not yet complete. Raises ConfigError with every complaint."""
    return read_settings(text, SidecarConfig, file=file, env=env, check=check)


def read_sidecar(path: str | Path, env: Mapping[str, str] | None = None) -> SidecarConfig:
    """The configuration in the file `path`, checked but not yet complete (`reach run` lays its flags over it)."""
    return parse_sidecar(read_settings_file(path), str(path), os.environ if env is None else env)


def load_sidecar(path: str | Path, env: Mapping[str, str] | None = None) -> SidecarConfig:
    """The configuration in the file `path`, complete. Raises ConfigError with every complaint."""
    return complete(read_sidecar(path, env), os.environ if env is None else env)


def complete(config: SidecarConfig, env: Mapping[str, str], *, root: bool | None = None) -> SidecarConfig:
    """`config` with the defaults that depend on the machine: ids and the state directory (`root`: as root, or not)."""
    agent = config.agent
    if agent is None:
        config = msgspec.structs.replace(config, id=f"gateway-{host_id()}"[:63], provisional=True)
    elif agent.id is None:
        agent = msgspec.structs.replace(agent, id=host_id())
        config = msgspec.structs.replace(config, agent=agent, id=host_id(), provisional=True)
    elif not config.provisional:
        config = msgspec.structs.replace(config, id=agent.id or "")
    if config.state_dir is None:
        state_dir = default_state_dir("/var/lib/reach", config.id, env, root=root)
        config = msgspec.structs.replace(config, state_dir=state_dir)
    return config
