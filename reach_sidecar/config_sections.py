"""The typed sections of `sidecar.yaml`. Field names are the YAML's keys.

Durations are float seconds, sizes int bytes, addresses `host:port`.
"""

from typing import Annotated, Literal

import msgspec

from reach_core.settings.log import LogConfig
from reach_core.settings.scalar import (
    Between,
    Duration,
    FilePath,
    HostName,
    ListenAddress,
    Origin,
    ReachableAddress,
    ServerUrl,
    Size,
)
from reach_core.settings.shape import Derived, Section
from reach_sidecar.config_agent import AgentConfig

_DAY_S = 86400.0


class ListenConfig(Section, frozen=True, kw_only=True):
    """Where this sidecar listens. Port 0 takes any free one."""

    outbound: Annotated[ListenAddress, "For the local agent's calls, plain HTTP."] = "127.0.0.1:7070"
    mesh: Annotated[ListenAddress, "For other sidecars and control nodes; 0.0.0.0:7071 in production."] = (
        "127.0.0.1:7071"
    )
    admin: Annotated[ListenAddress, "For the operator and Prometheus, this machine only."] = "127.0.0.1:7072"
    probe: Annotated[
        ListenAddress | None,
        "For the kubelet and Prometheus: /livez, /readyz, /metrics and nothing else. Off by default.",
    ] = None


class JoinConfig(Section, frozen=True, kw_only=True):
    """How this sidecar proves that it may join the mesh."""

    token_file: Annotated[FilePath, "The file that holds the join token."]


class DrainConfig(Section, frozen=True, kw_only=True):
    """How this sidecar stops."""

    wait: Annotated[Duration, Between(0, 3600), "How long it still takes calls after it said that it is leaving."] = 5.0
    grace: Annotated[Duration, Between(0, _DAY_S), "How long running calls may go on after that."] = 30.0


class DedupConfig(Section, frozen=True, kw_only=True):
    """How long answers are remembered, counted from their completion."""

    memory: Annotated[Size, Between(1 << 20, 1 << 40), "Size of the store in memory."] = 64 << 20
    keep: Annotated[Duration, Between(1, 366 * _DAY_S), "Answers of `dedup: memory`, for keys that agents gave."] = (
        600.0
    )
    keep_durable: Annotated[Duration, Between(1, 366 * _DAY_S), "Answers of `dedup: durable`."] = _DAY_S


class WeightsConfig(Section, frozen=True, kw_only=True):
    """What counts how much when one of two agents is picked; each term is between 0 and 1."""

    match: Annotated[float, Between(0, 1000), "How well the capability matches."] = 1.0
    load: Annotated[float, Between(0, 1000), "How little the agent has to do."] = 0.6
    rtt: Annotated[float, Between(0, 1000), "How near it is."] = 0.2
    prefer: Annotated[float, Between(0, 1000), "How many of the preferred attributes it has."] = 0.4
    fail: Annotated[float, Between(0, 1000), "How often calls to it failed lately (subtracted)."] = 0.4


class LimitsConfig(Section, frozen=True, kw_only=True):
    """Bounds on what a connection may ask for."""

    head: Annotated[Size, Between(1024, 16 << 20), "The header block of a request or an answer."] = 64 << 10
    url: Annotated[Size, Between(256, 1 << 20), "A request's URL."] = 16 << 10
    head_timeout: Annotated[Duration, Between(0.1, 600), "The time a client may take to send its head."] = 10.0
    connections: Annotated[int, Between(1, 1_000_000), "Connections open at the same time on one listener."] = 10_000


class SidecarConfig(Section, frozen=True, kw_only=True):
    """Configuration of one sidecar."""

    agent: Annotated[AgentConfig | None, "The agent beside it; without this section it is a gateway."] = None
    control: Annotated[list[ServerUrl], "The control nodes, all of them."] = msgspec.field(
        default_factory=lambda: ["http://127.0.0.1:7080"]
    )
    listen: Annotated[ListenConfig, "Where it listens."] = msgspec.field(default_factory=ListenConfig)
    advertise: Annotated[ReachableAddress | None, "Where peers reach `listen.mesh`. Without it: found out."] = None
    allowed_hosts: Annotated[list[HostName], "Host names, besides loopback and *.reach, that requests may carry."] = (
        msgspec.field(default_factory=list)
    )
    allowed_origins: Annotated[list[Origin], "Origins of web pages that may call this sidecar."] = msgspec.field(
        default_factory=list
    )
    egress: Annotated[
        Literal["allow", "mesh-only"] | None,
        "Whether calls to hosts outside the mesh are forwarded. Without it: allow on loopback, mesh-only beyond it.",
    ] = None
    default_timeout: Annotated[
        Duration, Between(0.001, 30 * _DAY_S), "Total time of a call that brings no Reach-Timeout."
    ] = 600.0
    join: Annotated[JoinConfig | None, "How it joins the mesh."] = None
    state_dir: Annotated[
        FilePath | None,
        "Where it keeps its state. Without it: $STATE_DIRECTORY, else /var/lib/reach for root, "
        "else $XDG_STATE_HOME/reach/<id> (~/.local/state/reach/<id>).",
    ] = None
    log: Annotated[LogConfig, "Logging."] = msgspec.field(default_factory=LogConfig)
    drain: Annotated[DrainConfig, "Stopping."] = msgspec.field(default_factory=DrainConfig)
    dedup: Annotated[DedupConfig, "Remembered answers."] = msgspec.field(default_factory=DedupConfig)
    weights: Annotated[WeightsConfig, "Picking an agent."] = msgspec.field(default_factory=WeightsConfig)
    limits: Annotated[LimitsConfig, "Bounds."] = msgspec.field(default_factory=LimitsConfig)
    insecure: Annotated[bool, "Listen beyond loopback without TLS. For closed networks and trials only."] = False

    id: Annotated[str, Derived] = ""
    """The name this sidecar goes by: its agent's id, or for a gateway one made of the host name."""
    provisional: Annotated[bool, Derived] = False
    """The id was made up from the host name, and gives way to the one the agent registers itself with."""
