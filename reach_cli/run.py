"""`reach run`: a sidecar and the agent as its child, for laptops and Procfiles."""

import shutil
import sys
from typing import TYPE_CHECKING

import click

from reach_cli.failure import Failed

if TYPE_CHECKING:
    from reach_cli.run_session import Session


class NotFound(Failed):
    """As shells have it."""

    exit_code = 127


@click.command("run", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("-c", "--config", "config_file", metavar="FILE", help="A sidecar's configuration to start from.")
@click.option("--id", "agent_id", metavar="ID", help="The agent's id. [the command's name and 4 hex digits]")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Where the agent listens. [a free port, handed to it as $PORT]"
)
@click.option(
    "--capability", "capabilities", multiple=True, metavar="NAME[,ALIAS…]", help="What it serves; may be repeated."
)
@click.option(
    "--control", "controls", multiple=True, metavar="URL",
    help="A control node; may be repeated. One on this machine is started if none answers. [http://127.0.0.1:7080]",
)  # fmt: skip
@click.option("--auto-ports", is_flag=True, help="Where a port is taken, use a free one instead of failing.")
@click.option("-v", "--verbose", is_flag=True, help="Show the sidecar's log here. [it goes to its state directory]")
@click.argument("agent_command", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
def command(
    config_file: str | None,
    agent_id: str | None,
    port: int | None,
    capabilities: tuple[str, ...],
    controls: tuple[str, ...],
    auto_ports: bool,
    verbose: bool,
    agent_command: tuple[str, ...],
) -> None:
    """Run CMD, an agent, with a sidecar beside it. Signals go to the agent, its exit code comes back.

    The agent gets REACH_URL (where to call), http_proxy (call http://CAPABILITY.reach/), no_proxy, and PORT (where
    to listen). Its state lives in ~/.local/state/reach/ID. Exit code 127 if CMD is not found, 1 if the sidecar
    cannot start.

    \b
    Example:
      reach run --capability summarize -- python agent.py
      reach run --id planner-01 --port 9001 --capability plan -- node planner.mjs
    """
    if not agent_command:
        raise click.UsageError("Say what to run, after `--`: reach run -- python agent.py")
    if shutil.which(agent_command[0]) is None:
        raise NotFound(f"The command {agent_command[0]!r} is not found. Check its spelling and the PATH.")
    from reach_cli.daemon import complain
    from reach_cli.run_plan import make_plan
    from reach_core.settings.complaint import ConfigError
    from reach_sidecar.config import read_sidecar

    try:
        plan = make_plan(
            read_sidecar(config_file) if config_file else None,
            agent_command,
            agent_id=agent_id,
            port=port,
            capabilities=capabilities,
            controls=controls,
            auto_ports=auto_ports,
        )
    except ConfigError as error:
        raise complain(error) from None
    from reach_cli.run_control import ensure_control
    from reach_cli.run_session import SIDECAR_LOG, Session, quiet_stderr

    with plan.state:
        started = ensure_control(plan.config.control)
        log = None if verbose else plan.state.path / SIDECAR_LOG
        with quiet_stderr(log) as terminal:

            def say(text: str) -> None:
                print(f"reach: {text}", file=terminal, flush=True)

            if started:
                say(f"started a control node at {started}; it stops when no agent needs it any more")
            code = _run(Session(plan, agent_command, terminal, say))
    sys.stdout.flush()
    click.get_current_context().exit(code)


def _run(session: "Session") -> int:
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(session.run())
