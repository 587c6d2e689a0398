from pathlib import Path

import yaml

from bench import reach
from reach_control.config import load_control
from reach_sidecar.config import load_sidecar


def test_the_sidecars_configuration_is_a_valid_one(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    config = reach.sidecar_config("reach-b", "127.0.0.1:9", "127.0.0.1:8", tmp_path / "state", "echo", 40)
    file.write_text(yaml.safe_dump(config))
    loaded = load_sidecar(str(file), {})
    assert loaded.agent is not None
    assert loaded.agent.max_concurrency == 40
    assert [(one.name, one.dedup) for one in loaded.agent.capabilities] == [("echo", "memory")]
    assert loaded.listen.outbound == "127.0.0.1:0"


def test_a_caller_serves_nothing_and_control_takes_any_port(tmp_path: Path) -> None:
    assert reach.sidecar_config("a", "127.0.0.1:9", "127.0.0.1:8", tmp_path, None)["agent"]["capabilities"] == []
    file = tmp_path / "control.yaml"
    file.write_text(yaml.safe_dump(reach.control_config(tmp_path / "state")))
    assert load_control(str(file), {}).listen.api == "127.0.0.1:0"
