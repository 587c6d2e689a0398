"""The link carries, cuts, freezes and refuses as it says: what the chaos tests stand on."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from harness.link import Link


class Echo:
    """A server that sends everything back."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.ended = threading.Event()  # one of its connections
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server.getsockname()[1])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)  # a close alone would wait for the accept
        self.server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                pass
            self.ended.set()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def link(echo: Echo) -> Iterator[Link]:
    link = Link("test", echo.port)
    yield link
    link.close()


def connect(link: Link) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), 5)


def read(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = client.recv(65536)
        if not more:
            break
        data += more
    return data


def test_carries_in_order(link: Link) -> None:
    """What came before the other end was there is not overtaken."""
    for _ in range(50):
        with connect(link) as client:
            sent = b"".join(b"%d;" % number for number in range(1000))
            client.sendall(sent[:100])
            client.sendall(sent[100:2000])
            client.sendall(sent[2000:])
            assert read(client, len(sent)) == sent
    assert link.accepted == 50


@pytest.mark.parametrize("end", ["caller", "both"])
def test_a_cut_resets(link: Link, echo: Echo, end: str) -> None:
    with connect(link) as client:
        client.sendall(b"x")
        read(client, 1)
        assert link.cut(1.0, end) == 1  # type: ignore[arg-type]
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert echo.ended.wait(0.3) == (end == "both")
        link.tell()
        assert echo.ended.wait(5)
    with connect(link) as client:
        client.sendall(b"x")
        assert read(client, 1) == b"x"


def test_a_cut_that_the_caller_does_not_hear_of(link: Link, echo: Echo) -> None:
    with connect(link) as client:
        client.sendall(b"x")
        read(client, 1)
        link.cut(1.0, "called")
        assert echo.ended.wait(5)
        client.sendall(b"lost")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        link.tell()
        client.settimeout(5)
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_frozen_link_holds_back_and_goes_on(link: Link) -> None:
    with connect(link) as old:
        old.sendall(b"x")
        read(old, 1)
        link.freeze(1.0)
        with connect(link) as new:
            for client in (old, new):
                client.sendall(b"late")
                client.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    client.recv(1)
            link.thaw()
            for client in (old, new):
                client.settimeout(5)
                assert read(client, 4) == b"late"


def test_down_refuses_and_leaves_what_is_there(link: Link) -> None:
    with connect(link) as client:
        client.sendall(b"x")
        read(client, 1)
        link.down()
        time.sleep(0.05)
        with pytest.raises(ConnectionRefusedError):
            connect(link)
        client.sendall(b"y")
        assert read(client, 1) == b"y"
    link.up()
    with connect(link) as client:
        client.sendall(b"z")
        assert read(client, 1) == b"z"


def test_nobody_behind_it(link: Link, echo: Echo) -> None:
    echo.close()
    time.sleep(0.05)
    with pytest.raises(ConnectionResetError), connect(link) as client:  # as early as in the connect
        client.recv(1)
