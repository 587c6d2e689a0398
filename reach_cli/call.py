"""`reach call`: one call through the sidecar, its answer on stdout as it comes."""

import http.client
import sys
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import click

from reach_cli.admin import Sidecar, admin_option, find_sidecar, problem_of, reason, token
from reach_cli.failure import Failed
from reach_cli.terminal import is_terminal, paint, say
from reach_core.units import parse_duration

# How much longer than the call's own budget to wait for the sidecar to say that it is over.
GRACE_S = 5.0
PROBLEM_SIZE = 1 << 20
URL_SAFE = "/?&=%:@!$'()*+,;~-._"


@click.command("call")
@click.argument("capability", metavar="CAP")
@click.argument("path", required=False)
@click.option("-d", "--data", metavar="TEXT|@FILE|@-", help="The body: text, a file, or standard input.")
@click.option("-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="A header; may be repeated.")
@click.option("-X", "--request", "method", metavar="METHOD", help="The method. [POST with -d, else GET]")
@click.option("--timeout", metavar="DURATION", help="The total budget of the call, such as 1500ms or 30s.")
@click.option("-i", "--include", is_flag=True, help="Show the status line and headers of the answer too.")
@admin_option
def command(
    capability: str,
    path: str | None,
    data: str | None,
    headers: tuple[str, ...],
    method: str | None,
    timeout: str | None,
    include: bool,
    admin: str | None,
) -> None:
    """Call capability CAP (or @AGENT) and print the answer. Exit code 1 unless it is a success.

    Without PATH the capability's own path is called.

    \b
    Example:
      reach call summarize -d '{"task": "a long text"}'
      reach call summarize /process -d @report.json --timeout 30s
      tail -f events | reach call @collector-01 /lines -d @-
    """
    target = target_path(capability, path)
    fields = dict(_header(text) for text in headers)
    budget_s = None
    if timeout is not None:
        budget_s = budget(timeout)
        fields["Reach-Timeout"] = timeout
    body, described = _body(data)
    for name, value in described.items():
        if name.lower() not in {known.lower() for known in fields}:
            fields[name] = value
    method = (method or ("GET" if data is None else "POST")).upper()
    sidecar = find_sidecar(admin)
    answer = request(sidecar, method, target, body, fields, None if budget_s is None else budget_s + GRACE_S)
    if include:
        _show_head(answer)
    _finish(answer, _copy(answer))


def target_path(capability: str, path: str | None) -> str:
    """The path form of a call: `/to/summarize/process`. A `/` in a name is the same as a `.`."""
    name = quote(capability.replace("/", "."), safe="@")
    if path is None:
        return f"/to/{name}"
    return f"/to/{name}/{quote(path.lstrip('/'), safe=URL_SAFE)}"


def request(
    sidecar: Sidecar, method: str, target: str, body: Any, fields: dict[str, str], timeout_s: float | None
) -> http.client.HTTPResponse:
    """Send it and wait for the head of the answer. Raises Failed."""
    connection = sidecar.outbound.connect(timeout_s)
    try:
        connection.request(method, target, body, {**token(), **fields})
        return connection.getresponse()
    except (BrokenPipeError, ConnectionResetError):
        # It may have answered and closed before it had read the whole body: that answer says why.
        try:
            return connection.getresponse()
        except (OSError, http.client.HTTPException):
            raise Failed(
                f"The sidecar at {sidecar.outbound.url} broke the connection. It is not known whether "
                "the call was made; its log says more: `reach logs`."
            ) from None
    except TimeoutError:
        raise Failed(
            f"The sidecar at {sidecar.outbound.url} has not answered within the call's time. "
            "Is it overloaded or stopped? `reach peers` shows whether it lives."
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Failed(f"The call could not be sent to {sidecar.outbound.url}: {reason(error)}.") from None


def explain(answer: http.client.HTTPResponse, body: bytes) -> str:
    """A problem+json document in sentences: what happened, what to do, who was tried."""
    problem = problem_of(body)
    lines = [str(problem.get("detail") or problem.get("title") or f"{answer.status} {answer.reason}")]
    lines += [
        f"  tried {attempt.get('agent')}: {attempt.get('result')} ({attempt.get('ms')} ms)"
        for attempt in problem.get("attempts") or []
    ]
    executed = {"yes": "The agent did run it.", "unknown": "The agent may have run it."}
    if note := executed.get(str(problem.get("executed"))):
        lines.append(f"  {note}")
    if wait := answer.getheader("Retry-After"):
        lines.append(f"  Try again in {wait} s.")
    if trace := problem.get("trace_id") or answer.getheader("Reach-Trace-Id"):
        lines.append(f"  What happened: reach logs --trace-id {trace}")
    return "\n".join(lines)


def is_problem(answer: http.client.HTTPResponse) -> bool:
    """Whether the mesh itself made this answer, rather than the agent: those say by which match they were found."""
    is_document = (answer.getheader("Content-Type") or "").startswith("application/problem+json")
    return answer.status >= 400 and is_document and answer.getheader("Reach-Matched") is None


def _copy(answer: http.client.HTTPResponse) -> bytes:
    """Write the body to stdout as it comes; a problem is returned instead of written."""
    kept = b""
    problem = is_problem(answer)
    try:
        while chunk := answer.read1(65536):
            if problem:
                kept = (kept + chunk)[:PROBLEM_SIZE]
                continue
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            kept = chunk[-1:]
    except BrokenPipeError:
        raise
    except TimeoutError:
        raise Failed("The answer stopped coming in time: what was printed is not all of it.") from None
    except (OSError, http.client.HTTPException) as error:
        raise Failed(f"The answer was cut off ({reason(error)}): what was printed is not all of it.") from None
    if answer.length:
        # http.client does not complain when a body with a Content-Length ends early in read1.
        raise Failed("The answer was cut off: what was printed is not all of it.")
    if not problem and kept not in (b"", b"\n") and is_terminal(sys.stdout):
        click.echo()
    return kept


def _finish(answer: http.client.HTTPResponse, body: bytes) -> None:
    """The verdict on stderr, and exit code 1 unless the answer is a success."""
    trace = answer.getheader("Reach-Trace-Id")
    if is_problem(answer):
        raise Failed(explain(answer, body))
    outcome = answer.getheader("Reach-Outcome") or "success"
    agent = answer.getheader("Reach-Agent") or "the agent"
    hint = f" `reach logs --trace-id {trace}` shows the way it took." if trace else ""
    if answer.status >= 400:
        raise Failed(f"{agent} answered {answer.status} {answer.reason}.{hint}")
    if outcome != "success":
        verdict = outcome.replace("_", " ")
        raise Failed(f"{agent} answered {answer.status}, but says that it was a {verdict}.{hint}")
    if trace and is_terminal(sys.stderr) and is_terminal(sys.stdout):
        say(paint(f"{agent} answered; trace {trace}", "bright_black", err=True))


def _show_head(answer: http.client.HTTPResponse) -> None:
    version = {10: "HTTP/1.0", 11: "HTTP/1.1"}.get(answer.version, "HTTP")
    fields = [f"{name}: {value}" for name, value in answer.getheaders()]
    head = [f"{version} {answer.status} {answer.reason}", *fields, "", ""]
    sys.stdout.buffer.write("\n".join(head).encode("latin-1", "replace"))
    sys.stdout.buffer.flush()


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError(f"-H {text!r} is not a header: write 'Name: value'.")
    return name.strip(), value.strip()


def budget(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.UsageError(f"--timeout: {error}.") from None


def _body(data: str | None) -> tuple[bytes | IO[bytes] | None, dict[str, str]]:
    """The body of -d and the headers that describe it. Files and standard input are streamed."""
    if data is None:
        return None, {}
    if not data.startswith("@"):
        return data.encode(), {"Content-Type": content_type(data.encode())}
    if data == "@-":
        source = sys.stdin.buffer
        peek = getattr(source, "peek", None)
        return source, {"Content-Type": content_type(peek(1)[:64] if peek else b"")}
    path = Path(data[1:])
    try:
        file = path.open("rb")
    except OSError as error:
        raise click.UsageError(f"-d {data}: cannot read that file: {reason(error)}.") from None
    start = file.read(64)
    file.seek(0)
    return file, {"Content-Type": content_type(start), "Content-Length": str(path.stat().st_size)}


def content_type(start: bytes) -> str:
    """JSON if it begins like it, which is what agents mostly take; -H says otherwise."""
    return "application/json" if start.lstrip()[:1] in (b"{", b"[", b'"') else "text/plain; charset=utf-8"
