"""The click group behind `reach`. Verbs are imported only when they are asked for, so that a daemon carries
nothing of the other verbs and `reach --help` answers at once."""

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

# verb -> (module, line in `reach --help`). The line is repeated here so that listing imports no verb.
VERBS = {
    "demo": ("reach_cli.demo", "Run a small mesh on this machine and send a real job through it."),
    "run": ("reach_cli.run", "Run an agent with a sidecar beside it."),
    "sidecar": ("reach_cli.sidecar", "Run one sidecar, for systemd and containers."),
    "control": ("reach_cli.control", "Run one control node."),
    "peers": ("reach_cli.peers", "List the agents a sidecar knows."),
    "discover": ("reach_cli.discover", "List the agents that serve a capability."),
    "call": ("reach_cli.call", "Call a capability and print the answer."),
    "echo": ("reach_cli.echo", "Test a capability step by step: discovered, connected, answered."),
    "logs": ("reach_cli.logs", "Print the log lines of a trace."),
    "config": ("reach_cli.config", "Validate, describe and show configuration."),
}


class Verbs(click.Group):
    """A group that knows its verbs by name and imports each on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(VERBS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, line) for verb, (_, line) in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, n=1)
            hint = f" Did you mean `reach {near[0]}`?" if near else " `reach --help` lists the verbs."
            raise click.UsageError(f"There is no verb {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        extra["standalone_mode"] = False
        for stream in (sys.stdout, sys.stderr):
            # In a locale that lacks a character, a question mark serves better than an error.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            code = super().main(args, prog_name or "reach", **extra)
            sys.stdout.flush()
        except click.ClickException as failure:
            failure.show()
            code = failure.exit_code
        except (KeyboardInterrupt, click.Abort):
            code = 130
        except BrokenPipeError:
            # Whoever read our output has seen enough (`reach logs | head`): nothing more is flushed into it.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            code = 0
        except Exception as bug:
            if os.environ.get("REACH_DEBUG"):
                raise
            if isinstance(bug, OSError) and bug.errno == errno.ENOSPC:
                sys.stdout = open(os.devnull, "w")  # noqa: SIM115
                click.echo("reach: The disk is full where the output or the state goes: make room there.", err=True)
                sys.exit(1)
            click.echo(
                f"reach: this should not have happened: {type(bug).__name__}: {bug}. "
                "Run it again with REACH_DEBUG=1 to see where, and please report it.",
                err=True,
            )
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


def _print_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    from reach_core import trace

    build = "" if trace.__file__.endswith(".py") else " (compiled)"
    try:
        click.echo(f"reach {version('reach-mesh')}{build}")
    except PackageNotFoundError:
        click.echo("reach (not installed: running from a source tree)")
    ctx.exit(0)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version.",
)
def main() -> None:
    """Make every agent reachable: call agents by capability through a sidecar beside each.

    \b
    Example:
      reach run --capability summarize -- python agent.py
      reach call summarize -d '{"task": "a long text"}'
    """
