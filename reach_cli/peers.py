"""`reach peers`: the table as one sidecar sees it."""

import click

from reach_cli.admin import admin_door, admin_option, json_option
from reach_cli.agents import agents_of, show, summary, why_none
from reach_cli.failure import Failed
from reach_cli.terminal import print_json, say


@click.command("peers")
@admin_option
@json_option
@click.option("--watch", is_flag=True, help="Go on: a live table on a terminal, else one line a change.")
def command(admin: str | None, as_json: bool, watch: bool) -> None:
    """List the agents a sidecar knows, with their status and load.

    With --watch it goes on until Ctrl-C: on a terminal the table is drawn anew as it changes; into a file or a pipe it
    writes every agent once and then a line for each change: time, event (up, down, changed), agent, and why. With
    --json each is an object. A sidecar that goes away is waited for.

    \b
    Example:
      reach peers
      reach peers --watch --admin http://127.0.0.1:7072
      reach peers --watch --json | jq 'select(.event == "down")'
    """
    if watch:
        from reach_cli.peers_watch import watch as go_on

        go_on(admin, as_json)
        return
    door = admin_door(admin)
    answer = door.get("/v1/peers")
    if not isinstance(answer, dict) or not isinstance(answer.get("agents"), list):
        raise Failed(f"What answers at {door.url} lists no agents. Is that {door.name}? Check --admin.")
    if as_json:
        print_json(answer)
        return
    agents = agents_of(answer)
    if not agents:
        say(f"This sidecar knows no agent yet. {why_none(door.get('/v1/self'))}")
        return
    click.echo(show(agents))
    say(summary(agents, answer))
