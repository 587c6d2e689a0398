"""Starting and ending: what the ready file says, what a wrong start says, and what an orderly end leaves behind."""

import json
import os
import re
import signal
import socket
import threading

from harness.mesh import Mesh, get, until
from harness.process import Process
from harness.wire import Answer, exchange


def ended(process: Process, seconds: float = 20) -> int:
    """The exit code of a process that is expected to end by itself."""
    until(f"{process.name} ends", lambda: not process.running, seconds)
    return process.popen.returncode


def test_the_ready_file_and_the_ready_line(mesh: Mesh) -> None:
    control = mesh.control()
    sidecar = mesh.serve("one", control, "work")
    assert set(control.ready) >= {"pid", "api", "admin"}
    assert set(sidecar.ready) >= {"pid", "outbound", "mesh", "admin"}
    assert control.ready["pid"] == control.pid
    assert sidecar.ready["pid"] == sidecar.pid
    for process, doors in ((control, ("api", "admin")), (sidecar, ("outbound", "mesh", "admin"))):
        for door in doors:
            assert process.ready[door] in process.log, "one line says where it listens"
    assert get(f"{sidecar.admin}/livez")[0] == 200
    until("the sidecar is ready", lambda: get(f"{sidecar.admin}/readyz")[0] == 200)
    assert get(f"http://{control.ready['admin']}/readyz")[0] == 200
    for process in (control, sidecar):
        assert process.memory_kib() < 60 * 1024, f"{process.name}: an idle daemon stays below 60 MiB"


def test_an_orderly_end(mesh: Mesh) -> None:
    """SIGTERM: calls under way are finished, the mesh is told at once, the exit code is 0, nothing is left open."""
    control = mesh.control(lease={"heartbeat": "5s", "ttl": "20s"})
    caller = mesh.sidecar("caller", control)
    sidecar = mesh.serve("one", control, "work")
    mesh.wait_usable(caller, "work")
    answers: list[Answer] = []
    url = f"{caller.url}/to/work/slow?s=1"
    thread = threading.Thread(target=lambda: answers.append(exchange(url, body=b"x")))
    assert sidecar.gauge("reach_agent_running") == 0
    thread.start()
    until("the call is at the agent", lambda: sidecar.gauge("reach_agent_running") == 1)
    sidecar.signal(signal.SIGTERM)
    until("the caller knows before the lease has run out", lambda: not caller.usable("work"), 5)
    thread.join(20)
    assert answers
    assert answers[0].status == 200
    assert ended(sidecar) == 0
    assert caller.terminate() == 0
    assert control.terminate() == 0
    assert get(mesh.find("one-agent").ready["url"])[0] == 200, "the agent is not ours to end"


def test_an_agent_that_never_answers_does_not_hold_the_end_up(mesh: Mesh) -> None:
    """Calls under way have `drain.grace`, not for ever."""
    control = mesh.control()
    agent = mesh.agent("one-agent")
    section = {"address": agent.ready["url"], "capabilities": [{"name": "work"}]}
    sidecar = mesh.sidecar("one", control, section, drain={"wait": "0s", "grace": "1s"})
    mesh.wait_usable(sidecar, "work")

    def hang() -> None:
        try:
            exchange(f"{sidecar.url}/to/work/hang", body=b"x", timeout=60)
        except OSError:
            pass

    thread = threading.Thread(target=hang, daemon=True)
    thread.start()
    until("the call is at the agent", lambda: sidecar.gauge("reach_agent_running") == 1)
    agent.signal(signal.SIGSTOP)
    assert sidecar.terminate(15) == 0


def test_a_port_in_use_is_named_with_its_holder(mesh: Mesh) -> None:
    control = mesh.control()
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        for door in ("outbound", "mesh", "admin"):
            listen = dict.fromkeys(("outbound", "mesh", "admin"), "127.0.0.1:0")
            listen[door] = f"127.0.0.1:{port}"
            sidecar = mesh.sidecar(f"blocked-{door}", control, listen=listen, ready=False)
            assert ended(sidecar) == 1
            assert str(port) in sidecar.log
            assert str(os.getpid()) in sidecar.log, "the holder is this very process"
            assert "Traceback" not in sidecar.log
        config = {"listen": {"api": f"127.0.0.1:{port}", "admin": "127.0.0.1:0"}, "state_dir": str(mesh.folder / "x")}
        from harness.mesh import REACH

        blocked = mesh.start("blocked", REACH, "control", "-c", mesh.write("blocked.yaml", config), ready=False)
        assert ended(blocked) == 1
        assert str(port) in blocked.log
        assert str(os.getpid()) in blocked.log
        assert "Traceback" not in blocked.log


