import socket

import pytest

from reach_cli import run_ports
from reach_cli.run_ports import FIRST_PORT, PORTS, free_port, is_free


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert not is_free(server.getsockname()[1])
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    assert is_free(port)


def test_the_same_wish_finds_the_same_port() -> None:
    port = free_port(4711)
    assert free_port(4711) == port
    assert FIRST_PORT <= port < FIRST_PORT + PORTS
    assert free_port(4711, frozenset({port})) != port
    assert FIRST_PORT <= free_port(2**32 - 1) < FIRST_PORT + PORTS


def test_all_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_ports, "is_free", lambda _: False)
    with pytest.raises(OSError, match="is free"):
        free_port(0)
