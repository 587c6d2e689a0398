"""Requests as exact as a test wants them: header order, case and repetition are kept, no proxy, no redirects."""

import http.client
import json
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def one(self, name: str) -> str:
        values = self.all(name)
        assert len(values) == 1, f"{name} is there {len(values)} times in {self.headers}"
        return values[0]

    @property
    def problem(self) -> str:
        """The code of a problem document that is whole and well-formed, as every error of ours has to be."""
        assert self.one("content-type") == "application/problem+json", self
        document = self.json
        assert document["status"] == self.status, document
        assert document["executed"] in ("no", "yes", "unknown"), document
        assert document["detail"], document
        assert self.all("proxy-status"), self.headers
        return str(document["type"]).removeprefix("urn:reach:")


def exchange(
    url: str,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes | None = None,
    method: str | None = None,
    target: str | None = None,
    timeout: float = 20.0,
) -> Answer:
    """One request on a connection of its own. `target` is sent as it is in the request line."""
    parts = urlsplit(url)
    sent = list(headers)
    names = {name.lower() for name, _ in sent}
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.putrequest(
            method or ("GET" if body is None else "POST"),
            target or path,
            skip_host="host" in names,
            skip_accept_encoding=True,
        )
        for name, value in sent:
            connection.putheader(name, value)
        if body is not None and not names & {"content-length", "transfer-encoding"}:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return Answer(answer.status, answer.getheaders(), answer.read())
    finally:
        connection.close()
