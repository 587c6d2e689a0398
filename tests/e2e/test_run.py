"""`reach run` with real agents: environment, signals, exit codes, finding each other, and nothing left behind."""

import asyncio
import contextlib
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.mesh import REACH, get, post, until

from reach_cli import demo_job, run_session
from reach_cli.demo_agents.summarizer import summarise
from reach_cli.run_directory import notes
from reach_cli.run_session import Session
from reach_sidecar.config import DrainConfig, SidecarConfig

SUMMARIZER = demo_job.AGENTS / "summarizer.py"
# Listens on $PORT and says what signal it got; exits with 40 + n.
LISTENER = """
import http.server, os, signal, sys
class Agent(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    do_POST = do_GET
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Agent)
def stop(number, _):
    print("got", signal.Signals(number).name, flush=True); os._exit(40 + number)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, stop)
print("up", flush=True)
server.serve_forever()
"""


class Laptop:
    """A home of its own, and a control node's port that nobody else uses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            self.control = f"http://127.0.0.1:{unused.getsockname()[1]}"
        self.env = {**os.environ, "REACH_LAPTOP": str(folder)}
        self.runs: list[subprocess.Popen[str]] = []

    def run(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """`reach run ARGS...`; everything it prints goes to pipes."""
        command = [str(REACH), "run", "--control", self.control, *args]
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        run = subprocess.Popen(command, text=True, env=self.env, cwd=self.folder, **options)
        self.runs.append(run)
        return run

    def ready(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """The same, once it has said that the agent is ready."""
        run = self.run(*args, **options)
        assert run.stderr is not None
        said = []
        while not said or "is ready on port" not in said[-1]:
            line = run.stderr.readline()
            assert line, f"ended with {run.wait(5)}: {''.join(said)}"
            said.append(line)
        return run

    def note(self, agent_id: str) -> dict[str, Any]:
        return next(note for note in notes("sidecar") if note["id"] == agent_id)

    def left(self) -> list[str]:
        """What still lives of all that was started here, control nodes apart."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (process / "environ").read_bytes()
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                if f"REACH_LAPTOP={self.folder}".encode() in environment and state != "Z" and " control " not in command:
                    found.append(command)
        return found

    def stop(self) -> None:
        for run in self.runs:
            run.kill()
            run.communicate(timeout=10)
        for note in notes("control"):
            with contextlib.suppress(OSError):
                os.kill(note["pid"], signal.SIGKILL)


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    made = Laptop(tmp_path)
    yield made
    made.stop()
    until("nothing is left", lambda: not made.left(), 10)


def test_environment_and_exit_code(laptop: Laptop) -> None:
    code = "import json, os, sys; print(json.dumps(dict(os.environ))); sys.exit(23)"
    out, err = laptop.run("--", sys.executable, "-c", code).communicate(timeout=40)
    assert laptop.runs[0].returncode == 23, err
    env = json.loads(out)
    assert env["http_proxy"] == env["HTTP_PROXY"] == env["REACH_URL"]
    assert env["REACH_URL"].startswith("http://127.0.0.1:")
    assert "127.0.0.0/8" in env["no_proxy"]
    assert env["PORT"].isdigit()
    assert f"started a control node at {laptop.control}" in err
    assert notes("sidecar") == [], "the note goes with the run"


def test_two_runs_find_each_other(laptop: Laptop) -> None:
    """One is called by name through http_proxy, by an agent that knows no address."""
    laptop.ready("--capability", "summarize", "--", sys.executable, str(SUMMARIZER))
    code = (
        "import json, time, urllib.request, urllib.error\n"
        "job = json.dumps({'task': 'Cats sleep. Cats purr and sleep. Dogs bark.'}).encode()\n"
        "for _ in range(200):\n"
        "    try:\n"
        "        print(urllib.request.urlopen('http://summarize.reach/process', job, 10).read().decode())\n"
        "        break\n"
        "    except urllib.error.HTTPError as error: time.sleep(0.1); last = error.read()\n"
        "else: raise SystemExit(last)\n"
    )
    out, err = laptop.run("--", sys.executable, "-c", code).communicate(timeout=50)
    assert laptop.runs[1].returncode == 0, err
    assert json.loads(out) == {"summary": summarise("Cats sleep. Cats purr and sleep. Dogs bark.", 1, [])}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_signals_reach_the_agent(laptop: Laptop, number: signal.Signals) -> None:
    run = laptop.ready("--id", "one", "--", sys.executable, "-c", LISTENER)
    run.send_signal(number)
    out, err = run.communicate(timeout=20)
    assert out == f"up\ngot {number.name}\n"
    assert run.returncode == 40 + number
    assert "Traceback" not in err