def test_a_wrong_configuration_says_where(mesh: Mesh) -> None:
    from harness.mesh import REACH

    path = mesh.folder / "wrong.yaml"
    path.write_text("agent:\n  id: one\n  addres: http://127.0.0.1:9\ncontrol: [http://127.0.0.1:1]\n")
    process = mesh.start("wrong", REACH, "sidecar", "-c", path, ready=False)
    assert ended(process) in (1, 2)
    assert re.search(r"wrong\.yaml:3:3", process.log), process.log
    assert "address" in process.log, "the nearest known key"
    assert "Traceback" not in process.log


def test_control_that_cannot_be_reached(mesh: Mesh) -> None:
    """The sidecar starts, says so, and works when control is there, without a restart."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    agent = mesh.agent("one-agent")
    section = {"address": agent.ready["url"], "capabilities": [{"name": "work"}]}
    sidecar = mesh.sidecar("one", f"http://127.0.0.1:{port}", section)
    assert get(f"{sidecar.admin}/livez")[0] == 200
    status, answer = get(f"{sidecar.admin}/readyz")
    assert status == 503, answer
    until("it says that control is not there", lambda: f"127.0.0.1:{port}" in sidecar.log, 10)
    reply = exchange(f"{sidecar.url}/to/other/process", body=b"x")
    assert reply.status in (404, 503)
    assert reply.problem
    mesh.control(listen={"api": f"127.0.0.1:{port}", "admin": "127.0.0.1:0"})
    mesh.wait_usable(sidecar, "work", seconds=30)
    assert exchange(f"{sidecar.url}/to/work/process", body=b"x").status == 200
    until("it is ready", lambda: get(f"{sidecar.admin}/readyz")[0] == 200)


def test_a_sidecar_that_starts_while_control_is_down_uses_what_it_knew(mesh: Mesh) -> None:
    """Its last table lies in the state directory."""
    control = mesh.control()
    mesh.serve("one", control, "work")
    caller = mesh.sidecar("caller", control)
    mesh.wait_usable(caller, "work")
    assert caller.terminate() == 0
    control.kill()
    caller = mesh.sidecar("caller", control)
    mesh.wait_usable(caller, "work", seconds=10)
    assert exchange(f"{caller.url}/to/work/process", body=b"x").status == 200


def test_a_live_id_is_not_taken_over(mesh: Mesh) -> None:
    """The second process with the same id is refused and says why; the first goes on."""
    control = mesh.control()
    first = mesh.serve("one", control, "work")
    mesh.wait_usable(first, "work")
    agent = mesh.find("one-agent")
    section = {"id": "one", "address": agent.ready["url"], "capabilities": [{"name": "work"}]}
    second = mesh.sidecar("other", control, section, ready=False)
    until("the second says that the id is taken", lambda: "agent_id_conflict" in second.log, 15)
    assert exchange(f"{first.url}/to/work/process", body=b"x").status == 200


def test_both_loopbacks_and_only_ipv6(mesh: Mesh) -> None:
    """Addresses with brackets work everywhere: control, the three doors, the agent."""
    control = mesh.control(listen={"api": "[::1]:0", "admin": "[::1]:0"})
    agent = mesh.agent("six-agent", "echo.py", "--host", "::1")
    section = {"address": agent.ready["url"], "capabilities": [{"name": "work"}]}
    listen = {"outbound": "[::1]:0", "mesh": "[::1]:0", "admin": "[::1]:0"}
    sidecar = mesh.sidecar("six", control, section, listen=listen)
    assert sidecar.ready["outbound"].startswith("[::1]:")
    mesh.wait_usable(sidecar, "work")
    answer = exchange(f"{sidecar.url}/to/work/process", body=b"x")
    assert (answer.status, answer.json["agent"]) == (200, "six-agent")
    assert exchange(f"{sidecar.url}/to/@six/process", body=b"x").status == 200


def test_logs_are_json_lines(mesh: Mesh) -> None:
    control = mesh.control()
    sidecar = mesh.serve("one", control, "work")
    mesh.wait_usable(sidecar, "work")
    exchange(f"{sidecar.url}/to/work/process", body=b"x")
    until("the call is logged", lambda: '"event":"call"' in sidecar.log.replace('": "', '":"'), 5)
    lines = [json.loads(line) for line in sidecar.log.splitlines() if line.startswith("{")]
    assert all({"ts", "level", "event"} <= set(line) for line in lines), lines
