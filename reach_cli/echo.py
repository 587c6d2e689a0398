"""`reach echo`: is this capability reachable, and if not, which step fails and what mends it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from reach_cli.admin import Door, Sidecar, admin_option, find_sidecar, json_option
from reach_cli.agents import agents_of
from reach_cli.call import GRACE_S, budget, content_type, explain, is_problem, request, target_path
from reach_cli.discover import nobody
from reach_cli.failure import Failed
from reach_cli.terminal import paint, print_json

STEP_WIDTH = 11


class Steps:
    """The steps as they are passed, printed at once or kept for --json."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.passed: list[dict[str, Any]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """Time one step; the body puts what it found under `detail`. A Failed ends the test."""
        result: dict[str, Any] = {"step": name, "ok": True, "detail": ""}
        began = time.perf_counter()
        try:
            yield result
        except Failed as failure:
            result.update(ok=False, detail=failure.message)
            raise
        finally:
            result["ms"] = round((time.perf_counter() - began) * 1000, 1)
            self.passed.append(result)
            if not self.as_json:
                self._print(result)

    def _print(self, result: dict[str, Any]) -> None:
        mark = paint("ok", "green") + "  " if result["ok"] else paint("FAIL", "red", bold=True)
        # A failure's sentence goes to stderr once, as the verb's own error.
        detail = result["detail"] if result["ok"] else ""
        click.echo(f"{mark} {result['step']:<{STEP_WIDTH}} {result['ms']:>8.1f} ms  {detail}".rstrip())


@click.command("echo")
@click.argument("capability", metavar="CAP")
@click.option("-d", "--data", metavar="TEXT", help="POST this body instead of asking with GET.")
@click.option(
    "--timeout", default="10s", show_default=True, metavar="DURATION", help="The budget of the call."
)
@admin_option
@json_option
def command(capability: str, data: str | None, timeout: str, admin: str | None, as_json: bool) -> None:
    """Test capability CAP step by step: sidecar, discovered, connected, answered.

    Without -d the agent is asked with GET, which changes nothing. Any answer of the agent's own, even 404 or 501,
    proves the way to it; the status is printed, with a remark where it is no success.

    \b
    Example:
      reach echo summarize
      reach echo summarize -d '{"task": "ping"}'
    """
    budget_s = budget(timeout)
    steps = Steps(as_json)
    try:
        with steps.step("sidecar") as result:
            sidecar = find_sidecar(admin)
            result["detail"] = f"{sidecar.agent_id}'s sidecar takes calls at {sidecar.outbound.url}"
        with steps.step("discovered") as result:
            agents = _discover(sidecar, capability)
            result["detail"] = ", ".join(str(agent["agent_id"]) for agent in agents)
        with steps.step("connected") as result:
            result["detail"] = _connect(agents)
        with steps.step("answered") as result:
            result["detail"] = _ask(sidecar, capability, data, timeout, budget_s + GRACE_S)
    finally:
        if as_json:
            ok = all(step["ok"] for step in steps.passed)
            print_json({"capability": capability, "ok": ok, "steps": steps.passed})


def _discover(sidecar: Sidecar, capability: str) -> list[dict[str, Any]]:
    """The agents that can take a call now, else those that could once what excludes them is mended."""
    if capability.startswith("@"):
        agents = [a for a in agents_of(sidecar.outbound.get("/v1/agents")) if a["agent_id"] == capability[1:]]
    else:
        agents = agents_of(sidecar.outbound.get("/v1/agents", {"capability": capability}))
    if not agents:
        raise Failed(nobody(sidecar, capability))
    usable = [agent for agent in agents if not agent.get("excluded")]
    if not usable:
        why = "; ".join(f"{a['agent_id']}: {a['excluded'].get('detail') or a.get('status')}" for a in agents)
        raise Failed(f"None of the agents that serve {capability!r} can take a call now. {why}")
    return usable


def _connect(agents: list[dict[str, Any]]) -> str:
    """Open a connection to each sidecar's mesh address; one that takes it is enough."""
    refused, taken = [], []
    for agent in agents:
        address = str(agent.get("address") or "")
        door = Door(f"http://{address}", f"the sidecar of {agent['agent_id']}")
        try:
            door.connect().close()
            taken.append(address)
        except (Failed, click.UsageError) as error:
            refused.append(error.message.partition(". Start")[0])
    if not taken:
        raise Failed(
            f"{'; '.join(refused)}. Check that those sidecars run and that `advertise` and the firewall "
            "let this host reach their mesh port."
        )
    return ", ".join(taken) + (f" (but not: {'; '.join(refused)})" if refused else "")


def _ask(sidecar: Sidecar, capability: str, data: str | None, timeout: str, patience_s: float) -> str:
    fields = {"Reach-Timeout": timeout, "Idempotency-Key": f"reach-echo-{time.time_ns():x}"}
    if data is not None:
        fields["Content-Type"] = content_type(data.encode())
    body = None if data is None else data.encode()
    method = "GET" if body is None else "POST"
    answer = request(sidecar, method, target_path(capability, None), body, fields, patience_s)
    content = answer.read(1 << 20)
    if is_problem(answer):
        raise Failed(explain(answer, content))
    agent = answer.getheader("Reach-Agent") or "the agent"
    times = answer.getheader("Server-Timing")
    said = f"{agent} answered {answer.status} {answer.reason}".rstrip()
    said += f", trace {answer.getheader('Reach-Trace-Id')}" + (f" ({times})" if times else "")
    return said if answer.status < 400 else f"{said}; {_remark(answer.status, asked=data is not None)}"


def _remark(status: int, *, asked: bool) -> str:
    """On an answer that is no success: the way is good, and what the status is about."""
    if not asked and status in (404, 405, 501):
        return "it is reached, and takes no GET there: send it a job with -d"
    return "it is reached, and the status is its own: its log says more"
