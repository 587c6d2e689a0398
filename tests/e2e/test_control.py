"""A control node as a real process: hard kills, taken ports, a shared or damaged state directory."""

import json
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from harness.mesh import REACH, Mesh, get, post, until
from harness.process import Process

SLOW_LEASE = {"heartbeat": "10s", "ttl": "30s", "down": "60s", "forget": "10m"}


def register(control: Process, agent_id: str = "a", instance: str = "i", **fields: Any) -> dict[str, Any]:
    body = {"agent_id": agent_id, "instance": instance, "address": "127.0.0.1:7071", "healthy": True} | fields
    status, answer = post(f"http://{control.ready['api']}/v1/register", body)
    assert status == 200, answer
    return dict(answer)


def register_many(control: Process, count: int) -> None:
    for n in range(count):
        register(control, f"agent-{n}")


def heartbeat(control: Process, agent_id: str = "a", instance: str = "i") -> int:
    body = {"agent_id": agent_id, "instance": instance, "healthy": True}
    return post(f"http://{control.ready['api']}/v1/heartbeat", body)[0]


def table(control: Process, query: str = "") -> dict[str, Any]:
    status, answer = get(f"http://{control.ready['api']}/v1/table{query}", timeout=40)
    assert status == 200, answer
    return dict(answer)


def ranks(control: Process) -> dict[str, str]:
    _, answer = get(f"http://{control.ready['admin']}/v1/peers")
    return {agent["agent_id"]: agent["status"] for agent in answer["agents"]}


