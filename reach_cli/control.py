"""`reach control`: one control node, until it is told to stop, or (started by `reach run`) nobody needs it.

`reach control status` asks running ones how they are. Its module is imported only then.
"""

import importlib
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from reach_cli.failure import Failed

# An agent with one of these may still come back by itself.
NEEDING = frozenset({"joining", "up", "suspect"})
POLL_INTERVAL_S = 1.0


# As in reach_cli.main: verb -> (module, line in the help).
VERBS = {"status": ("reach_cli.control_status", "Ask running control nodes how they are, and what is wrong.")}


class Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(VERBS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, line) for verb, (_, line) in VERBS.items()])


@click.group("control", cls=Verbs, invoke_without_command=True, subcommand_metavar="[status ...]")
@click.option("-c", "--config", "config_file", metavar="FILE", help="Its configuration (YAML). [the defaults]")
@click.option("--ready-file", metavar="FILE", help="Where to write the addresses as JSON once it is ready.")
@click.option(
    "--exit-when-idle",
    metavar="DURATION",
    help="Stop once no agent has been registered for so long, such as 10s. `reach run` starts its node so.",
)
@click.pass_context
def command(
    context: click.Context, config_file: str | None, ready_file: str | None, exit_when_idle: str | None
) -> None:
    """Run one control node. Without -c it takes the defaults: http://127.0.0.1:7080.

    Exit code 1 if the configuration is wrong or a port is taken.

    \b
    Example:
      reach control
      reach control -c control.yaml --ready-file /run/reach/ready.json
      reach control status
    """
    if context.invoked_subcommand is not None:
        if given := [name for name, value in context.params.items() if value is not None]:
            names = ", ".join(f"--{'config' if name == 'config_file' else name.replace('_', '-')}" for name in given)
            raise click.UsageError(f"{names}: only for running a node, not with {context.invoked_subcommand!r}.")
        return
    from reach_cli.daemon import complain, noted
    from reach_control.config import ControlConfig, complete, load_control
    from reach_core.settings.complaint import ConfigError
    from reach_core.units import parse_duration

    try:
        idle_s = None if exit_when_idle is None else parse_duration(exit_when_idle)
    except ValueError as error:
        raise click.UsageError(f"--exit-when-idle: {error}.") from None
    try:
        config = complete(ControlConfig(), os.environ) if config_file is None else load_control(config_file)
    except ConfigError as error:
        raise complain(error) from None
    from reach_control.lifecycle import run

    with noted("control", config.listen.api) as note_ready:

        def on_ready(ready: Mapping[str, Any]) -> None:
            note_ready(ready)
            if idle_s is not None:
                threading.Thread(target=_stop_when_idle, args=(ready["admin"], idle_s), daemon=True).start()

        ready, source = (Path(name) if name else None for name in (ready_file, config_file))
        code = run(config, ready, on_ready, source)
    context.exit(code)


def _stop_when_idle(admin: str, idle_s: float) -> None:
    """Ask our own admin listener who is registered; when nobody has been for `idle_s`, end as SIGTERM would."""
    from reach_cli.admin import Door

    door = Door(f"http://{admin}", "this control node")
    needed = time.monotonic()
    while time.monotonic() - needed < idle_s:
        time.sleep(min(POLL_INTERVAL_S, idle_s / 2))
        try:
            if is_needed(door.get("/v1/peers")):
                needed = time.monotonic()
        except Failed:
            # Not answering is no sign that nobody needs us.
            needed = time.monotonic()
    os.kill(os.getpid(), signal.SIGTERM)


def is_needed(peers: Any) -> bool:
    """Whether an agent of this table may still renew its lease here."""
    from reach_cli.agents import agents_of

    return any(agent.get("status") in NEEDING for agent in agents_of(peers))
