"""`sidecar.yaml` from disk to a configuration that is complete and checked."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from reach_core.settings.complaint import Complaint, ConfigError
from reach_core.settings.document import MAX_BYTES, decode, unreadable
from reach_core.settings.log import LogConfig
from reach_core.settings.reading import read_settings
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
    "default_state_dir",
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
    return parse_sidecar(_read(str(path)), str(path), os.environ if env is None else env)


def load_sidecar(path: str | Path, env: Mapping[str, str] | None = None) -> SidecarConfig:
    """The configuration in the file `path`, complete. Raises ConfigError with every complaint."""
    return complete(read_sidecar(path, env), os.environ if env is None else env)


def complete(config: SidecarConfig, env: Mapping[str, str], *, root: bool | None = None) -> SidecarConfig:
    """`config` with the defaults that depend on the machine: ids and the state directory.

    `root` (default: does this process run as root) decides between /var/lib/reach and the user's own state directory.
    """
    agent = config.agent
    if agent is None:
        config = msgspec.structs.replace(config, id=f"gateway-{host_id()}"[:63], provisional=True)
    elif agent.id is None:
        agent = msgspec.structs.replace(agent, id=host_id())
        config = msgspec.structs.replace(config, agent=agent, id=host_id(), provisional=True)
    elif not config.provisional:
        config = msgspec.structs.replace(config, id=agent.id or "")
    if config.state_dir is None:
        config = msgspec.structs.replace(config, state_dir=default_state_dir(config.id, env, root=root))
    return config


def default_state_dir(sidecar_id: str, env: Mapping[str, str], *, root: bool | None = None) -> str:
    """Where a sidecar keeps its state when nothing says where. systemd sets $STATE_DIRECTORY (perhaps several)."""
    if env.get("STATE_DIRECTORY"):
        return env["STATE_DIRECTORY"].split(":")[0]
    if root if root is not None else os.geteuid() == 0:
        return "/var/lib/reach"
    state = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "reach", sidecar_id)


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise unreadable(error, path) from None
    return decode(data, path)
