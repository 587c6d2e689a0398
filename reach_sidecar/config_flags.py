"""A configuration out of the flags of `reach run`."""

from collections.abc import Sequence

import msgspec

from reach_core.settings.complaint import Complaint, ConfigError, quoted
from reach_core.settings.reading import said
from reach_core.settings.scalar import AGENT_ID, CAPABILITY
from reach_sidecar.config_agent import AgentConfig, CapabilityConfig
from reach_sidecar.config_checks import check
from reach_sidecar.config_sections import ListenConfig, SidecarConfig


def sidecar_from_flags(
    *,
    base: SidecarConfig | None = None,
    agent_id: str | None = None,
    port: int | None = None,
    capabilities: Sequence[str] = (),
) -> SidecarConfig:
    """What `reach run`'s flags say, laid over `base`, or over defaults with free ports. Pure; `complete` it then.

    `port` is the agent's, on loopback; each capability is `name[,alias…]` and they replace those of `base`.
    Raises ConfigError with every complaint, the flag in the place of the file.
    """
    complaints: list[Complaint] = []
    if base is None:
        free = ListenConfig(outbound="127.0.0.1:0", mesh="127.0.0.1:0", admin="127.0.0.1:0")
        base = SidecarConfig(agent=AgentConfig(), listen=free)
    agent = base.agent or AgentConfig()
    if agent_id is not None:
        try:
            agent = msgspec.structs.replace(agent, id=AGENT_ID.parse(agent_id))
        except ValueError:
            complaints.append(Complaint("--id", 0, 0, f"expected {AGENT_ID.expected}, found {quoted(agent_id)}"))
    if port is not None:
        if 0 < port < 65536:
            agent = msgspec.structs.replace(agent, address=f"http://127.0.0.1:{port}")
        else:
            complaints.append(Complaint("--port", 0, 0, f"expected a port from 1 to 65535, found `{port}`"))
    declared = []
    for flag in capabilities:
        names = [name.strip() for name in flag.split(",")]
        for name in names:
            try:
                CAPABILITY.parse(name)
            except ValueError:
                complaints.append(
                    Complaint("--capability", 0, 0, f"expected {CAPABILITY.expected}, found {quoted(name)}")
                )
        declared.append(CapabilityConfig(name=names[0], aliases=names[1:]))
    if declared:
        agent = msgspec.structs.replace(agent, capabilities=declared)
    config = msgspec.structs.replace(base, agent=agent, provisional=base.provisional and agent_id is None)
    if not complaints:
        complaints = [Complaint("reach run", 0, 0, f"`{said(fault.path)}`: {fault.message}") for fault in check(config)]
    if complaints:
        raise ConfigError(complaints)
    return config
