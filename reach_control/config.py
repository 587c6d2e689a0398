"""The typed sections of `control.yaml`, and how they are loaded.

Field names are the YAML's keys; durations are float seconds, sizes int bytes, addresses `host:port`.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from reach_core.address import is_loopback, split_address
from reach_core.names import normalise
from reach_core.settings.log import LogConfig
from reach_core.settings.reading import Fault, read_settings
from reach_core.settings.scalar import (
    AgentId,
    Between,
    CapabilityName,
    Duration,
    FilePath,
    ListenAddress,
    ServerUrl,
)
from reach_core.settings.shape import Section
from reach_core.units import format_duration
from reach_os.settings_file import read_settings_file
from reach_os.state_dir import default_state_dir

_DAY_S = 86400.0


class ControlListenConfig(Section, frozen=True, kw_only=True):
    """Where this control node listens. Port 0 takes any free one."""

    api: Annotated[ListenAddress, "For sidecars, other control nodes and operators."] = "127.0.0.1:7080"
    admin: Annotated[ListenAddress, "For the operator, Prometheus and the dashboard, this machine only."] = (
        "127.0.0.1:7082"
    )
    probe: Annotated[
        ListenAddress | None,
        "For the kubelet and Prometheus: /livez, /readyz, /metrics and nothing else. Off by default.",
    ] = None


class LeaseConfig(Section, frozen=True, kw_only=True):
    """How long an agent counts as reachable without a sign of life."""

    heartbeat: Annotated[Duration, Between(0.05, 3600), "How often sidecars renew."] = 10.0
    ttl: Annotated[Duration, Between(0.15, _DAY_S), "After this long without renewal an agent is suspect."] = 30.0
    down: Annotated[Duration, Between(0.15, _DAY_S), "After this long it is down."] = 60.0
    forget: Annotated[Duration, Between(0.15, 30 * _DAY_S), "After this long it is forgotten."] = 600.0
    cooldown: Annotated[Duration, Between(0, _DAY_S), "How long an agent that keeps lapsing is held back."] = 30.0


class ControlConfig(Section, frozen=True, kw_only=True):
    """Configuration of one control node."""

    cluster: Annotated[AgentId, "Name of the mesh; nodes of another one are refused."] = "local"
    listen: Annotated[ControlListenConfig, "Where it listens."] = msgspec.field(default_factory=ControlListenConfig)
    peers: Annotated[list[ServerUrl], "The other control nodes."] = msgspec.field(default_factory=list)
    lease: Annotated[LeaseConfig, "Leases of agents."] = msgspec.field(default_factory=LeaseConfig)
    aliases: Annotated[
        dict[CapabilityName, list[CapabilityName]], "Other names of capabilities, for the whole mesh."
    ] = msgspec.field(default_factory=dict)
    state_dir: Annotated[
        FilePath | None,
        "Where it keeps its state. Without it: $STATE_DIRECTORY, else /var/lib/reach-control for root, "
        "else $XDG_STATE_HOME/reach/control (~/.local/state/reach/control).",
    ] = None
    log: Annotated[LogConfig, "Logging."] = msgspec.field(default_factory=LogConfig)
    insecure: Annotated[bool, "Listen beyond loopback without TLS. For closed networks and trials only."] = False


def check(config: ControlConfig) -> Iterable[Fault]:
    """What cannot work although each setting alone is right."""
    yield from _lease(config.lease)
    yield from _aliases(config.aliases)
    taken: dict[int, str] = {}
    for name in ("api", "admin", "probe"):
        address: str | None = getattr(config.listen, name)
        if address is None:
            continue
        host, port = split_address(address)
        path = ("listen", name)
        if port and port in taken:
            yield Fault(path, f"port {port} is that of `listen.{taken[port]}` already", (("listen", taken[port]),))
        taken.setdefault(port, name)
        if name != "probe" and not is_loopback(host) and not config.insecure:
            yield Fault(
                path,
                f"`{address}` is reachable from other machines without TLS: "
                "listen on 127.0.0.1, or write `insecure: true`",
                (("insecure",),),
            )


def _lease(lease: LeaseConfig) -> Iterable[Fault]:
    path = ("lease", "ttl")
    if round(lease.ttl * 1000) < round(3 * lease.heartbeat * 1000):  # 3 × 0.2 is more than 0.6 in floats
        least = format_duration(3 * lease.heartbeat)
        yield Fault(
            path,
            f"{format_duration(lease.ttl)} is less than three heartbeats, so one lost message would count as a death: "
            f"write at least {least}, or a shorter `lease.heartbeat`",
            (("lease", "heartbeat"),),
        )
    for earlier, later in (("ttl", "down"), ("down", "forget")):
        before, after = getattr(lease, earlier), getattr(lease, later)
        if after <= before:
            yield Fault(
                ("lease", later),
                f"{format_duration(after)} is not more than `lease.{earlier}` ({format_duration(before)})",
                (("lease", earlier),),
            )


def _aliases(aliases: Mapping[str, list[str]]) -> Iterable[Fault]:
    owners: dict[str, str] = {}
    names: dict[str, str] = {}
    for name in aliases:
        if normalise(name) in names:
            yield Fault(("aliases", name), f"is the same name as `{names[normalise(name)]}`")
        names.setdefault(normalise(name), name)
    for name, others in aliases.items():
        for n, other in enumerate(others):
            plain = normalise(other)
            if not plain:
                continue
            if plain in names:
                yield Fault(("aliases", name, n), f"`{other}` is itself a capability with aliases here")
            elif plain in owners:
                yield Fault(("aliases", name, n), f"`{other}` is an alias of `{owners[plain]}` already")
            owners.setdefault(plain, name)


def parse_control(text: str, file: str, env: Mapping[str, str]) -> ControlConfig:
    """The configuration in `text`, with the state directory filled in. Raises ConfigError with every complaint."""
    return complete(read_settings(text, ControlConfig, file=file, env=env, check=check), env)


def load_control(path: str | Path, env: Mapping[str, str] | None = None) -> ControlConfig:
    """The configuration in the file `path`. Raises ConfigError with every complaint."""
    return parse_control(read_settings_file(path), str(path), os.environ if env is None else env)


def complete(config: ControlConfig, env: Mapping[str, str], *, root: bool | None = None) -> ControlConfig:
    """`config` with the state directory that this machine suggests, if it names none (`root`: as root, or not)."""
    if config.state_dir is not None:
        return config
    state_dir = default_state_dir("/var/lib/reach-control", "control", env, root=root)
    return msgspec.structs.replace(config, state_dir=state_dir)
