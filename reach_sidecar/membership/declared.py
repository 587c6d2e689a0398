"""The local agent as its configuration declares it."""

from reach_core.peer import Limits
from reach_sidecar.config import SidecarConfig
from reach_sidecar.membership.local import HealthCheck, LocalAgent


def declared_agent(config: SidecarConfig) -> LocalAgent:
    """The agent to start with; without an `agent` section a gateway, whose name gives way to an agent's own."""
    agent = config.agent
    if agent is None:
        return LocalAgent(agent_id=config.id, provisional=config.provisional)
    return LocalAgent(
        agent_id=config.id,
        version=agent.version or "",
        address=agent.address,
        health=HealthCheck(path=agent.health.path, interval_s=agent.health.interval, timeout_s=agent.health.timeout,
                           fail=agent.health.fail),
        declared=tuple(one.declared() for one in agent.capabilities),
        provisional=config.provisional,
        limits=Limits(max_concurrency=agent.max_concurrency, queue=agent.queue, weight=agent.weight),
    )
