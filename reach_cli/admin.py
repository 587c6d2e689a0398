"""Finding a running sidecar and asking it: `--admin`, and JSON over its admin and outbound listeners."""

import http.client
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any
from urllib.parse import urlencode, urlsplit

import click

from reach_cli.failure import Failed
from reach_cli.run_directory import notes
from reach_core.address import join_address

DEFAULT_ADMIN = "http://127.0.0.1:7072"
ANSWER_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Door:
    """One listener of a daemon as a URL without a path: `http://127.0.0.1:7072`."""

    url: str
    name: str = "the sidecar's admin listener"

    def connect(self, timeout_s: float | None = ANSWER_TIMEOUT_S) -> http.client.HTTPConnection:
        """An open connection, so that what fails later is not the connecting. Raises Failed."""
        host, port = host_and_port(self.url)
        connection = http.client.HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.connect()
        except OSError as error:
            raise Failed(
                f"{self.name} does not answer at {self.url} ({reason(error)}). Start one with "
                "`reach run -- CMD` or `reach sidecar -c FILE`, or name a running one with --admin URL or $REACH_ADMIN."
            ) from None
        connection.sock.settimeout(timeout_s)
        return connection

    def get(self, path: str, query: dict[str, str | None] | None = None) -> Any:
        """The JSON answer of `GET path`. Raises Failed."""
        with self.open(path, query) as answer:
            try:
                return json.loads(answer.read())
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise Failed(f"{self.name} at {self.url} broke off its answer to {path}: {error}.") from None

    def open(
        self,
        path: str,
        query: dict[str, str | None] | None = None,
        *,
        timeout_s: float | None = ANSWER_TIMEOUT_S,
    ) -> http.client.HTTPResponse:
        """The answer of `GET path`, its body still to be read. Raises Failed for anything but 200.

        A 400 is a click.UsageError: what was asked for came from the command line.
        """
        asked = urlencode({name: value for name, value in (query or {}).items() if value is not None})
        connection = self.connect(timeout_s)
        try:
            connection.request("GET", f"{path}?{asked}" if asked else path, headers=token())
            answer = connection.getresponse()
        except TimeoutError:
            raise Failed(
                f"{self.name} at {self.url} took the connection but does not answer. Is it overloaded?"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise Failed(
                f"What listens at {self.url} does not speak HTTP as {self.name} does ({reason(error)}). "
                "Check --admin."
            ) from None
        if answer.status == 200:
            return answer
        problem = problem_of(answer.read(65536))
        detail = problem.get("detail")
        if detail and answer.status == 400:
            raise click.UsageError(str(detail))
        if detail and problem.get("type") != "urn:reach:not_found":
            raise Failed(str(detail))
        raise Failed(
            f"{self.url}{path} answered {answer.status}. Is that {self.name}? Check --admin."
        )


def host_and_port(url: str) -> tuple[str, int]:
    """Raises click.UsageError for anything that is not `http://HOST:PORT`."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    try:
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError
        return parts.hostname, parts.port or 80
    except ValueError:
        raise click.UsageError(
            f"{url!r} is not an address: write http://HOST:PORT, such as {DEFAULT_ADMIN}."
        ) from None


def reason(error: Exception) -> str:
    """`Connection refused` rather than `[Errno 111] Connection refused`."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "the host name is unknown"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def token() -> dict[str, str]:
    """The header that local doors ask for where `REACH_API_TOKEN` is set."""
    secret = os.environ.get("REACH_API_TOKEN")
    return {"Reach-Api-Token": secret} if secret else {}


def problem_of(body: bytes) -> dict[str, Any]:
    """The members of a problem+json document; empty if it is none."""
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def admin_door(url: str | None) -> Door:
    """The sidecar to ask: `--admin`, else `$REACH_ADMIN`, else the only one noted, else the default port.

    Instead of a URL the id of a sidecar that is noted here will do: `--admin planner`.
    Raises click.UsageError when several are noted and none was named.
    """
    url = url or os.environ.get("REACH_ADMIN")
    if not url:
        noted = notes("sidecar")
        if len(noted) > 1:
            known = "\n".join(f"  --admin {note['id']}   at http://{note['admin']}" for note in noted)
            raise click.UsageError(
                f"{len(noted)} sidecars run here. Say which one to ask, or set REACH_ADMIN:\n{known}"
            )
        url = f"http://{noted[0]['admin']}" if noted else DEFAULT_ADMIN
    elif "/" not in url:
        url = next((f"http://{note['admin']}" for note in notes("sidecar") if note["id"] == url), url)
    return Door(f"http://{join_address(*host_and_port(url))}")


@dataclass(frozen=True)
class Sidecar:
    """Where a running sidecar listens, as its own `GET /v1/self` says."""

    admin: Door
    outbound: Door
    agent_id: str


def find_sidecar(admin: str | None) -> Sidecar:
    """Ask the sidecar behind `--admin` who it is. Raises Failed."""
    door = admin_door(admin)
    me = door.get("/v1/self")
    outbound = me.get("outbound")
    if not isinstance(outbound, str):
        raise Failed(
            f"{door.url} does not say where its sidecar takes calls. Is it a sidecar's admin listener?"
        )
    address = outbound if "//" in outbound else f"http://{outbound}"
    outbound_door = Door(address, "the sidecar's outbound listener")
    return Sidecar(door, outbound_door, str(me.get("agent_id") or "gateway"))


def admin_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--admin URL`, for each verb that asks a running sidecar."""
    option = click.option(
        "--admin",
        metavar="URL",
        help="The sidecar to ask, or the id of one running here. "
        "[$REACH_ADMIN, else the only one running here, else http://127.0.0.1:7072]",
    )
    return update_wrapper(option(function), function)


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`, for each verb that prints data."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one document a line.")(function)


def server_sent_events(lines: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """(event, data) of a stream of server-sent events (WHATWG HTML, "Server-sent events")."""
    event = "message"
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield event, "\n".join(data)
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