def test_an_agent_that_a_signal_ended(laptop: Laptop) -> None:
    run = laptop.run("--", "sh", "-c", "kill -SEGV $$")
    run.communicate(timeout=40)
    assert run.returncode == 128 + signal.SIGSEGV


def test_killing_reach_run_leaves_nothing(laptop: Laptop) -> None:
    """Its agent, a child of that in another session, and one that ignores SIGTERM."""
    script = f"setsid sleep 300 & sh -c 'trap \"\" TERM; sleep 300' & exec {sys.executable} -c '{LISTENER}'"
    run = laptop.ready("--id", "one", "--", "sh", "-c", script)
    assert len(laptop.left()) >= 5
    run.kill()
    run.wait(10)
    until("nothing is left", lambda: not laptop.left(), 10)
    assert notes("sidecar") == []
    laptop.ready("--id", "one", "--", sys.executable, "-c", LISTENER)


def test_killing_the_agent_ends_the_run(laptop: Laptop) -> None:
    run = laptop.ready("--id", "one", "--capability", "work", "--", sys.executable, "-c", LISTENER)
    other = laptop.ready("--id", "two", "--", sys.executable, "-c", LISTENER)
    url = f"http://{laptop.note('two')['outbound']}/v1/agents?capability=work"
    until("the other one sees it", lambda: [a["status"] for a in get(url)[1]["agents"]] == ["up"])
    agent = next(
        int(process.name) for process in Path("/proc").glob("[0-9]*")
        if process.name != str(os.getpid()) and _is_agent_of(process, laptop.note("one")["outbound"])
    )  # fmt: skip
    os.kill(agent, signal.SIGKILL)
    run.communicate(timeout=20)
    assert run.returncode == 128 + signal.SIGKILL
    until("the mesh was told", lambda: all(a["status"] != "up" for a in get(url)[1]["agents"]), 5)
    assert [note["id"] for note in notes("sidecar")] == ["two"]
    other.terminate()
    other.communicate(timeout=20)


def _is_agent_of(process: Path, outbound: str) -> bool:
    with contextlib.suppress(OSError):
        environment = (process / "environ").read_bytes()
        command = (process / "cmdline").read_bytes()
        return f"REACH_URL=http://{outbound}".encode() in environment and b"run_shim" not in command
    return False


def test_the_same_id_twice_is_refused(laptop: Laptop) -> None:
    first = laptop.ready("--id", "one", "--", sys.executable, "-c", LISTENER)
    second = laptop.run("--id", "one", "--", "true")
    _, err = second.communicate(timeout=20)
    assert second.returncode == 1
    assert "'one' is running already" in err
    assert f"process {first.pid}" in err


def test_the_control_node_outlives_who_started_it(laptop: Laptop) -> None:
    first = laptop.ready("--id", "one", "--", sys.executable, "-c", LISTENER)
    laptop.ready("--id", "two", "--capability", "work", "--", sys.executable, "-c", LISTENER)
    first.kill()
    first.wait(10)
    laptop.ready("--id", "three", "--", sys.executable, "-c", LISTENER)
    url = f"http://{laptop.note('three')['outbound']}/v1/agents?capability=work"
    until("the third finds the second", lambda: [a["status"] for a in get(url)[1]["agents"]] == ["up"])
    assert len(notes("control")) == 1


def test_a_control_node_that_was_killed_is_started_again(laptop: Laptop) -> None:
    laptop.ready("--id", "one", "--capability", "work", "--", sys.executable, "-c", LISTENER)
    (control,) = notes("control")
    os.kill(control["pid"], signal.SIGKILL)
    until("another one answers", lambda: get(f"{laptop.control}/livez")[0] == 200, 25)
    admin = until("it is noted", lambda: [n for n in notes("control") if n["pid"] != control["pid"]])[0]["admin"]
    peers = f"http://{admin}/v1/peers"
    until("the agent is registered", lambda: [a["agent_id"] for a in get(peers)[1]["agents"]] == ["one"], 30)


