import pytest

from reach_core.peer import Capability, Limits
from reach_sidecar.membership.local import (
    AgentIdConflict,
    HealthCheck,
    LocalAgent,
    agent_address,
    host_and_port,
)


def summarizer(**changes):
    fields = {
        "agent_id": "summarizer-01",
        "address": "http://127.0.0.1:9001",
        "declared": (Capability(name="Text_Summarize", aliases=("summarize",), idempotent=True),),
    }
    return LocalAgent(**{**fields, **changes})


def test_names_and_aliases_lead_to_what_was_declared():
    local = summarizer()
    assert set(local.capabilities) == {"text.summarize", "summarize"}
    assert local.capabilities["summarize"] is local.declared[0]
    assert local.declared[0].name == "text.summarize"


def test_a_name_wins_over_an_alias_whatever_the_order():
    first = Capability(name="a", aliases=("b",))
    second = Capability(name="b")
    for order in ((first, second), (second, first)):
        assert summarizer(declared=order).capabilities["b"].name == "b"


def test_a_gateway_becomes_the_agent_that_registers_itself():
    local = LocalAgent("host-name")
    assert local.is_gateway
    local.declare("writer", "127.0.0.1:9002", "/health", 3, ["write", "write"])
    assert (local.agent_id, local.address) == ("writer", "http://127.0.0.1:9002")
    assert local.health.path == "/health"
    assert local.limits.max_concurrency == 3
    assert [one.name for one in local.declared] == ["write"]
    with pytest.raises(AgentIdConflict, match=r"already serves the agent 'writer'"):
        local.declare("reader", "127.0.0.1:9003")


def test_a_made_up_id_gives_way_once():
    local = summarizer(provisional=True)
    local.declare("other")
    with pytest.raises(AgentIdConflict):
        local.declare("third")
    assert local.agent_id == "other"


def test_plain_names_keep_the_configured_details_and_omitted_fields_stay():
    local = summarizer(limits=Limits(max_concurrency=7))
    local.declare("summarizer-01", capabilities=["text-summarize", "translate"])
    assert local.capabilities["text.summarize"].idempotent
    assert not local.capabilities["translate"].idempotent
    assert local.limits.max_concurrency == 7
    assert local.address == "http://127.0.0.1:9001"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent_id": ""}, "not an agent id"),
        ({"address": None}, "address is missing"),
        ({"address": "https://127.0.0.1:1"}, "address is"),
        ({"health_path": "healthz"}, "must begin with a slash"),
        ({"max_concurrency": 0}, "at least 1"),
        ({"capabilities": ["a", ""]}, "not a capability's name"),
        ({"capabilities": [f"capability.number.{number}" for number in range(200)]}, "declare fewer"),
        ({"capabilities": [Capability(name="a", timeout_s=2e6)]}, "timeout_s"),
    ],
)
def test_a_bad_declaration_changes_nothing(changes, message):
    local = LocalAgent("host-name")
    fired = []
    local.changed.append(lambda: fired.append(1))
    with pytest.raises(ValueError, match=message):
        local.declare(**{"agent_id": "a", "address": "http://127.0.0.1:9001", **changes})
    assert local.is_gateway
    assert local.declared == ()
    assert local.agent_id == "host-name"
    assert not fired


def test_only_real_changes_are_told():
    local = summarizer()
    fired = []
    local.changed.append(lambda: fired.append(local.flags))
    local.declare("summarizer-01", "http://127.0.0.1:9001", capabilities=["text.summarize"])
    local.set_unfit(False)
    assert fired == []
    local.set_unfit(True)
    local.set_unfit(True)
    local.set_draining(True)
    local.set_unfit(False)
    assert fired == [("unfit",), ("draining", "unfit"), ("draining",)]
    local.declare("summarizer-01", version="2")
    assert len(fired) == 4
    assert local.version == "2"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:9001", "http://127.0.0.1:9001"),
        ("http://localhost:9001/", "http://localhost:9001"),
        ("127.0.0.1:9001", "http://127.0.0.1:9001"),
        ("http://agent", "http://agent:80"),
        ("http://[::1]:9001", "http://[::1]:9001"),
        ("HTTP://Agent-1.local:9001/", "http://Agent-1.local:9001"),
    ],
)
def test_addresses(text, address):
    assert agent_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "http://", "ftp://a:1", "http://a:b", "http://a:99999", "http://u@a:1", "http://a:0", "http://[::1",
             "http://[:.:]:1", "http://a:1/path", "http://a:1?x", "http://é:1", "https://a:1", "http://a:1\n"]
)
def test_bad_addresses_say_what_was_expected(text):
    with pytest.raises(ValueError, match="such as http://127"):
        agent_address(text)


def test_host_and_port():
    assert host_and_port("http://[::1]:9001") == ("::1", 9001)


def test_the_configuration_may_change_while_running() -> None:
    local = LocalAgent("a", address="http://127.0.0.1:9001", declared=(Capability(name="work"),), provisional=True)
    told: list[int] = []
    local.changed.append(lambda: told.append(1))
    local.configure()
    assert not told
    local.configure(address="http://127.0.0.1:9002", health=HealthCheck(fail=9),
                    capabilities=[Capability(name="Rest")])
    assert (local.address, local.health.fail, [*local.capabilities]) == ("http://127.0.0.1:9002", 9, ["rest"])
    assert local.provisional
    with pytest.raises(ValueError, match="address"):
        local.configure(address="nowhere/at all", version="2")
    with pytest.raises(ValueError, match="bytes"):
        local.configure(capabilities=[Capability(name="x" * 60, aliases=tuple(f"{n:60}" for n in range(90)))])
    assert (local.address, local.version, [*local.capabilities]) == ("http://127.0.0.1:9002", "", ["rest"])
    assert told == [1]