def fails(mesh: Mesh, name: str, config: dict[str, Any]) -> str:
    """Run a node that cannot start; what it says on stderr."""
    path = mesh.write(f"{name}.yaml", config)
    done = subprocess.run(
        [REACH, "control", "-c", path], env=mesh.env, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_what_readers_have_seen_survives_a_hard_kill(mesh: Mesh) -> None:
    control = mesh.control(lease=SLOW_LEASE)
    for n in range(200):
        register(control, f"agent-{n}", f"instance-{n}")
    post(f"http://{control.ready['api']}/v1/leave", {"agent_id": "agent-7", "instance": "instance-7"})
    seen = until("all are shown", lambda: (t := table(control))["hash"] and len(t["entries"]) == 200 and t)
    control.kill()

    again = mesh.control(lease=SLOW_LEASE)
    restored = table(again)
    assert restored["epoch"] != seen["epoch"]
    assert restored["hash"] == seen["hash"]
    stranger = table(again, f"?since={seen['seq']}&epoch={seen['epoch']}&wait=25s")
    assert stranger["full"] is True

    assert heartbeat(again, "agent-3", "instance-3") == 200
    assert heartbeat(again, "agent-3", "another") == 409
    assert heartbeat(again, "agent-7", "instance-7") == 404
    assert table(again)["hash"] == seen["hash"]  # a renewal alters nothing


def test_killed_in_the_middle_of_registrations_it_starts_again(mesh: Mesh) -> None:
    control = mesh.control(lease=SLOW_LEASE)
    seen: dict[str, Any] = {}

    def watch() -> None:
        place = "?since=0"
        try:
            while True:
                answer = table(control, place)
                seen.update({entry[0]: entry[1:4] for entry in answer.get("entries", [])})
                place = f"?since={answer['seq']}&epoch={answer['epoch']}&wait=5s"
        except (OSError, AssertionError):
            return

    watching = threading.Thread(target=watch)
    watching.start()
    killer = threading.Timer(0.4, control.kill)
    killer.start()
    with pytest.raises((OSError, AssertionError)):
        register_many(control, 100_000)
    killer.join()
    watching.join(20)
    assert seen

    again = mesh.control(lease=SLOW_LEASE)
    known = {entry[0]: entry[1:4] for entry in table(again)["entries"]}
    missing = {agent_id for agent_id, order in seen.items() if known.get(agent_id, [0, 0, 0]) < order}
    assert not missing


def test_leases_lapse_and_come_back(mesh: Mesh) -> None:
    control = mesh.control(lease={"heartbeat": "200ms", "ttl": "600ms", "down": "2s", "forget": "4s"})
    register(control)
    assert ranks(control) == {"a": "up"}
    until("suspect", lambda: ranks(control) == {"a": "suspect"}, 5)
    assert heartbeat(control) == 200
    assert ranks(control) == {"a": "up"}
    until("down", lambda: ranks(control) == {"a": "down"}, 8)
    until("forgotten", lambda: ranks(control) == {}, 8)
    assert heartbeat(control) == 404
    events = [json.loads(line) for line in control.log.splitlines() if line.startswith("{")]
    said = [(line["event"], line["detail"]) for line in events if line.get("agent") == "a"]
    assert ("status", "up -> suspect") in said
    assert ("status", "suspect -> up") in said
    assert ("leave", "forgotten after long silence") in said


def test_a_node_that_was_stopped_blames_nobody(mesh: Mesh) -> None:
    control = mesh.control(lease={"heartbeat": "1s", "ttl": "3s", "down": "6s", "forget": "60s"})
    register(control)
    control.signal(signal.SIGSTOP)
    time.sleep(8)
    control.signal(signal.SIGCONT)
    until("it noticed", lambda: '"stalled"' in control.log, 10)
    assert ranks(control) == {"a": "up"}


def test_a_taken_port_names_port_and_holder(mesh: Mesh) -> None:
    control = mesh.control()
    for listener in ("api", "admin"):
        port = control.ready["admin"].rpartition(":")[2]
        listen = {"api": "127.0.0.1:0", "admin": "127.0.0.1:0"} | {listener: f"127.0.0.1:{port}"}
        said = fails(mesh, "second", {"listen": listen, "state_dir": str(mesh.folder / "second.state")})
        assert f"port {port} is in use by pid {control.pid} (" in said
        assert f"The setting is `listen.{listener}`." in said


def test_two_nodes_do_not_share_a_state_directory(mesh: Mesh) -> None:
    control = mesh.control()
    listen = {"api": "127.0.0.1:0", "admin": "127.0.0.1:0"}
    said = fails(mesh, "second", {"listen": listen, "state_dir": str(mesh.folder / "control.state")})
    assert f"in use by pid {control.pid} (" in said
    assert "set `state_dir`" in said


def test_a_damaged_database_says_what_to_do(mesh: Mesh) -> None:
    state = Path(mesh.folder / "broken.state")
    state.mkdir()
    (state / "table.sqlite").mkdir()
    listen = {"api": "127.0.0.1:0", "admin": "127.0.0.1:0"}
    said = fails(mesh, "broken", {"listen": listen, "state_dir": str(state)})
    assert "Cannot use the database" in said
    (state / "table.sqlite").rmdir()
    (state / "table.sqlite").write_bytes(b"this is no database" * 100)
    said = fails(mesh, "broken", {"listen": listen, "state_dir": str(state)})
    assert "table.sqlite is damaged" in said
    assert "Move it away" in said


def test_it_ends_cleanly_while_readers_wait(mesh: Mesh) -> None:
    control = mesh.control()
    place = table(control)
    answers: list[dict[str, Any]] = []
    query = f"?since={place['seq']}&epoch={place['epoch']}&wait=25s"
    reader = threading.Thread(target=lambda: answers.append(table(control, query)))
    reader.start()
    until("it waits", lambda: get(f"http://{control.ready['admin']}/v1/status")[1]["waiting"] == 1)
    register(control, "last")
    assert control.terminate(5) == 0
    reader.join(5)
    assert [entry[0] for entry in answers[0]["entries"]] == ["last"]
    assert control.ready_file is not None
    assert not control.ready_file.exists()
    assert ranks(mesh.control()) == {"last": "up"}


def test_sidecars_bring_the_token_that_control_asks_for(mesh: Mesh) -> None:
    mesh.env["REACH_API_TOKEN"] = "secret"
    control = mesh.control()
    mesh.serve("summarizer", control, "summarize")
    url = f"http://{control.ready['admin']}/v1/peers"
    assert get(url)[0] == 403

    def is_up() -> bool:
        _, peers = get(url, headers={"Reach-Api-Token": "secret"})
        return [(one["agent_id"], one["status"]) for one in peers["agents"]] == [("summarizer", "up")]

    until("registered with the token", is_up)
