"""What sidecars learn from a real control node besides the entries: mesh-wide aliases, and the load of agents."""

import threading

from harness.mesh import Mesh, get, until
from harness.wire import exchange


def test_mesh_wide_aliases_route_survive_and_change(mesh: Mesh) -> None:
    control = mesh.control(aliases={"Email.Send": ["Notify_Email"]})
    agent = mesh.agent("mailer")
    served = {"address": agent.ready["url"], "capabilities": [{"name": "email-send"}]}
    mesh.sidecar("b", control, served)
    a = mesh.sidecar("a", control)
    until("a knows the mailer", lambda: a.usable("notify.email") == ["b"])
    answer = exchange(f"{a.url}/to/notify-email/x", body=b"{}")
    assert (answer.status, answer.one("Reach-Matched"), answer.one("Reach-Agent")) == (200, "alias", "b")
    assert exchange(f"{a.url}/to/email.send/x", body=b"{}").one("Reach-Matched") == "exact"

    a.terminate()
    control.kill()
    a = mesh.sidecar("a", f"http://{control.ready['api']}")  # on what it has noted, control being gone
    assert exchange(f"{a.url}/to/notify.email/x", body=b"{}").one("Reach-Matched") == "alias"
    status, ready = get(f"{a.admin}/readyz")
    assert status == 200
    assert any("routing on the cached table of" in line for line in ready["reasons"]), ready

    mesh.control(aliases={"email.send": ["mail"]}, listen={"api": control.ready["api"], "admin": "127.0.0.1:0"})
    until("the new alias is known", lambda: exchange(f"{a.url}/to/mail/x", body=b"{}").status == 200)
    gone = exchange(f"{a.url}/to/notify.email/x", body=b"{}")
    assert (gone.status, gone.problem) == (404, "no_such_capability")


def test_the_load_of_agents_called_lately_comes_with_the_heartbeat(mesh: Mesh) -> None:
    control = mesh.control()
    busy = mesh.agent("busy")
    idle = mesh.agent("idle")
    mesh.sidecar("b", control, {"address": busy.ready["url"], "capabilities": [{"name": "work"}]})
    a = mesh.sidecar("a", control, {"address": idle.ready["url"], "capabilities": [{"name": "rest"}]})
    c = mesh.sidecar("c", control)
    for caller in (a, c):
        until("the agent is up", lambda caller=caller: caller.usable("work") == ["b"])
    assert exchange(f"{a.url}/to/work/x", body=b"{}").status == 200
    slow = threading.Thread(target=lambda: exchange(f"{c.url}/to/work/slow?s=6", body=b"{}", timeout=20))
    slow.start()

    def running() -> bool:
        status, document = get(f"{a.url}/v1/agents/b")
        return status == 200 and document["load"]["running"] == 1

    until("a has heard of the call that c made", running, 5.5)
    slow.join()
