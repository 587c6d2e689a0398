"""`reach sidecar`: one sidecar, until it is told to stop."""

from pathlib import Path

import click


@click.command("sidecar")
@click.option("-c", "--config", "config_file", required=True, metavar="FILE", help="Its configuration (YAML).")
@click.option("--ready-file", metavar="FILE", help="Where to write the addresses as JSON once it is ready.")
def command(config_file: str, ready_file: str | None) -> None:
    """Run one sidecar, for systemd and containers.

    SIGTERM drains it: the others are asked to call it no more, what they still send is served for `drain.wait`, and
    running calls have `drain.grace`. SIGINT or a second signal skips the wait, one more ends it at once.

    Exit code 1 if the configuration is wrong or a port is taken.

    \b
    Example:
      reach sidecar -c sidecar.yaml --ready-file /run/reach/ready.json
    """
    from reach_cli.daemon import complain, noted
    from reach_core.settings.complaint import ConfigError
    from reach_sidecar.config import load_sidecar

    try:
        config = load_sidecar(config_file)
    except ConfigError as error:
        raise complain(error) from None
    from reach_sidecar.lifecycle import run

    with noted("sidecar", config.id) as on_ready:
        code = run(config, Path(ready_file) if ready_file else None, on_ready, Path(config_file))
    click.get_current_context().exit(code)
