"""An agent that died, hangs or moved while its sidecar lives: seen, said, and used again when it is back."""

import signal
import time

from harness.mesh import Mesh, Sidecar, post, until
from harness.wire import exchange

HEALTH = {"path": "/healthz", "interval": "300ms", "timeout": "300ms", "fail": 3}


def excluded(caller: Sidecar, agent_id: str) -> str | None:
    """Why the caller would not call this agent now."""
    [agent] = [agent for agent in caller.agents() if agent["agent_id"] == agent_id]
    return agent["excluded"]["reason"] if agent["excluded"] else None


def test_a_stopped_agent_becomes_unfit_and_fit_again(mesh: Mesh) -> None:
    """SIGSTOP: the kernel still accepts its connections, only the health check's time-out shows it."""
    control = mesh.control()
    caller = mesh.sidecar("caller", control)
    mesh.serve("one", control, "work", health=HEALTH)
    mesh.wait_usable(caller, "work")
    agent = mesh.find("one-agent")
    agent.signal(signal.SIGSTOP)
    until("the caller excludes it as unfit", lambda: excluded(caller, "one") == "agent_unfit", 15)
    start = time.monotonic()
    answer = exchange(f"{caller.url}/to/work/process", body=b"x")
    assert time.monotonic() - start < 3
    assert (answer.status, answer.problem) == (503, "no_agent_available")
    assert answer.all("retry-after")
    assert "one" in answer.json["detail"], "says who is there and why not"
    agent.signal(signal.SIGCONT)
    until("it is used again", lambda: excluded(caller, "one") is None, 15)
    assert exchange(f"{caller.url}/to/work/process", body=b"x").status == 200


def test_a_dead_agent_is_refused_not_run(mesh: Mesh) -> None:
    """Before any health check: the called sidecar says so, and another agent does the work in the same call."""
    control = mesh.control()
    caller = mesh.sidecar("caller", control)
    mesh.serve("one", control, "work", health={"interval": "60s"})
    mesh.serve("two", control, "work", health={"interval": "60s"})
    mesh.wait_usable(caller, "work", 2)
    mesh.find("one-agent").kill()
    attempts = []
    for _ in range(20):
        answer = exchange(f"{caller.url}/to/work/process", body=b"x")
        assert answer.status == 200
        assert answer.one("reach-agent") == "two"
        attempts.append(answer.one("reach-attempts"))
    until("the caller knows", lambda: excluded(caller, "one") is not None, 10)
    assert set(attempts) <= {"1", "2"}


def test_a_dead_agent_named_by_its_id(mesh: Mesh) -> None:
    control = mesh.control()
    caller = mesh.sidecar("caller", control)
    mesh.serve("one", control, "work", health={"interval": "60s"})
    mesh.wait_usable(caller, "work")
    mesh.find("one-agent").kill()
    answer = exchange(f"{caller.url}/to/@one/process", body=b"x")
    assert answer.status in (502, 503)
    assert answer.problem in ("no_agent_available", "retries_exhausted")
    assert answer.json["executed"] == "no"


def test_an_agent_that_came_back_on_another_port(mesh: Mesh) -> None:
    """It says so through the articles' interface; nothing is restarted but the agent itself."""
    control = mesh.control()
    caller = mesh.sidecar("caller", control)
    sidecar = mesh.serve("one", control, "work", health=HEALTH)
    mesh.wait_usable(caller, "work")
    mesh.find("one-agent").kill()
    moved = mesh.agent("one-agent-moved")
    document = {
        "agent_id": "one", "address": moved.ready["url"], "health_path": "/healthz",
        "max_concurrency": 4, "capabilities": ["work"],
    }  # fmt: skip
    status, answer = post(f"{sidecar.url}/agents/register", document)
    assert (status, answer["status"], answer["agent_id"]) == (200, "registered", "one")

    def moved_answers() -> bool:
        reply = exchange(f"{caller.url}/to/work/process", body=b"x")
        return reply.status == 200 and reply.json["agent"] == "one-agent-moved"

    until("calls arrive at the new port", moved_answers, 15)


def test_a_dead_sidecar_is_skipped_within_the_call(mesh: Mesh) -> None:
    """Its connection is refused, so nothing ran: every call succeeds, long before the lease has run out."""
    control = mesh.control(lease={"heartbeat": "5s", "ttl": "20s"})
    caller = mesh.sidecar("caller", control)
    first = mesh.serve("one", control, "work")
    mesh.serve("two", control, "work")
    mesh.wait_usable(caller, "work", 2)
    first.kill()
    for _ in range(20):
        answer = exchange(f"{caller.url}/to/work/process", body=b"x")
        assert (answer.status, answer.json["agent"]) == (200, "two-agent")


def test_a_dead_sidecar_is_noticed_by_its_lease(mesh: Mesh) -> None:
    control = mesh.control()
    caller = mesh.sidecar("caller", control)
    one = mesh.serve("one", control, "work")
    mesh.wait_usable(caller, "work")
    one.kill()
    reasons = {"agent_down", "unreachable"}
    until("it is not called any more", lambda: excluded(caller, "one") in reasons, 20)
