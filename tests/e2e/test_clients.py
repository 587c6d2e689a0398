"""Clients as they come, each in its own way of naming a target, reach a capability through two sidecars."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from harness.world import World

CLIENTS = Path(__file__).parent / "clients"
TASK = b'{"task": "say it back"}'


def run(*command: object, env: dict[str, str] | None = None, timeout: float = 60) -> str:
    """Standard output of a client that has to succeed."""
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout.decode()


def curl(*arguments: object) -> str:
    return run("curl", "-sS", "--fail-with-body", "--max-time", "30", *arguments)


def names(answer: dict[str, Any]) -> set[str]:
    return {name.lower() for name, _ in answer["headers"]}


def headers(answer: dict[str, Any], name: str) -> list[str]:
    return [value for key, value in answer["headers"] if key.lower() == name]


FORMS = {
    "path": ["{url}/to/echo/process"],
    "path of an alias": ["{url}/to/text.echo/process"],
    "path, other spelling": ["{url}/to/Text-Echo/process"],
    "path without rest": ["{url}/to/echo"],
    "path of one agent": ["{url}/to/@echo-01/process"],
    "header": ["-H", "Reach-Target: echo", "{url}/process"],
    "host": ["-H", "Host: echo.reach", "{url}/process"],
    "host of one agent": ["-H", "Host: echo-01.agent.reach", "{url}/process"],
    "proxy": ["-x", "{url}", "http://echo.reach/process"],
    "tunnel": ["-p", "-x", "{url}", "http://echo.reach/process"],
}


@pytest.mark.parametrize("form", FORMS)
def test_curl_names_the_target(world: World, form: str) -> None:
    answer = json.loads(curl("-d", TASK.decode(), *(part.format(url=world.url) for part in FORMS[form])))
    assert answer["agent"] == "echo-01-agent"
    assert (answer["method"], answer["path"]) == ("POST", "/process")
    assert answer["body"] == TASK.decode()
    assert "reach-target" not in names(answer)


def test_curl_reaches_a_node_agent(world: World) -> None:
    answer = json.loads(curl("-d", TASK.decode(), f"{world.url}/to/node.echo/process?x=1&y=%20"))
    assert (answer["agent"], answer["path"]) == ("node-01-agent", "/process?x=1&y=%20")
    assert answer["body"] == TASK.decode()


def test_the_mesh_marks_the_call(world: World) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    text = curl("-i", "-H", f"traceparent: 00-{trace}-00f067aa0ba902b7-01", f"{world.url}/to/echo/process")
    head, _, body = text.partition("\r\n\r\n")
    answer = json.loads(body)
    [parent] = headers(answer, "traceparent")
    assert parent.split("-")[1] == trace
    assert parent.split("-")[2] != "00f067aa0ba902b7", "each hop has a span of its own"
    assert len(headers(answer, "idempotency-key")) == 1
    assert headers(answer, "reach-attempt") == ["1"]
    assert headers(answer, "reach-caller") == ["caller-01"]
    lines = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in head.split("\r\n")[1:]}
    assert lines["reach-trace-id"] == trace
    assert lines["reach-agent"] == "echo-01"
    assert lines["reach-attempts"] == "1"
    assert lines["reach-matched"] == "exact"
    assert "reach-load" not in lines, "between sidecars only"


def test_curl_with_http_1_0(world: World) -> None:
    """A chunked answer has to become one that ends with the connection."""
    text = curl("--http1.0", "-i", "-d", TASK.decode(), f"{world.url}/to/echo/chunked")
    head, _, body = text.partition("\r\n\r\n")
    assert "transfer-encoding" not in head.lower()
    assert json.loads(body)["body"] == TASK.decode()


def test_curl_waits_for_continue(world: World, tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    (tmp_path / "body").write_bytes(data)
    done = subprocess.run(
        ["curl", "-sSv", "--max-time", "30", "--expect100-timeout", "20", "-H", "Expect: 100-continue",
         "--data-binary", f"@{tmp_path / 'body'}", f"{world.url}/to/echo/process"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert b"< HTTP/1.1 100 Continue" in done.stderr
    answer = json.loads(done.stdout)
    assert answer["body_bytes"] == len(data)
    assert answer["body_sha256"] == hashlib.sha256(data).hexdigest()
    assert "expect" not in names(answer)


def test_curl_head(world: World) -> None:
    text = curl("-I", f"{world.url}/to/echo/process")
    assert text.startswith("HTTP/1.1 200")
    lengths = [line for line in text.splitlines() if line.lower().startswith("content-length:")]
    assert len(lengths) == 1
    assert int(lengths[0].split(":")[1]) > 100, "the length that GET would have had"


def test_curl_chunked_upload(world: World) -> None:
    answer = json.loads(curl("-H", "Transfer-Encoding: chunked", "-d", TASK.decode(), f"{world.url}/to/echo/process"))
    assert answer["body"] == TASK.decode()


def test_trailers_come_through(world: World) -> None:
    text = curl("-i", "--raw", "-d", TASK.decode(), f"{world.url}/to/echo/chunked")
    assert "\r\n0\r\nX-Sum: " in text, text


@pytest.mark.parametrize("status", [201, 204, 304, 400, 404, 418])
def test_statuses_pass_through(world: World, status: int) -> None:
    text = run("curl", "-sS", "-o", os.devnull, "-w", "%{http_code}", "--max-time", "20",
               f"{world.url}/to/echo/status?code={status}")  # fmt: skip
    assert text == str(status)


@pytest.mark.parametrize("form", ["path", "proxy"])
def test_httpx(world: World, form: str) -> None:
    proxy = world.url if form == "proxy" else None
    url = "http://echo.reach/process" if form == "proxy" else f"{world.url}/to/echo/process"
    with httpx.Client(proxy=proxy, trust_env=False, timeout=20) as client:
        for _ in range(3):  # on one connection
            answer = client.post(url, content=TASK)
            assert answer.status_code == 200
            assert answer.json()["body"] == TASK.decode()


@pytest.mark.parametrize("form", ["path", "proxy"])
async def test_aiohttp(world: World, form: str) -> None:
    proxy = world.url if form == "proxy" else None
    url = "http://echo.reach/process" if form == "proxy" else f"{world.url}/to/echo/process"
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(timeout=timeout) as session:

        async def call(number: int) -> None:
            async with session.post(url, data=f"task {number}", proxy=proxy) as answer:
                assert answer.status == 200
                assert (await answer.json())["body"] == f"task {number}"

        await asyncio.gather(*(call(number) for number in range(40)))


def test_urllib_with_http_proxy(world: World) -> None:
    environment = {"http_proxy": world.url, "no_proxy": "127.0.0.1,localhost"}
    script = CLIENTS / "urllib_post.py"
    answer = json.loads(run(sys.executable, script, "http://echo.reach/process", env=environment))
    assert answer["body"] == '{"task": "from urllib"}'


@pytest.mark.parametrize("streamed", [False, True], ids=["text", "stream"])
def test_node_fetch(world: World, streamed: bool) -> None:
    url = f"{world.url}/to/echo/process"
    outcome = json.loads(run("node", CLIENTS / "fetch.mjs", url, *(["streamed"] if streamed else [])))
    assert outcome["status"] == 200
    assert json.loads(outcome["answer"]["body"]) == {"task": "from node"}


@pytest.mark.timeout(120)
def test_java_http_client_offers_h2c(world: World) -> None:
    """The offer is declined by leaving it away; the body of the offering request must not get lost."""
    lines = run("java", CLIENTS / "Client.java", f"{world.url}/to/echo/process", timeout=110).splitlines()
    assert len(lines) == 2
    for line, task in zip(lines, ("first", "second"), strict=True):
        status, version, body = line.split(" ", 2)
        answer = json.loads(body)
        assert (status, version) == ("200", "HTTP_1_1")
        assert json.loads(answer["body"]) == {"task": task}
        assert not names(answer) & {"upgrade", "http2-settings"}


def test_a_call_is_found_by_its_trace(world: World) -> None:
    """One trace id, a line of each sidecar that the call touched."""
    from harness.mesh import get, until

    text = curl("-i", "-d", TASK.decode(), f"{world.url}/to/echo/process")
    head = text.partition("\r\n\r\n")[0].lower()
    [trace] = [line.split(":")[1].strip() for line in head.split("\r\n") if line.startswith("reach-trace-id:")]
    for sidecar, event in ((world.caller, "call"), (world.echo, "deliver")):

        def line(sidecar: Any = sidecar, event: str = event) -> Any:
            status, answer = get(f"{sidecar.admin}/v1/logs?trace_id={trace}")
            assert status == 200
            rows = answer if isinstance(answer, str) else json.dumps(answer)
            found = [json.loads(row) for row in rows.splitlines() if row]
            return [row for row in found if row["event"] == event]

        [row] = until(f"{sidecar.name} has logged {event}", line)
        assert row["capability"] == "echo"
        assert row["status"] == 200
        assert row["trace_id"] == trace
