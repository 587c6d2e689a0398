"""`reach discover`: who serves a capability now."""

import json
from typing import Any

import click

from reach_cli.admin import Sidecar, admin_option, find_sidecar, json_option, server_sent_events
from reach_cli.agents import agents_of, show, summary, why_none
from reach_cli.failure import Failed
from reach_cli.terminal import paint, print_json, say
from reach_core.names import near


@click.command("discover")
@click.argument("capability", metavar="CAP")
@click.option("--require", multiple=True, metavar="K=V", help="An attribute that must match: language=zh.")
@click.option("--watch", is_flag=True, help="Go on: one line for each agent that comes, goes or changes.")
@admin_option
@json_option
def command(capability: str, require: tuple[str, ...], watch: bool, admin: str | None, as_json: bool) -> None:
    """List the agents that serve capability CAP. Exit code 1 if there is none.

    \b
    Example:
      reach discover summarize --require language=zh --require "version>=3.11"
    """
    sidecar = find_sidecar(admin)
    answer = sidecar.outbound.get("/v1/agents", {"capability": capability, "require": ", ".join(require) or None})
    agents = agents_of(answer)
    if as_json and not watch:
        print_json(answer)
    elif agents and not as_json:
        click.echo(show(agents))
        say(summary(agents, answer))
    if watch:
        _follow(sidecar, capability, as_json)
    elif not agents:
        raise Failed(nobody(sidecar, capability, bool(require)))


def nobody(sidecar: Sidecar, capability: str, required: bool = False) -> str:
    """Why nobody serves `capability`, with the nearest names that somebody does serve."""
    known = sorted(capabilities_of(sidecar.outbound.get("/v1/agents")))
    if required and capability in known:
        return f"Agents serve {capability!r}, but none matches --require. `reach discover {capability}` lists them."
    text = f"No agent that {sidecar.agent_id}'s sidecar knows serves {capability!r}."
    if close := near(capability, known):
        return f"{text} Did you mean {' or '.join(repr(name) for name in close)}?"
    if known:
        return f"{text} Known are: {', '.join(known[:10])}{', …' if len(known) > 10 else ''}."
    return f"{text} It knows no capability yet. {why_none(sidecar.admin.get('/v1/self'), capability)}"


def capabilities_of(answer: Any) -> set[str]:
    return {str(capability["name"]) for agent in agents_of(answer) for capability in agent.get("capabilities") or []}


def _follow(sidecar: Sidecar, capability: str, as_json: bool) -> None:
    colours = {"up": "green", "down": "red"}
    with sidecar.outbound.open("/v1/watch", {"capability": capability}, timeout_s=None) as stream:
        for event, data in server_sent_events(stream):
            try:
                agent = json.loads(data)
            except ValueError:
                continue
            if as_json:
                print_json({"event": event, **agent})
            else:
                excluded = agent.get("excluded") or {}
                status = excluded.get("reason") or agent.get("status") or ""
                head = paint(event.ljust(8), colours.get(event))
                click.echo(f"{head} {agent.get('agent_id', '?')}  {status}".rstrip())
    raise Failed(f"The sidecar at {sidecar.outbound.url} was stopped, and the watch with it.")
