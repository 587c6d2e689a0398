"""`reach run`'s flags as a configuration."""

import pytest

from reach_sidecar.config import ConfigError, complete, parse_sidecar
from reach_sidecar.config_flags import sidecar_from_flags


def test_flags_alone_take_free_ports() -> None:
    config = sidecar_from_flags(agent_id="planner", port=9001, capabilities=["plan,job.plan", "review"])
    assert config.agent is not None
    assert (config.agent.id, config.agent.address) == ("planner", "http://127.0.0.1:9001")
    assert [(c.name, c.aliases) for c in config.agent.capabilities] == [("plan", ["job.plan"]), ("review", [])]
    assert config.listen.outbound == config.listen.mesh == config.listen.admin == "127.0.0.1:0"
    assert complete(config, {"HOME": "/h"}, root=False).state_dir == "/h/.local/state/reach/planner"


def test_no_flags_at_all_are_an_agent_that_registers_itself() -> None:
    config = sidecar_from_flags()
    assert config.agent is not None
    assert (config.agent.id, config.agent.address, config.agent.capabilities) == (None, None, [])


def test_flags_go_over_the_file() -> None:
    text = "agent: {id: a, address: 'http://127.0.0.1:1', queue: 3, capabilities: [{name: x}]}\nstate_dir: /s"
    base = parse_sidecar(text, "f", {})
    config = sidecar_from_flags(base=base, agent_id="b", port=2)
    assert config.agent is not None
    assert (config.agent.id, config.agent.address, config.agent.queue) == ("b", "http://127.0.0.1:2", 3)
    assert [c.name for c in config.agent.capabilities] == ["x"]
    assert (config.listen, config.state_dir) == (base.listen, "/s")
    assert base.agent is not None
    assert base.agent.id == "a"
    assert sidecar_from_flags(base=base) == base


def test_a_new_id_replaces_one_that_was_made_up() -> None:
    base = complete(parse_sidecar("agent: {}", "f", {}), {})
    assert base.provisional
    config = complete(sidecar_from_flags(base=base, agent_id="b"), {})
    assert (config.id, config.provisional) == ("b", False)


def test_every_bad_flag_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        sidecar_from_flags(agent_id="a b", port=70000, capabilities=["", "a,/"])
    assert [c.file for c in caught.value.complaints] == ["--capability", "--capability", "--id", "--port"]
    assert str(caught.value.complaints[3]) == "--port: expected a port from 1 to 65535, found `70000`"


def test_flags_that_cannot_work_together() -> None:
    with pytest.raises(ConfigError, match=r"`agent\.capabilities\[1\]\.name`: `A` is the same name as `a`"):
        sidecar_from_flags(port=1, capabilities=["a", "A"])
    with pytest.raises(ConfigError, match="declared but `address` is missing"):
        sidecar_from_flags(capabilities=["a"])
