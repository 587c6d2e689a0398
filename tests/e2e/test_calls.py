"""One call's own limits: its time, the room at the agent, and a caller that gives up."""

import socket
import threading
import time

from harness.mesh import Mesh, get, until
from harness.wire import Answer, exchange
from harness.world import World


def test_the_time_of_a_call(world: World) -> None:
    """`Reach-Timeout` is lowered on its way, and kept."""
    answer = exchange(f"{world.url}/to/echo/process", [("Reach-Timeout", "5s")], b"x").json
    [value] = [value for name, value in answer["headers"] if name.lower() == "reach-timeout"]
    assert value.endswith("ms")
    assert 0 < int(value.removesuffix("ms")) <= 5000
    start = time.monotonic()
    late = exchange(f"{world.url}/to/echo/slow?s=10", [("Reach-Timeout", "400ms")], b"x")
    assert (late.status, late.problem) == (504, "deadline_exceeded")
    assert late.json["executed"] == "unknown"
    assert time.monotonic() - start < 3


def test_a_timeout_that_is_none_is_said(world: World) -> None:
    answer = exchange(f"{world.url}/to/echo/process", [("Reach-Timeout", "soon")], b"x")
    assert (answer.status, answer.problem) == (400, "bad_request")
    assert "Reach-Timeout" in answer.json["detail"]


def test_a_caller_that_goes_away_closes_the_agents_connection(world: World) -> None:
    agent = world.echo_agent.ready["url"]
    before = get(f"{agent}/gone")[1]["gone"]
    connection = socket.create_connection(("127.0.0.1", world.caller.port), timeout=10)
    connection.sendall(b"POST /to/echo/watch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx")
    time.sleep(0.3)
    assert get(f"{agent}/gone")[1]["gone"] == before
    connection.close()
    until("the agent sees it", lambda: get(f"{agent}/gone")[1]["gone"] == before + 1, 3)


def test_a_full_agent_refuses_at_once(mesh: Mesh) -> None:
    """One runs, one waits in the queue, and the third is told to come back instead of being kept."""
    control = mesh.control()
    caller = mesh.sidecar("caller", control)
    one = mesh.serve("one", control, "work", max_concurrency=1, queue=1)
    mesh.wait_usable(caller, "work")
    answers: list[Answer] = []
    url = f"{caller.url}/to/work/slow?s=3"

    def call() -> None:
        answers.append(exchange(url, [("Reach-Retries-Left", "0")], b"x"))

    threads = [threading.Thread(target=call) for _ in range(2)]
    assert one.gauge("reach_agent_running") == 0
    for thread, gauge in zip(threads, ("reach_agent_running", "reach_agent_queued"), strict=True):
        thread.start()
        until(f"{gauge} is 1", lambda gauge=gauge: one.gauge(gauge) == 1)
    refused = exchange(url, [("Reach-Retries-Left", "0")], b"x")
    assert not answers, "it did not wait for the others"
    assert (refused.status, refused.problem) == (503, "backpressure")
    assert refused.json["executed"] == "no"
    assert int(refused.one("retry-after")) >= 1
    for thread in threads:
        thread.join(20)
    assert [answer.status for answer in answers] == [200, 200]
