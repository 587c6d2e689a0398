"""`reach logs`: what this sidecar wrote about a trace, one line an event."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

from reach_cli.admin import admin_door, admin_option, json_option, server_sent_events
from reach_cli.failure import Failed
from reach_cli.terminal import has_colour, is_terminal, say

LEVELS = ("debug", "info", "warn", "error")


class Level(click.Choice[str]):
    """A level; `warning` is another spelling of `warn`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert("warn" if value == "warning" else value, param, ctx)


@click.command("logs")
@click.option("--trace-id", metavar="ID", help="Only this trace: the `Reach-Trace-Id` of an answer.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines, until Ctrl-C.")
@click.option("--since", metavar="TIME", help="Only newer lines: an age such as 10m, or an RFC 3339 time.")
@click.option("--level", type=Level(LEVELS), help="Only this level and worse.")
@admin_option
@json_option
def command(
    trace_id: str | None, follow: bool, since: str | None, level: str | None, admin: str | None, as_json: bool
) -> None:
    """Print the log lines of a sidecar, of one trace or of all. JSON lines when piped.

    \b
    Example:
      reach logs --trace-id 4bf92f3577b34da6a3ce929d0e0e4736
      reach logs -f --level warn
    """
    door = admin_door(admin)
    as_json = as_json or not is_terminal(sys.stdout)
    query = {"trace_id": trace_id, "since": since, "level": level, "follow": "1" if follow else None}
    with door.open("/v1/logs", query, timeout_s=None if follow else 30.0) as answer:
        lines = _followed(answer) if follow else iter(answer)
        found = False
        for line in lines:
            if line.strip():
                found = True
                click.echo(line.rstrip(b"\n") if as_json else _readable(line).rstrip("\n"))
    if follow:
        raise Failed(f"The sidecar at {door.url} was stopped, and its log with it.")
    if not found:
        where = f" of trace {trace_id}" if trace_id else ""
        say(f"This sidecar has no log line{where}. Another one may: name it with --admin URL.")


def _followed(stream: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a followed log, until the sidecar ends it; says where it had to leave some out."""
    for event, data in server_sent_events(stream):
        if event == "gap":
            say(f"reach: this terminal is too slow: lines were left out here ({data}).")
        elif event == "end":
            return
        else:
            yield data.encode()


def _readable(line: bytes) -> str:
    from reach_sidecar.telemetry.text import render

    return render(line, colour=has_colour(sys.stdout))