def test_a_control_node_stops_when_nobody_needs_it(laptop: Laptop) -> None:
    config = laptop.folder / "control.yaml"
    config.write_text(f"listen: {{api: '{laptop.control[7:]}', admin: '127.0.0.1:0'}}\nstate_dir: {laptop.folder}/c\n")
    command = [str(REACH), "control", "-c", str(config), "--exit-when-idle"]
    with subprocess.Popen([*command, "1s"], env=laptop.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as idle:
        assert idle.wait(15) == 0
    with subprocess.Popen([*command, "4s"], env=laptop.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as busy:
        until("it answers", lambda: get(f"{laptop.control}/livez")[0] == 200)
        run = laptop.ready("--id", "one", "--", sys.executable, "-c", LISTENER)
        with pytest.raises(subprocess.TimeoutExpired):
            busy.wait(5.5)
        run.terminate()
        run.communicate(timeout=20)
        assert busy.wait(15) == 0


def test_a_taken_port_names_its_holder(laptop: Laptop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        config = laptop.folder / "sidecar.yaml"
        config.write_text(
            f"agent: {{id: one}}\nlisten: {{outbound: '127.0.0.1:{port}', mesh: '127.0.0.1:0', admin: '127.0.0.1:0'}}\n"
        )
        run = laptop.run("-c", str(config), "--", "true")
        _, err = run.communicate(timeout=40)
        assert run.returncode == 1
        assert f"port {port} is in use by pid {os.getpid()}" in err
        assert "--auto-ports" in err
        run = laptop.run("-c", str(config), "--auto-ports", "--", "true")
        _, err = run.communicate(timeout=40)
        assert run.returncode == 0, err


def test_wrong_files_and_commands(laptop: Laptop) -> None:
    config = laptop.folder / "sidecar.yaml"
    config.write_text("agent: {id: one, adress: 'http://127.0.0.1:9'}\n")
    run = laptop.run("-c", str(config), "--", "true")
    _, err = run.communicate(timeout=20)
    assert run.returncode == 1
    assert "sidecar.yaml:1:" in err
    assert "address" in err
    run = laptop.run("--", "no-such-command")
    _, err = run.communicate(timeout=20)
    assert run.returncode == 127
    assert "'no-such-command' is not found" in err


def test_an_agent_that_registers_itself_under_its_own_name(laptop: Laptop) -> None:
    code = (
        "import json, os, urllib.request\n"
        "me = {'agent_id': 'my-own-name', 'address': f\"http://127.0.0.1:{os.environ['PORT']}\", "
        "'health_path': '/', 'max_concurrency': 2, 'capabilities': ['work']}\n"
        "request = urllib.request.Request(os.environ['REACH_URL'] + '/agents/register', json.dumps(me).encode(), "
        "{'Content-Type': 'application/json'})\n"
        "print(urllib.request.urlopen(request, timeout=10).read().decode(), flush=True)\n"
    )
    run = laptop.ready("--", sys.executable, "-c", code + LISTENER)
    assert run.stdout is not None
    assert json.loads(run.stdout.readline())["status"] == "registered"
    (note,) = notes("sidecar")
    url = f"http://{note['outbound']}"
    until("it is called", lambda: post(f"{url}/to/work", {})[0] == 200)


def test_standard_input_is_the_agents(laptop: Laptop) -> None:
    run = laptop.run("--", "cat", stdin=subprocess.PIPE)
    out, _ = run.communicate("one\ntwo\n", timeout=40)
    assert (run.returncode, out) == (0, "one\ntwo\n")


def test_on_a_terminal(laptop: Laptop) -> None:
    """The agent can read from it, and Ctrl-C is the agent's; the shell's view: one job that ends with 130."""
    ours, theirs = pty.openpty()
    code = "print('name?', flush=True); print('hello', input(), flush=True); import time; time.sleep(60)"
    run = laptop.run(
        "--", sys.executable, "-c", code, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    shown = _read_until(ours, "name?")
    os.write(ours, b"world\n")
    shown = _read_until(ours, "hello world")
    os.write(ours, b"\x03")
    shown += _read_until(ours, "KeyboardInterrupt")
    assert run.wait(20) == 128 + signal.SIGINT
    assert "hello world" in shown
    os.close(ours)


def test_job_control(laptop: Laptop) -> None:
    """Ctrl-Z gives the shell its prompt back, `fg` the agent its terminal, also after it wanted to read in `bg`."""
    bash, terminal = pty.fork()
    if bash == 0:
        os.chdir(laptop.folder)
        os.execvpe("bash", ["bash", "--norc", "--noediting", "-i"], {**laptop.env, "PS1": "$ ", "TERM": "dumb"})
    agent = f"""{sys.executable} -c 'while True: print("got", input())'"""
    try:
        _type(terminal, f"{REACH} run --control {laptop.control} -- {agent}\n", "started a control node")
        _type(terminal, "one\n", "got one")
        _type(terminal, "\x1a", "Stopped")
        _type(terminal, "fg\n", "reach run")
        _type(terminal, "two\n", "got two")
        _type(terminal, "\x1a", "Stopped")
        _type(terminal, "bg\n", "reach run")
        _type(terminal, "sleep 0.5; jobs\n", "Stopped")
        _type(terminal, "fg\n", "reach run")
        _type(terminal, "three\n", "got three")
        _interrupt(terminal)
        _type(terminal, "echo code=$?\n", "code=130")
    finally:
        os.close(terminal)
        os.kill(bash, signal.SIGKILL)
        os.waitpid(bash, 0)


def test_the_examples(laptop: Laptop) -> None:
    """As their README says, in one folder that is not theirs."""
    examples = Path(__file__).resolve().parents[2] / "examples"
    laptop.ready("-c", str(examples / "greeter.yaml"), "--auto-ports", "--", sys.executable, str(examples / "greeter.py"))
    laptop.ready("--", sys.executable, str(examples / "self_registering.py"))
    url = f"http://{laptop.note('greeter-01')['outbound']}"
    until("both are up", lambda: {a["status"] for a in get(f"{url}/v1/agents")[1]["agents"]} == {"up"})
    out, err = laptop.run("--", sys.executable, str(examples / "caller.py")).communicate(timeout=40)
    assert laptop.runs[-1].returncode == 0, err
    first, second = out.splitlines()
    assert first == "Hello, world! said greeter-01"
    assert second.startswith("Hello, world! in trace ")
    assert post(f"{url}/to/say.hello", {"task": "you"})[1] == {"greeting": "Hello, you!"}
    answer = until("it registered itself", lambda: post(f"{url}/tasks/run", {"capability": "reverse", "task": "abc"}))
    assert answer[0] == 200
    assert answer[1]["reversed"] == "cba"


def test_the_hint_names_what_the_agent_registered_itself_as(laptop: Laptop) -> None:
    register = (
        "import json, os, urllib.request\n"
        "me = {'agent_id': 'reverser-01', 'address': 'http://127.0.0.1:' + os.environ['PORT'],"
        " 'capabilities': ['reverse']}\n"
        "request = urllib.request.Request(os.environ['REACH_URL'] + '/agents/register', json.dumps(me).encode(),"
        " {'Content-Type': 'application/json'})\n"
        "urllib.request.urlopen(request).read()\n"
    )
    run = laptop.ready("--", sys.executable, "-c", register + LISTENER)
    assert run.stderr is not None
    assert "/to/reverse -d" in run.stderr.readline()


def _type(terminal: int, keys: str, expected: str) -> None:
    os.write(terminal, keys.encode())
    _read_until(terminal, expected)


def _interrupt(terminal: int) -> None:
    """Ctrl-C until the agent shows it: Python's `input` misses one that comes just before it begins to read."""
    for _ in range(20):
        os.write(terminal, b"\x03")
        with contextlib.suppress(AssertionError):
            _read_until(terminal, "KeyboardInterrupt", 2.0)
            return
    raise AssertionError("twenty times Ctrl-C, and no KeyboardInterrupt")


def _read_until(terminal: int, text: str, seconds: float = 40.0) -> str:
    shown, deadline = "", time.monotonic() + seconds
    while text not in shown:
        readable, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
        assert readable, f"{text!r} did not come; seen: {shown}"
        shown += os.read(terminal, 4096).decode("utf-8", "replace")
    return shown


class Stopping:
    """A sidecar that takes its time to stop."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.stopped = False

    async def stop(self) -> None:
        await asyncio.sleep(self.seconds)
        self.stopped = True


def stopping(seconds: float, grace_s: float) -> tuple[Session, Stopping]:
    plan: Any = SimpleNamespace(config=SidecarConfig(drain=DrainConfig(grace=grace_s)))
    session, sidecar = Session(plan, ["true"], sys.stderr, lambda text: None), Stopping(seconds)
    session.sidecar, session.told_to_stop = sidecar, asyncio.Event()  # type: ignore[assignment]
    return session, sidecar


async def test_the_sidecar_has_its_grace_to_end_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_session, "STOP_SLACK_S", 0.0)
    for seconds, grace_s, is_stopped in ((0.05, 20.0, True), (3600.0, 0.05, False)):
        session, sidecar = stopping(seconds, grace_s)
        await asyncio.wait_for(session._stop_sidecar(), 10)
        assert sidecar.stopped is is_stopped


async def test_who_insists_does_not_wait_for_calls() -> None:
    session, sidecar = stopping(3600.0, 3600.0)
    session.sidecar.local = SimpleNamespace(set_draining=lambda draining: None)  # type: ignore[union-attr,assignment]
    end = asyncio.create_task(session._stop_sidecar())
    await asyncio.sleep(0)
    for _ in range(run_session.INSISTED):
        assert not end.done()
        session._on_signal(signal.SIGINT)
    await asyncio.wait_for(end, 10)
    assert not sidecar.stopped
