"""`reach config`: is a file right, what may stand in it, and what is in effect."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from reach_cli.admin import admin_door, admin_option, json_option
from reach_cli.terminal import print_json

KINDS = ("sidecar", "control")


def kind_option(function: Any) -> Any:
    """`--kind`, where a file alone may not say what it configures."""
    return click.option(
        "--kind", type=click.Choice(KINDS), help="What the file configures. [seen from its keys and its name]"
    )(function)


@click.group("config")
def command() -> None:
    """Validate, describe and show configuration.

    \b
    Example:
      reach config validate sidecar.yaml
      reach config schema sidecar > sidecar.schema.json
      reach config show
    """


@command.command("validate")
@click.argument("file")
@kind_option
@json_option
def validate(file: str, kind: str | None, as_json: bool) -> None:
    """Check a configuration file; every mistake is named with its line and column.

    Exit code 1 if there is one. Variables are taken from the environment of this command.

    \b
    Example:
      reach config validate sidecar.yaml
      reach config validate /etc/reach/control.yaml --kind control --json
    """
    from reach_core.settings.complaint import ConfigError

    kind = kind or kind_of(file)
    complaints = []
    try:
        load(file, kind)
    except ConfigError as error:
        complaints = error.complaints
    if as_json:
        found = [{"line": c.line, "column": c.column, "message": c.message} for c in complaints]
        print_json({"file": file, "kind": kind, "valid": not complaints, "complaints": found})
    elif complaints:
        for complaint in complaints:
            click.echo(str(complaint), err=True)
    else:
        click.echo(f"{file}: a valid {kind} configuration")
    click.get_current_context().exit(1 if complaints else 0)


@command.command("schema")
@click.argument("kind", type=click.Choice(KINDS))
def schema(kind: str) -> None:
    """Print the JSON Schema of a configuration file, for editors and for CI.

    \b
    Example:
      reach config schema sidecar > sidecar.schema.json
    """
    click.echo(json.dumps(schema_of(kind), indent=2, ensure_ascii=False))


@command.command("show")
@click.option("-c", "--config", "file", metavar="FILE", help="Show what this file amounts to, instead of asking.")
@kind_option
@admin_option
@json_option
def show(file: str | None, kind: str | None, admin: str | None, as_json: bool) -> None:
    """Print the configuration in effect, defaults included and secrets hidden.

    \b
    Example:
      reach config show
      reach config show -c sidecar.yaml --json
    """
    if file is not None and admin is not None:
        raise click.UsageError("-c shows a file and --admin asks a running sidecar: give one of them.")
    shown = admin_door(admin).get("/v1/config") if file is None else _of_file(file, kind)
    if as_json:
        print_json(shown)
        return
    import yaml

    click.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=110), nl=False)


def load(file: str, kind: str | None, env: Mapping[str, str] = os.environ) -> tuple[str, Any]:
    """(kind, configuration) of a file, complete. Raises ConfigError with every complaint."""
    from reach_control.config import load_control
    from reach_sidecar.config import load_sidecar

    kind = kind or kind_of(file)
    return kind, (load_control if kind == "control" else load_sidecar)(file, env)


def kind_of(file: str) -> str:
    """What a file configures: by the top-level keys that only one kind has, else by its name.

    A file that cannot be read or parsed counts as a sidecar's; loading it then says what is wrong.
    """
    from reach_control.config import ControlConfig
    from reach_core.settings.complaint import ConfigError
    from reach_core.settings.document import MAX_BYTES, compose, decode
    from reach_core.settings.shape import section_shape
    from reach_sidecar.config import SidecarConfig

    sidecar, control = section_shape(SidecarConfig).fields.keys(), section_shape(ControlConfig).fields.keys()
    try:
        with open(file, "rb") as stream:
            node = compose(decode(stream.read(MAX_BYTES + 1), file), file)
        keys = {key.value for key, _ in node.value if isinstance(key.value, str)}
    except (OSError, ConfigError, TypeError, ValueError):
        keys = set()
    more = len(keys & (control - sidecar)) - len(keys & (sidecar - control))
    return "control" if more > 0 or (more == 0 and "control" in Path(file).name) else "sidecar"


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema of `sidecar.yaml` or `control.yaml`."""
    from reach_control.config import ControlConfig
    from reach_core.settings.schema import json_schema
    from reach_sidecar.config import SidecarConfig

    if kind == "control":
        return json_schema(ControlConfig, "control.yaml of Agent-Reach")
    return json_schema(SidecarConfig, "sidecar.yaml of Agent-Reach")


def _of_file(file: str, kind: str | None) -> Any:
    from reach_cli.failure import Failed
    from reach_core.settings.complaint import ConfigError
    from reach_core.settings.show import show as shown

    try:
        _, config = load(file, kind)
    except ConfigError as error:
        raise Failed(f"the configuration has mistakes.\n{error}") from None
    return shown(config)
