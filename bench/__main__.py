"""`python -m bench`: the command line."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench import figures, machine, reach, report, rounds
from bench.daemon import ROOT, BenchError
from bench.measures import BUILDS, MEASURES, SYSTEMS
from bench.rig import standing

FULL = {"rounds": 5, "seconds": 4.0, "warm_up_s": 3.0}
QUICK = {"rounds": 2, "seconds": 2.0, "warm_up_s": 1.0}


class Progress:
    """One line that overwrites itself, on a terminal only."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self.shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def clear(self) -> None:
        self("")


@click.group(invoke_without_command=True)
@click.option("--quick", is_flag=True, help="About a minute: few, short rounds. Writes nothing.")
@click.option("--only", default="", help="Figures to take, such as cpu16,latency1. Writes nothing.")
@click.option("--rounds", "times", type=click.IntRange(1), help=f"Rounds. [{FULL['rounds']}]")
@click.option("--seconds", type=click.IntRange(1), help=f"Length of one sample. [{FULL['seconds']:g}]")
@click.option("--without", multiple=True, type=click.Choice(SYSTEMS), help="Leave a system out.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--check", is_flag=True, help="Exit with 1 when a target is missed.")
@click.pass_context
def main(
    context: click.Context, quick: bool, only: str, times: int | None, seconds: int | None,
    without: tuple[str, ...], as_json: bool, check: bool,
) -> None:
    """Measure Agent-Reach beside Envoy and write bench/results/ and docs/performance.md.

    Example: python -m bench --only cpu16,latency1 --rounds 3
    """
    if context.invoked_subcommand:
        return
    try:
        chosen = figures.selected(only)
    except ValueError as error:
        raise click.UsageError(f"--only: {error}") from error
    preset = QUICK if quick else FULL
    if quick and not only:
        slow = {measure.name for measure in MEASURES if measure.slow}
        chosen = tuple(figure for figure in chosen if figure.measure not in slow)
    systems = _systems(without)
    document, results = _measure(
        chosen, systems, int(times or preset["rounds"]), float(seconds or preset["seconds"]), preset["warm_up_s"]
    )
    if as_json:
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        click.echo(report.plain(results))
    if not (quick or only or without):
        name = f"{document['started'][:10]}-{machine.slug(document['machine']['cpu'])}"
        path = report.write_results(document, name)
        report.write_document(document, results)
        click.echo(f"Written: {path.relative_to(ROOT)} and {report.DOCUMENT.relative_to(ROOT)}.", err=True)
    if check and any(result.met is False for result in results):
        sys.exit(1)


def _systems(without: tuple[str, ...]) -> tuple[str, ...]:
    """All but those; a compiled build that cannot be measured is left out, and said to be."""
    systems = tuple(name for name in SYSTEMS if name not in without)
    if "compiled" not in systems:
        return systems
    state = reach.state_of_compiled()
    if state == "missing":
        click.echo("There is no compiled build (`make compiled` makes it): measuring pure Python only.", err=True)
        return tuple(name for name in systems if name != "compiled")
    if state == "stale":
        click.echo("The compiled build is older than the sources: `make compiled` makes it anew.", err=True)
    return systems


def _measure(
    chosen: tuple[figures.Figure, ...], systems: tuple[str, ...], times: int, seconds: float, warm_up_s: float
) -> tuple[dict[str, Any], list[figures.Result]]:
    progress = Progress()
    wanted = {figure.measure for figure in chosen}
    measures = [measure for measure in MEASURES if measure.name in wanted]
    started = datetime.now(UTC).isoformat(timespec="seconds")
    busy = machine.busy_share(1.0)
    if busy > 0.1:
        click.echo(f"{busy:.0%} of this machine is busy with other things: expect noise.", err=True)
    stolen, ticks = machine.stolen_ticks()
    try:
        varied = any(measure.variants for measure in measures)
        with standing(systems, seconds, warm_up_s, progress, with_variants=varied) as rig:
            samples = rounds.interleave(rig, measures, times, progress)
    except BenchError as error:
        progress.clear()
        raise click.ClickException(str(error)) from error
    progress.clear()
    stolen_after, ticks_after = machine.stolen_ticks()
    results = figures.compute(samples, chosen)
    settings = {
        "rounds": times,
        "seconds": seconds,
        "busy_before": round(busy, 3),
        "stolen": round((stolen_after - stolen) / max(1, ticks_after - ticks), 4),
    }
    document = {
        "started": started,
        "machine": machine.facts(),
        "settings": settings,
        "figures": [result.to_dict() for result in results],
        "samples": samples,
    }
    return document, results


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def render(file: Path) -> None:
    """Write docs/performance.md again from a results FILE.

    Example: python -m bench render bench/results/2026-01-31-amd-epyc.json
    """
    document = json.loads(file.read_text())
    report.write_document(document, figures.compute(document["samples"]))


@main.command()
@click.option("--seconds", default=10, show_default=True, help="How long to sample.")
@click.option("--connections", default=16, show_default=True, help="Connections that load the pair meanwhile.")
@click.option("--top", default=25, show_default=True, help="Functions to list per process.")
@click.option("--build", type=click.Choice(BUILDS), default="pure", show_default=True, help="Which build to look into.")
@click.option("--native", is_flag=True, help="Look into C extensions as well (slower).")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the raw stacks in this directory.")
def profile(seconds: int, connections: int, top: int, build: str, native: bool, keep: Path | None) -> None:
    """Where the sidecars' time goes under load, by py-spy. Of the compiled build, --native shows the functions in C.

    Example: python -m bench profile --seconds 5 --connections 1
    """
    from bench import profiling

    progress = Progress()
    try:
        with standing((build,), seconds, 1.0, progress) as rig:
            profiles = profiling.record(rig, build, connections, seconds, native, keep)
    except BenchError as error:
        raise click.ClickException(str(error)) from error
    progress.clear()
    for taken in profiles:
        click.echo(profiling.summary(taken, top))


@main.command()
@click.option("--seconds", default=4, show_default=True, help="How long to load.")
@click.option("--connections", default=16, show_default=True, help="Connections that load the pair.")
@click.option("--top", default=40, show_default=True, help="Functions to list per process.")
def calls(seconds: int, connections: int, top: int) -> None:
    """Function calls per call, exactly: a yardstick that a busy machine does not bend.

    Example: python -m bench calls --top 20
    """
    from bench import counting

    progress = Progress()
    try:
        with standing(("pure",), seconds, 1.0, progress, counted=True) as rig:
            taken = counting.take(rig, connections, seconds)
    except BenchError as error:
        raise click.ClickException(str(error)) from error
    progress.clear()
    for counts in taken:
        click.echo(counting.summary(counts, top))


if __name__ == "__main__":
    main()
