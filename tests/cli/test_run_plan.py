import os
import socket
from pathlib import Path
from typing import Any

import pytest

from reach_cli.failure import Failed
from reach_cli.run_plan import Plan, command_stem, make_plan
from reach_core.settings.complaint import ConfigError
from reach_sidecar.config import parse_sidecar


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def plan(*command: str, base: Any = None, **options: Any) -> Plan:
    options = {"agent_id": None, "port": None, "capabilities": (), **options}
    return make_plan(base, command or ("python", "planner.py"), **options)


def config(text: str) -> Any:
    return parse_sidecar(text, "sidecar.yaml", {})


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        ("python planner.py", "planner"),
        ("python3.11 -u agents/planner.py --fast", "planner"),
        ("/usr/bin/python3 -m pkg.worker", "worker"),
        ("node scribe.mjs", "scribe"),
        ("deno run --allow-net agent.ts", "agent"),
        ("uv run agent.py", "agent"),
        ("./serve.sh", "serve"),
        ("uvicorn app:app", "uvicorn"),
        ("python -c pass", "python"),
        ("/opt/My_Agent", "my-agent"),
        ("./é", "agent"),
    ],
)
def test_the_stem_of_a_command(command: str, stem: str) -> None:
    assert command_stem(command.split()) == stem


def test_an_agent_keeps_its_id_and_port() -> None:
    first = plan(capabilities=("summarize,text.summarize",))
    first.state.release()
    second = plan(capabilities=("summarize",))
    assert (second.agent_id, second.port) == (first.agent_id, first.port)
    assert first.agent_id.startswith("planner-")
    assert len(first.agent_id) == len("planner-") + 4
    assert first.config.agent is not None
    assert first.config.agent.address == f"http://127.0.0.1:{first.port}"
    assert first.config.agent.capabilities[0].aliases == ["text.summarize"]
    second.state.release()


def test_ports_are_free_ones_and_state_is_the_users() -> None:
    made = plan()
    assert made.config.listen.outbound == made.config.listen.mesh == made.config.listen.admin == "127.0.0.1:0"
    assert made.state.path == Path(os.environ["XDG_STATE_HOME"], "reach", made.agent_id)
    assert made.config.state_dir == str(made.state.path)
    assert made.config.id == made.agent_id
    assert made.config.provisional, "the agent may register itself under a name of its own"
    assert made.config.control == ["http://127.0.0.1:7080"]
    made.state.release()


def test_the_same_command_twice_is_two_agents() -> None:
    first, second = plan(), plan()
    assert first.agent_id != second.agent_id
    assert first.port != second.port
    first.state.release()
    second.state.release()


def test_the_same_id_twice_is_refused() -> None:
    first = plan(agent_id="one")
    assert not first.config.provisional
    with pytest.raises(Failed, match=rf"'one' is running already.*process {os.getpid()}.*--id"):
        plan(agent_id="one")
    first.state.release()
    plan(agent_id="one").state.release()


def test_a_port_makes_the_id_and_is_refused_twice() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    first = plan(port=port)
    assert first.port == port
    with pytest.raises(Failed, match="is running already"):
        plan(port=port)
    first.state.release()


def test_a_taken_port_names_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(Failed, match=rf"port {port} is taken by pid {os.getpid()} .*--auto-ports"):
            plan(port=port)
        made = plan(port=port, auto_ports=True)
        assert made.port != port
        made.state.release()


def test_a_file_is_the_start_and_flags_lie_over_it(tmp_path: Path) -> None:
    text = "agent: {id: a, address: 'http://127.0.0.1:9', max_concurrency: 3, capabilities: [{name: plan}]}\n"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    base = config(text.replace(":9'", f":{port}'") + f"state_dir: {tmp_path}/state\n")
    made = plan(base=base)
    assert (made.agent_id, made.port, made.state.path) == ("a", port, tmp_path / "state")
    assert made.config.listen.outbound == "127.0.0.1:7070"
    made.state.release()
    made = plan(base=base, agent_id="b", capabilities=("cut",), auto_ports=True, controls=("http://127.0.0.1:9999",))
    agent = made.config.agent
    assert agent is not None
    assert (agent.id, agent.max_concurrency, [c.name for c in agent.capabilities]) == ("b", 3, ["cut"])
    assert made.config.listen.outbound == "127.0.0.1:0"
    assert made.config.control == ["http://127.0.0.1:9999"]
    made.state.release()


def test_a_gateways_file_gets_an_agent() -> None:
    made = plan(base=config("default_timeout: 5s\n"), capabilities=("plan",))
    assert made.config.agent is not None
    assert made.config.agent.address == f"http://127.0.0.1:{made.port}"
    assert made.config.default_timeout == 5.0
    made.state.release()


def test_wrong_flags_are_all_named() -> None:
    with pytest.raises(ConfigError) as caught:
        plan(agent_id="no spaces!", capabilities=("", "plan"))
    assert {complaint.file for complaint in caught.value.complaints} == {"--id", "--capability"}


def test_a_state_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failed, match="cannot be used"):
        plan(base=config(f"state_dir: {tmp_path}/file/state\n"))
