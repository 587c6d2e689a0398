import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from itertools import pairwise
from socket import create_server, socket, socketpair

import pytest

from bench import load


def test_the_plan_keeps_the_rate_and_never_ticks_evenly() -> None:
    times = load.plan(rate=500, seconds=4)
    gaps = {round(after - before, 9) for before, after in pairwise(times)}
    assert len(times) == pytest.approx(2000, rel=0.02)
    assert min(gaps) >= 0.001
    assert max(gaps) <= 0.003
    assert len(gaps) > 1000
    assert times == load.plan(rate=500, seconds=4)


@pytest.mark.parametrize(("percent", "expected"), [(50, 50), (99, 99), (100, 100), (1, 1), (0, 1)])
def test_percentiles_are_nearest_rank(percent: int, expected: int) -> None:
    assert load.percentile([float(value) for value in range(1, 101)], percent) == expected


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        load.percentile([], 50)


@pytest.fixture
def slow_server() -> Iterator[str]:
    """One connection, each answer takes 20 ms."""
    listener = create_server(("127.0.0.1", 0))

    def answer(connection: socket) -> None:
        with connection:
            while connection.recv(4096):
                time.sleep(0.02)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def accept() -> None:
        connection, _ = listener.accept()
        answer(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    thread.join(5)
    listener.close()


def test_latency_counts_the_wait_for_a_connection(slow_server: str) -> None:
    """Ten calls at once on one connection: the last was meant to leave nine answers ago."""
    sender = load.Sender(slow_server, "/", connections=1)
    sender.run([0.0] * 10)
    found = sender.result(seconds=0.2)
    for one in sender.free:
        one.socket.close()
    assert (found["calls"], found["lost"], found["answers"]) == (10, 0, {"200": 10})
    assert found["max_ms"] >= 200
    assert 80 <= found["p50_ms"] < found["max_ms"]


def test_priming_is_not_counted(slow_server: str) -> None:
    sender = load.Sender(slow_server, "/", connections=1)
    sender.prime()
    assert sender.latencies_s == []
    sender.run([0.0, 0.001])
    assert sender.result(seconds=0.1)["answers"] == {"200": 2}
    sender.free[0].socket.close()


def test_it_counts_who_answered() -> None:
    ours, theirs = socketpair()
    sender = load.Sender.__new__(load.Sender)
    sender.latencies_s, sender.free, sender.answers, sender.agents = [], deque(), Counter(), Counter()
    one = load.Connection.__new__(load.Connection)
    one.socket, one.intended_s, one.answer = ours, 0.0, b""
    with ours, theirs:
        for who in (b"Reach-Agent: worker-1\r\n", b"reach-agent: worker-1\r\n", b""):
            sender.busy = {ours.fileno(): one}
            one.answer = b""
            theirs.sendall(b"HTTP/1.1 200 OK\r\n%bContent-Length: 2\r\n\r\nok" % who)
            sender._take(ours.fileno())
    assert sender.agents == {"worker-1": 2}
    assert sender.answers == {"200": 3}


def test_calls_without_an_answer_are_broken() -> None:
    listener = create_server(("127.0.0.1", 0))
    sender = load.Sender(f"127.0.0.1:{listener.getsockname()[1]}", "/", connections=1)
    listener.accept()[0].close()
    sender.run([0.0, 0.001])
    found = sender.result(seconds=0.1)
    assert (found["lost"], found["answers"]) == (2, {"broken": 1, "unsent": 1})
    listener.close()
