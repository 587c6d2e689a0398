"""`reach control status`: what running control nodes say of themselves and of each other; what is wrong comes first."""

import http.client
import json
import os
from collections.abc import Sequence
from typing import Any

import click

from reach_cli.admin import host_and_port, json_option, problem_of, reason, token
from reach_cli.control_report import Asked, Problem, describe, nodes_of, problems_of
from reach_cli.run_directory import notes
from reach_cli.terminal import print_json
from reach_core.address import join_address

DEFAULT_ADMIN = "http://127.0.0.1:7082"
ANSWER_TIMEOUT_S = 5.0
MOST_BYTES = 4 << 20


@click.command("status")
@click.option(
    "--control",
    "controls",
    multiple=True,
    metavar="URL",
    help="The admin listener of a control node; several times for several. The URL of a node that runs here will do "
    "too. [$REACH_CONTROL_ADMIN, else the only one running here, else http://127.0.0.1:7082]",
)
@json_option
def command(controls: tuple[str, ...], as_json: bool) -> None:
    """Show how control nodes are: what is wrong and what to do about it, each node asked, and all nodes they know.

    Exit code 1 if a node cannot be reached, or another has lacked changes of it for more than 10 s.

    \b
    Example:
      reach control status
      reach control status --control http://10.0.0.1:7082 --control http://10.0.0.2:7082 --json
    """
    asked = [ask(url) for url in places(controls)]
    problems = problems_of(asked)
    is_well = not any(problem.is_failure for problem in problems)
    if as_json:
        print_json(document(asked, problems, is_well))
    else:
        click.echo(describe(asked, problems))
    click.get_current_context().exit(0 if is_well else 1)


def places(named: Sequence[str]) -> list[str]:
    """The admin listeners to ask, as URLs, each once. Raises click.UsageError if it is not clear which is meant."""
    named = named or os.environ.get("REACH_CONTROL_ADMIN", "").replace(",", " ").split()
    noted = notes("control")
    if not named:
        if len(noted) > 1:
            known = "\n".join(f"  --control http://{note['admin']}   of http://{note['id']}" for note in noted)
            raise click.UsageError(
                f"{len(noted)} control nodes run here. Say which to ask (all of one mesh at once is best), "
                f"or set REACH_CONTROL_ADMIN:\n{known}"
            )
        return [f"http://{noted[0]['admin']}" if noted else DEFAULT_ADMIN]
    admins = {note[key]: note["admin"] for note in noted for key in ("id", "api") if key in note}
    found = []
    for url in named:
        try:
            address = join_address(*host_and_port(url))
        except click.UsageError:
            message = f"{url!r} is not an address: write http://HOST:PORT, such as {DEFAULT_ADMIN}."
            raise click.UsageError(message) from None
        found.append(f"http://{admins.get(address, address)}")
    return list(dict.fromkeys(found))


def ask(url: str) -> Asked:
    """`GET /v1/status` there; what went wrong is part of the answer, for the others are asked all the same."""
    connection = http.client.HTTPConnection(*host_and_port(url), timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/v1/status", headers=token())
        answer = connection.getresponse()
        body = answer.read(MOST_BYTES)
    except OSError as error:
        return Asked(url, None, f"nothing answers there ({reason(error)})")
    except http.client.HTTPException as error:
        return Asked(url, None, f"what listens there does not speak HTTP ({reason(error)})")
    finally:
        connection.close()
    if answer.status != 200:
        detail = problem_of(body).get("detail") or "is that the admin listener of a control node?"
        return Asked(url, None, f"it answered {answer.status}: {detail}")
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    if not isinstance(status, dict) or not isinstance(status.get("agents"), dict):
        return Asked(url, None, "what answers there is no control node")
    return Asked(url, status, "")


def document(asked: Sequence[Asked], problems: Sequence[Problem], is_well: bool) -> dict[str, Any]:
    """For programs: the same, with the documents of the nodes whole."""
    return {
        "ok": is_well,
        "problems": [problem._asdict() for problem in problems],
        "nodes": [node._asdict() for node in nodes_of(asked)],
        "asked": [one._asdict() for one in asked],
    }
