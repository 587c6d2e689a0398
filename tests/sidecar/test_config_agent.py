"""The `agent` section and its defaults, which the design fixes."""

from reach_core.peer import Capability
from reach_sidecar.config_agent import AgentConfig, CapabilityConfig


def test_defaults() -> None:
    agent = AgentConfig()
    assert (agent.weight, agent.max_concurrency, agent.queue) == (1.0, 64, 64)
    health = agent.health
    assert (health.path, health.interval, health.timeout, health.fail) == (None, 10.0, 2.0, 3)
    capability = CapabilityConfig(name="a")
    assert (capability.path, capability.timeout, capability.mode) == ("/process", None, "sync")
    assert (capability.idempotent, capability.dedup, capability.key) == (False, "memory", None)
    assert (capability.outcome, capability.fallback, capability.adaptive) == ("header", None, False)


def test_what_the_table_carries_has_the_same_defaults() -> None:
    assert CapabilityConfig(name="a").declared() == Capability(name="a")


def test_a_capability_is_declared_as_written() -> None:
    written = CapabilityConfig(name="A_b", aliases=["c"], attributes={"x": ["1", "2"]}, timeout=60.0, dedup="durable")
    assert written.declared() == Capability(
        name="A_b", aliases=("c",), attributes={"x": ["1", "2"]}, timeout_s=60.0, dedup="durable"
    )
