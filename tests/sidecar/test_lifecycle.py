"""A sidecar as a process: ready line and file, signals, exit codes, what a start that fails says."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reach_os.state_dir import lock_state_dir

# What `reach sidecar -c FILE --ready-file FILE` does, without the command line around it.
PROGRAM = """
import sys
from pathlib import Path
from reach_sidecar.config import load_sidecar
from reach_sidecar.lifecycle import run
sys.exit(run(load_sidecar(sys.argv[1]), Path(sys.argv[2]), lambda ready: print("told", ready["pid"], flush=True),
             Path(sys.argv[1])))
"""


class Started:
    def __init__(self, folder: Path, ready_file: str = "ready.json", **sections: Any) -> None:
        self.ready_file = folder / ready_file
        self.file = folder / "sidecar.yaml"
        self.config = {"agent": {"id": "b", "address": "http://127.0.0.1:9"}, "control": [],
                  "listen": dict.fromkeys(("outbound", "mesh", "admin"), "127.0.0.1:0"),
                  "state_dir": str(folder / "state"), "drain": {"wait": "0s", "grace": "100ms"}, **sections}
        self.file.write_text(json.dumps(self.config))
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, self.file, self.ready_file],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ready(self) -> dict[str, Any]:
        give_up = time.monotonic() + 15
        while not self.ready_file.exists():
            assert time.monotonic() < give_up, "not ready in time"
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)
        return dict(json.loads(self.ready_file.read_bytes()))

    def ended(self) -> tuple[int, str, str]:
        out, error = self.process.communicate(timeout=15)
        return self.process.returncode, out, error


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def one(**sections: Any) -> Started:
        started.append(Started(tmp_path, **sections))
        return started[-1]

    yield one
    for process in started:
        process.process.kill()
        process.process.communicate()


def connectable(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_and_then_a_clean_stop(start: Callable[..., Started], number: int) -> None:
    one = start()
    ready = one.ready()
    assert set(ready) == {"pid", "outbound", "mesh", "admin"}
    assert ready["pid"] == one.process.pid
    assert all(connectable(ready[door]) for door in ("outbound", "mesh", "admin"))
    assert not list(one.ready_file.parent.glob(".ready*")), "nobody sees half a file"
    one.process.send_signal(number)
    code, out, error = one.ended()
    assert code == 0, error
    assert out.splitlines() == [
        f"reach sidecar b ready: outbound {ready['outbound']}, mesh {ready['mesh']}, admin {ready['admin']}",
        f"told {ready['pid']}"]
    assert "Traceback" not in error
    assert not one.ready_file.exists(), "it is not ready any more"
    assert not any(connectable(ready[door]) for door in ("outbound", "mesh", "admin"))


def test_a_probe_listener_is_told_too(start: Callable[..., Started]) -> None:
    one = start(listen=dict.fromkeys(("outbound", "mesh", "admin", "probe"), "127.0.0.1:0"))
    ready = one.ready()
    assert status(ready["probe"], "10.0.0.1") == 200
    one.process.terminate()
    assert one.ended()[1].splitlines()[0].endswith(f"admin {ready['admin']}, probe {ready['probe']}")


def test_drain_ends_it_too(start: Callable[..., Started]) -> None:
    ready = start().ready()
    host, _, port = ready["admin"].rpartition(":")
    with socket.create_connection((host, int(port)), 5) as client:
        client.sendall(b"POST /v1/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        client.settimeout(10)
        assert client.recv(100).startswith(b"HTTP/1.1 20")
    give_up = time.monotonic() + 10
    while connectable(ready["outbound"]):
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_after_a_hard_death_the_next_start_needs_no_cleaning_up(start: Callable[..., Started]) -> None:
    one = start()
    one.ready()
    one.process.kill()
    one.process.wait()
    one.ready_file.unlink()
    again = start()
    again.ready()
    again.process.terminate()
    assert again.ended()[0] == 0


@pytest.mark.parametrize("told", ["signal", "written"])
def test_a_changed_file_takes_effect_without_a_restart(start: Callable[..., Started], told: str) -> None:
    one = start()
    ready = one.ready()
    one.file.write_text(json.dumps({**one.config, "allowed_hosts": ["box.example"]}))
    if told == "signal":
        one.process.send_signal(signal.SIGHUP)
    give_up = time.monotonic() + 15
    while status(ready["admin"], "box.example") != 200:
        assert time.monotonic() < give_up
        assert one.process.poll() is None, one.process.communicate()
        time.sleep(0.02)
    one.process.terminate()
    code, _, error = one.ended()
    assert code == 0
    assert "allowed_hosts changed" in error


def status(address: str, named: str) -> int:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 5) as client:
        client.sendall(f"GET /livez HTTP/1.1\r\nHost: {named}\r\nConnection: close\r\n\r\n".encode())
        return int(client.recv(100).split()[1])


def test_a_second_signal_ends_it_at_once(start: Callable[..., Started]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = start(agent={"id": "b", "address": f"http://127.0.0.1:{silent.getsockname()[1]}"},
                    drain={"wait": "0s", "grace": "10m"})
        host, _, port = one.ready()["outbound"].rpartition(":")
        with socket.create_connection((host, int(port)), 5) as client:
            target = f"http://127.0.0.1:{silent.getsockname()[1]}/"
            client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            silent.settimeout(10)
            called, _ = silent.accept()  # the health check or the call itself; either way nobody answers
            one.process.terminate()
            give_up = time.monotonic() + 10
            while one.process.poll() is None:
                assert time.monotonic() < give_up, "the second signal was not heard"
                if not connectable(f"{host}:{port}"):  # it is ending, and waits for the call
                    one.process.terminate()
                time.sleep(0.02)
            called.close()
    assert one.process.returncode == -signal.SIGTERM


def test_a_ready_file_that_cannot_be_written(start: Callable[..., Started], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    line = failed(start(ready_file="file/ready.json"))
    assert "Cannot say that it is ready" in line
    assert "file" in line


def failed(one: Started) -> str:
    code, out, error = one.ended()
    assert code == 1
    assert out == ""
    assert not one.ready_file.exists()
    assert "Traceback" not in error
    [line] = [line for line in error.splitlines() if line.startswith("reach sidecar: ")]
    return line


@pytest.mark.parametrize("door", ["outbound", "mesh", "admin"])
def test_a_port_in_use(start: Callable[..., Started], door: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        line = failed(start(listen={"outbound": "127.0.0.1:0", "mesh": "127.0.0.1:0", "admin": "127.0.0.1:0",
                                    door: address}))
    assert f"Cannot listen on {address}" in line
    assert f"pid {os.getpid()}" in line


def test_a_state_directory_in_use(start: Callable[..., Started], tmp_path: Path) -> None:
    lock = lock_state_dir(tmp_path / "state")
    line = failed(start())
    lock.release()
    assert f"The state directory {tmp_path / 'state'} is in use by pid {os.getpid()}" in line
