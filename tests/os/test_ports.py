import errno
import os
import socket
import subprocess
import sys

import pytest

from reach_os.ports import (
    PortError,
    address_of,
    configured_as,
    describe_bind_error,
    describe_process,
    listen,
    listen_pair,
    who_listens,
)


def test_a_free_port_is_listened_on() -> None:
    with listen("127.0.0.1", 0) as made:
        host, _, port = address_of(made).rpartition(":")
        assert host == "127.0.0.1"
        with socket.create_connection(("127.0.0.1", int(port)), 5):
            pass
        assert who_listens(int(port)) == f"pid {os.getpid()} ({describe_process(os.getpid())})"
    assert who_listens(int(port)) is None


def test_a_taken_port_names_the_holder() -> None:
    code = "import socket,sys; s=socket.create_server(('127.0.0.1',0)); print(s.getsockname()[1], flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        port = int(holder.stdout.readline())
        with pytest.raises(PortError) as caught:
            listen("127.0.0.1", port)
        holder.kill()
    assert f"port {port} is in use by pid {holder.pid} (" in str(caught.value)
    assert "configure another port" in str(caught.value)


def test_the_setting_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        said = r"configure another port\. The setting is `listen\.mesh`\.$"
        with pytest.raises(PortError, match=said), configured_as("listen.mesh"):
            listen("127.0.0.1", taken)
    with configured_as("listen.mesh"), listen("127.0.0.1", 0) as made:
        assert address_of(made)


def test_an_address_of_another_machine() -> None:
    with pytest.raises(PortError, match=r"has no address 192\.0\.2\.1"):
        listen("192.0.2.1", 0)
    with pytest.raises(PortError, match="is not an address of this machine"):
        listen("nowhere.invalid", 0)


def test_other_reasons() -> None:
    assert "above 1023" in describe_bind_error(PermissionError(errno.EACCES, "Permission denied"), "127.0.0.1", 80)
    assert "[::1]:80" in describe_bind_error(OSError(errno.EMFILE, "Too many open files"), "::1", 80)


def test_ipv6_is_in_brackets() -> None:
    try:
        made = listen("::1", 0)
    except PortError:
        pytest.skip("no IPv6 here")
    with made:
        assert address_of(made).startswith("[::1]:")


def test_a_process_that_is_gone() -> None:
    assert describe_process(2**22 + 1) == "gone"


def test_a_pair_has_one_port_for_both_protocols() -> None:
    stream, datagrams = listen_pair("127.0.0.1", 0)
    with stream, datagrams:
        assert stream.getsockname() == datagrams.getsockname()
        assert datagrams.type & socket.SOCK_DGRAM


def test_a_pair_says_when_only_the_udp_port_is_taken() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        with pytest.raises(PortError, match=f"UDP port {port} is in use by pid {os.getpid()} "):
            listen_pair("127.0.0.1", port)
        listen("127.0.0.1", port).close()  # nothing of the failed attempt is left


def test_a_pair_on_a_free_port_looks_for_one_that_is_free_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        wanted = [holder.getsockname()[1], 0]
        real = listen

        def first_the_taken_one(host: str, port: int, backlog: int) -> socket.socket:
            return real(host, wanted.pop(0), backlog)

        monkeypatch.setattr("reach_os.ports.listen", first_the_taken_one)
        stream, datagrams = listen_pair("127.0.0.1", 0)
        with stream, datagrams:
            assert stream.getsockname()[1] != holder.getsockname()[1]
    assert not wanted
