"""`reach config validate|schema|show`."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from reach_cli.config import command, kind_of


def reach_config(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.fixture
def good(tmp_path: Path) -> str:
    file = tmp_path / "sidecar.yaml"
    file.write_text("agent: {id: a, address: 'http://127.0.0.1:1', capabilities: [{name: x, timeout: 90s}]}\n")
    return str(file)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    file = tmp_path / "bad.yaml"
    file.write_text("agnt: {}\negress: allowed\n")
    return str(file)


def test_validate(good: str) -> None:
    result = reach_config("validate", good)
    assert (result.exit_code, result.stdout) == (0, f"{good}: a valid sidecar configuration\n")


def test_validate_names_every_mistake(bad: str) -> None:
    result = reach_config("validate", bad)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{bad}:1:1: unknown key `agnt`, did you mean `agent`?",
        f"{bad}:2:9: `egress`: expected allow or mesh-only, found `allowed` (did you mean `allow`?)",
    ]


def test_validate_as_json(good: str, bad: str) -> None:
    assert json.loads(reach_config("validate", good, "--json").stdout) == {
        "file": good, "kind": "sidecar", "valid": True, "complaints": [],
    }  # fmt: skip
    result = reach_config("validate", bad, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["valid"], len(found["complaints"])) == (1, False, 2)
    assert found["kind"] == "sidecar"
    assert found["complaints"][0]["line"] == 1


@pytest.mark.parametrize("name", ["none.yaml", "."])
def test_validate_what_cannot_be_read(tmp_path: Path, name: str) -> None:
    result = reach_config("validate", str(tmp_path / name))
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.yaml", "cluster: x", "control"),
        ("a.yaml", "agent: {}", "sidecar"),
        ("control.yaml", "listen: {}", "control"),
        ("control.yaml", "agent: {}\ncontrol: []", "sidecar"),
        ("a.yaml", "log: {}", "sidecar"),
        ("a.yaml", "[broken", "sidecar"),
        ("a.yaml", "text", "sidecar"),
        ("a.yaml", "[a]", "sidecar"),
    ],
)
def test_the_kind_is_seen_from_keys_and_name(tmp_path: Path, name: str, text: str, kind: str) -> None:
    (tmp_path / name).write_text(text)
    assert kind_of(str(tmp_path / name)) == kind


def test_the_kind_can_be_said(good: str) -> None:
    assert "unknown key `agent`" in reach_config("validate", good, "--kind", "control").stderr


@pytest.mark.parametrize("kind", ["sidecar", "control"])
def test_schema(kind: str) -> None:
    result = reach_config("schema", kind)
    schema = json.loads(result.stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "listen" in schema["properties"]


def test_schema_of_something_else() -> None:
    assert reach_config("schema", "agent").exit_code == 2


def test_show_a_file(good: str) -> None:
    shown = yaml.safe_load(reach_config("show", "-c", good).stdout)
    assert shown["agent"]["capabilities"][0]["timeout"] == "90s"
    assert shown["listen"]["outbound"] == "127.0.0.1:7070"
    assert json.loads(reach_config("show", "-c", good, "--json").stdout) == shown


def test_show_a_bad_file(bad: str) -> None:
    result = reach_config("show", "-c", bad)
    assert result.exit_code == 1
    assert f"{bad}:1:1: " in result.stderr


def test_show_takes_a_file_or_a_sidecar(good: str) -> None:
    assert reach_config("show", "-c", good, "--admin", "http://127.0.0.1:1").exit_code == 2


def test_show_asks_the_running_sidecar(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Admin(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"insecure": false}' if self.path == "/v1/config" else b"{}"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Admin) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            monkeypatch.setenv("REACH_ADMIN", f"http://127.0.0.1:{server.server_port}")
            assert reach_config("show").stdout == "insecure: false\n"
        finally:
            server.shutdown()
            thread.join()
    assert reach_config("show").exit_code == 1
