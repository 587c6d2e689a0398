"""`reach peers`: the table as one sidecar sees it."""

import sys
import time
from typing import Any

import click

from reach_cli.admin import Door, admin_door, admin_option, json_option
from reach_cli.agents import agents_of, show, summary, why_none
from reach_cli.failure import Failed
from reach_cli.terminal import is_terminal, print_json, say

WATCH_INTERVAL_S = 1.0


@click.command("peers")
@admin_option
@json_option
@click.option("--watch", is_flag=True, help="Go on showing it, until Ctrl-C.")
def command(admin: str | None, as_json: bool, watch: bool) -> None:
    """List the agents a sidecar knows, with their status and load.

    \b
    Example:
      reach peers
      reach peers --watch --admin http://127.0.0.1:7072
    """
    door = admin_door(admin)
    answer = door.get("/v1/peers")
    if not isinstance(answer, dict) or not isinstance(answer.get("agents"), list):
        raise Failed(f"What answers at {door.url} lists no agents. Is that {door.name}? Check --admin.")
    _print(door, answer, as_json, clear=watch)
    shown = _comparable(answer)
    while watch:
        time.sleep(WATCH_INTERVAL_S)
        answer = door.get("/v1/peers")
        if (is_terminal(sys.stdout) and not as_json) or _comparable(answer) != shown:
            _print(door, answer, as_json, clear=True)
            shown = _comparable(answer)


def _comparable(answer: Any) -> list[dict[str, Any]]:
    """The agents without what changes by itself: into a file or a pipe, only real changes are written."""
    return [
        {**agent, "load": {k: v for k, v in (agent.get("load") or {}).items() if k != "age_s"}}
        for agent in agents_of(answer)
    ]


def _print(door: Door, answer: Any, as_json: bool, *, clear: bool) -> None:
    agents = agents_of(answer)
    if as_json:
        print_json(answer)
        return
    if clear and is_terminal(sys.stdout):
        click.clear()
    if not agents:
        say(f"This sidecar knows no agent yet. {why_none(door.get('/v1/self'))}")
        return
    click.echo(show(agents))
    say(summary(agents, answer))
