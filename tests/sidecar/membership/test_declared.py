"""The local agent as its configuration declares it."""

from reach_core.peer import Limits
from reach_sidecar.config import AgentConfig, CapabilityConfig, HealthConfig, SidecarConfig
from reach_sidecar.membership.declared import declared_agent
from reach_sidecar.membership.local import HealthCheck


def test_everything_that_is_declared() -> None:
    config = SidecarConfig(id="b", agent=AgentConfig(
        id="b", version="1.4.2", address="http://127.0.0.1:9001", weight=2.0, max_concurrency=4, queue=7,
        health=HealthConfig(path="/healthz", interval=5.0, timeout=1.0, fail=2),
        capabilities=[CapabilityConfig(name="Text Summarize", aliases=["Short"], path="/run", timeout=60.0,
                                       idempotent=True, attributes={"language": ["zh"]}, fallback="template",
                                       dedup="durable", key="json:/id", outcome="json")]))
    local = declared_agent(config)
    assert (local.agent_id, local.version, local.address) == ("b", "1.4.2", "http://127.0.0.1:9001")
    assert local.health == HealthCheck(path="/healthz", interval_s=5.0, timeout_s=1.0, fail=2)
    assert local.limits == Limits(max_concurrency=4, queue=7, weight=2.0)
    assert not local.is_gateway
    assert not local.provisional
    assert set(local.capabilities) == {"text.summarize", "short"}
    one = local.capabilities["short"]
    assert (one.path, one.timeout_s, one.idempotent, one.fallback) == ("/run", 60.0, True, "template")
    assert (one.dedup, one.key, one.outcome, one.attributes) == ("durable", "json:/id", "json", {"language": ["zh"]})


def test_without_an_agent_it_is_a_gateway_whose_name_gives_way() -> None:
    local = declared_agent(SidecarConfig(id="gateway-host", provisional=True))
    assert local.is_gateway
    assert local.provisional
    assert (local.agent_id, local.capabilities) == ("gateway-host", {})


def test_an_agent_without_an_address_registers_itself() -> None:
    local = declared_agent(SidecarConfig(id="b", agent=AgentConfig(id="b")))
    assert local.is_gateway
    local.declare("b", "http://127.0.0.1:9001", capabilities=["summarize"])
    assert set(local.capabilities) == {"summarize"}
