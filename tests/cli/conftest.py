"""A stand-in for a sidecar's listeners: canned answers over real sockets, and what was asked."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result


class Canned(NamedTuple):
    """`body` is sent as it is if bytes, else as JSON; a `cut` answer promises more than it sends."""

    body: Any
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    cut: int = 0


class Asked(NamedTuple):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


class StandIn:
    """`answers` maps a path (without query) to what is sent; `asked` lists the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, Canned] = {}
        self.asked: list[Asked] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                path, _, query = self.path.partition("?")
                if self.headers.get("Transfer-Encoding") == "chunked":
                    body = b""
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                else:
                    body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                owner.asked.append(Asked(self.command, path, query, dict(self.headers.items()), body))
                canned = owner.answers.get(path) or Canned({"detail": f"There is nothing at {path}."}, 404)
                data = canned.body if isinstance(canned.body, bytes) else json.dumps(canned.body).encode()
                self.send_response(canned.status)
                for name, value in canned.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data) + canned.cut))
                self.end_headers()
                self.wfile.write(data)
                if canned.cut:
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_HEAD = answer

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.address}"
        self.answers["/v1/self"] = Canned({"agent_id": "planner-01", "outbound": self.address, "mesh": "", "admin": ""})
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A sidecar that $REACH_ADMIN points at."""
    server = StandIn()
    monkeypatch.setenv("REACH_ADMIN", server.url)
    yield server
    server.stop()


@pytest.fixture
def reach() -> Any:
    """Run `reach ARGS...` in this process."""
    from reach_cli.main import main

    def run(*args: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, list(args), input=stdin)

    return run


def agent(agent_id: str, *capabilities: str, **fields: Any) -> dict[str, Any]:
    """An agent as `GET /v1/agents` shows it."""
    return {
        "agent_id": agent_id,
        "status": "up",
        "version": "1.0",
        "address": "127.0.0.1:1",
        "capabilities": [{"name": name, "aliases": [], "attributes": {}} for name in capabilities],
        "load": {"running": 1, "queued": 0, "limit": 4, "age_s": 0.5},
        "gen": 1,
        "ver": 1,
        "excluded": None,
        **fields,
    }


@pytest.fixture
def an_agent() -> Any:
    return agent


@pytest.fixture
def no_http() -> Iterator[str]:
    """A URL where something answers one connection, and not with HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0-OpenSSH\r\n")

        thread = threading.Thread(target=speak)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)
