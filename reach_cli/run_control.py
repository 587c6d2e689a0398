"""The control node that `reach run` starts where none answers.

It is a process of its own in a session of its own, so that it outlives whoever started it, and it stops when no
agent has been registered for a while. Two `reach run` at once may both start one: the port decides, the loser ends.
"""

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from reach_cli.admin import host_and_port
from reach_cli.failure import Failed
from reach_cli.run_ports import is_free
from reach_os.ports import who_listens
from reach_os.state_dir import state_home

EXIT_WHEN_IDLE = "10s"
READY_TIMEOUT_S = 15.0
ANSWER_TIMEOUT_S = 2.0
ADMIN_PORT = 7082
LOG_SIZE = 1 << 20


def ensure_control(urls: Sequence[str], env: Mapping[str, str] | None = None) -> str | None:
    """Start a control node if none of `urls` answers and one of them is on this machine.

    Returns the URL of the node it started, None if nothing had to be done. Raises Failed.
    """
    env = os.environ if env is None else env
    states = {url: probe(url) for url in urls}
    if "control" in states.values():
        return None
    local = [url for url in urls if _is_local(url)]
    if not local:
        # Somebody else's nodes: the sidecar goes on trying them.
        return None
    url = local[0]
    _, port = host_and_port(url)
    if states[url] == "other":
        holder = who_listens(port) or "another program"
        raise Failed(
            f"What listens on {url} is not a control node but {holder}. Stop it, or name another port with "
            "--control http://127.0.0.1:PORT."
        )
    process, log = _start(url, env)
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if probe(url) == "control":
            return url
        if process.poll() is not None and is_free(port):
            break
        time.sleep(0.05)
    raise Failed(f"No control node came up at {url}. Its last words, from {log}:\n{last_lines(log)}")


def probe(url: str) -> str:
    """`control` if a control node answers there, `nobody`, or `other` for anything else that listens."""
    connection = http.client.HTTPConnection(*host_and_port(url), timeout=ANSWER_TIMEOUT_S)
    try:
        connection.connect()
    except OSError:
        return "nobody"
    try:
        connection.request("GET", "/livez")
        return "control" if connection.getresponse().status == 200 else "other"
    except TimeoutError:
        return "control"  # it took the connection and is slow: not a reason to start a second one
    except (OSError, http.client.HTTPException):
        return "other"
    finally:
        connection.close()


def last_lines(path: Path, count: int = 8) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        lines = []
    return "\n".join(f"  {line}" for line in lines) or "  (nothing)"


def _is_local(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")


def _start(url: str, env: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], Path]:
    host, port = host_and_port(url)
    host = "127.0.0.1" if host == "localhost" else f"[{host}]" if ":" in host else host
    state_dir = state_home(env) / ("control" if port == 7080 else f"control-{port}")
    admin = ADMIN_PORT if port != ADMIN_PORT and is_free(ADMIN_PORT) else 0
    config, log = state_dir / "control.yaml", state_dir / "control.log"
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        config.write_text(
            "# Written by `reach run` for the control node it starts; overwritten at each start.\n"
            f'listen: {{api: "{host}:{port}", admin: "127.0.0.1:{admin}"}}\n'
            f"state_dir: {_quoted(state_dir)}\n"
            "log: {level: info, format: text}\n"
        )
        with suppress(OSError):
            if log.stat().st_size > LOG_SIZE:
                log.unlink()
        with open(log, "ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "reach_cli", "control", "-c", str(config), "--exit-when-idle", EXIT_WHEN_IDLE],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=dict(env),
            )
    except OSError as error:
        raise Failed(f"A control node could not be started from {state_dir}: {error}.") from None
    return process, log


def _quoted(path: Path) -> str:
    """A YAML string; `$` doubled, since configuration files expand it."""
    import json

    return json.dumps(str(path).replace("$", "$$"))
