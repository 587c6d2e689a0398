"""`reach demo`: a whole mesh on this machine, a real job through it, and what every sidecar wrote about it."""

import json
import os
import shlex
import shutil
import signal
import sys
import time
from typing import Any

import click

from reach_cli.admin import Door, json_option
from reach_cli.demo_job import TEXT, TITLE, demo_agents
from reach_cli.failure import Failed
from reach_cli.terminal import is_terminal, paint, print_json, say, table

JOB_TIMEOUT_S = 30.0
LOG_WAIT_S = 3.0
LOG_POLL_S = 0.1


@click.command("demo")
@click.option("--keep", is_flag=True, help="Leave it running, to try things, until Ctrl-C.")
@json_option
def command(keep: bool, as_json: bool) -> None:
    """Run a control node, four sidecars and four plain agents here, and send a real job through them.

    The planner splits a text, has the summarizer condense each part, the reviewer judge the whole and the scribe set
    it. The agents know nothing of Agent-Reach: they call capabilities by name, over plain HTTP. Everything is gone
    afterwards.

    \b
    Example:
      reach demo
      reach demo --keep
    """
    from reach_cli.demo_mesh import Mesh

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    began = time.monotonic()
    with Mesh(_progress) as mesh:
        mesh.start(demo_agents())
        _progress("sending the job")
        planner = mesh.members[0]
        answer, trace_id = _send_job(planner.outbound)
        _progress("collecting the log lines")
        lines = _collect(mesh.members, trace_id)
        _progress("")
        took_s = time.monotonic() - began
        if as_json:
            print_json(
                {
                    "trace_id": trace_id,
                    "answer": answer,
                    "agents": [_described(member) for member in mesh.members],
                    "control": mesh.control_url,
                    "lines": lines,
                }
            )
        else:
            _show(mesh, answer, trace_id, lines, took_s)
            _say_what_next(mesh, trace_id, keep)
        sys.stdout.flush()
        if keep:
            _stay(mesh)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _progress(text: str) -> None:
    """One line that is written over, on a terminal only."""
    if is_terminal(sys.stderr):
        click.echo(f"\r\x1b[K{text}{' …' if text else ''}", nl=False, err=True)


def _send_job(outbound: str) -> tuple[dict[str, Any], str]:
    """The planner's answer and the trace id. Raises Failed with what the mesh said."""
    from reach_cli.call import explain, is_problem

    connection = Door(f"http://{outbound}", "the planner's sidecar").connect(JOB_TIMEOUT_S)
    job = json.dumps({"title": TITLE, "task": TEXT})
    connection.request("POST", "/to/plan", job, {"Content-Type": "application/json", "Reach-Timeout": "30s"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if is_problem(response):
        raise Failed(f"The job did not get through. {explain(response, body)}")
    if response.status != 200:
        raise Failed(f"The planner answered {response.status}: {body[:2000].decode('utf-8', 'replace')}")
    return json.loads(body), response.getheader("Reach-Trace-Id") or ""


def _collect(members: list[Any], trace_id: str) -> list[dict[str, Any]]:
    """The trace's lines from every sidecar; they are written in batches, so wait until each call has both its sides."""
    from reach_cli.demo_report import merge

    deadline = time.monotonic() + LOG_WAIT_S
    while True:
        lines: list[dict[str, Any]] = []
        for member in members:
            with Door(f"http://{member.admin}").open("/v1/logs", {"trace_id": trace_id}) as answer:
                lines += [json.loads(line) for line in answer if line.strip()]
        events = [line.get("event") for line in lines]
        if (events and events.count("call") == events.count("deliver")) or time.monotonic() > deadline:
            return merge(lines)
        time.sleep(LOG_POLL_S)


def _described(member: Any) -> dict[str, Any]:
    return {
        "agent_id": member.agent.id,
        "capability": member.agent.capability,
        "language": member.agent.language,
        "pid": member.process.pid,
        "sidecar_pid": member.sidecar.pid,
        "outbound": member.outbound,
        "admin": member.admin,
    }


def _show(mesh: Any, answer: dict[str, Any], trace_id: str, lines: list[dict[str, Any]], took_s: float) -> None:
    from reach_cli.demo_report import waterfall

    rows = [
        (m.agent.id, m.agent.capability, m.agent.language, f"http://{m.outbound}", str(m.process.pid))
        for m in mesh.members
    ]
    click.echo("A control node, and four agents with a sidecar each, every one a process of its own:\n")
    click.echo(table(("agent", "serves", "written in", "its sidecar", "process"), rows))
    click.echo(f"\nThe job, a text of three paragraphs, went to {paint('plan', bold=True)}. The answer:\n")
    click.echo("\n".join(f"  {line}".rstrip() for line in answer["report"].splitlines()))
    click.echo(f"\nOne trace id, {paint(trace_id, bold=True)}, on every line of every sidecar:\n")
    click.echo(waterfall(lines))
    sidecars = len({line["agent"] for line in lines})
    calls = sum(line["event"] == "call" for line in lines)
    click.echo(
        f"\n{calls} calls, {len(lines)} log lines in {sidecars} sidecars; {took_s:.1f} s with starting everything."
    )


def _say_what_next(mesh: Any, trace_id: str, keep: bool) -> None:
    program = _program()
    if not keep:
        click.echo("\nTry next:")
        click.echo(f"  {program} demo --keep          # the same, left running to play with")
        click.echo(f"  {program} run --help           # a sidecar beside an agent of your own")
        return
    planner, summarizer = mesh.members[0], mesh.members[1]
    admin = f"--admin http://{planner.admin}"
    text = shlex.quote(json.dumps({"task": "Cats sleep. Cats sleep most of the day. Dogs bark."}))
    click.echo("\nIt goes on running. Try, in another terminal:")
    for line in (
        f"{program} peers {admin}",
        f"{program} call summarize -d {text} {admin}",
        f"curl -s http://{planner.outbound}/to/summarize -d {text}",
        f"http_proxy=http://{planner.outbound} curl -s http://summarize.reach/process -d {text}",
        f"{program} echo write.report {admin}",
        f"{program} logs --trace-id {trace_id} {admin}",
        f"kill -9 {summarizer.process.pid}   # an agent dies; call it again and see what callers are told",
    ):
        click.echo(f"  {line}")
    click.echo("\nCtrl-C ends it all.")


def _program() -> str:
    """How to type `reach` here: as on the PATH, or as this one was started."""
    if shutil.which("reach"):
        return "reach"
    started = sys.argv[0]
    if os.path.basename(started) != "reach":
        return f"{shlex.quote(sys.executable)} -m reach_cli"
    return shlex.quote(os.path.relpath(started) if len(os.path.relpath(started)) < len(started) else started)


def _stay(mesh: Any) -> None:
    """Until Ctrl-C; says which process ended meanwhile. The mesh goes on without it."""
    while True:
        time.sleep(0.3)
        for name, code in mesh.ended():
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            say(f"reach: {name} {how}.")
