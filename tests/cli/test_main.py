import resource
import subprocess
import sys
from typing import Any

import pytest

from reach_cli import main as main_module
from reach_cli.main import VERBS


def test_help_lists_every_verb_and_imports_none() -> None:
    code = (
        "import sys; from reach_cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "loaded = [m for m in sys.modules if m.startswith('reach_cli.') and m != 'reach_cli.main']\n"
        "heavy = [m for m in ('aiohttp', 'rich', 'msgspec', 'yaml', 'asyncio', 'http.client') if m in sys.modules]\n"
        "print(loaded, heavy, file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert shown.stderr == "[] []\n"
    assert all(verb in shown.stdout for verb in VERBS)


def test_help_answers_at_once() -> None:
    """A quarter of a second is where people notice. Processor time, best of five: machines are shared."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "reach_cli", "--help"], capture_output=True, check=True, timeout=30)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(5)) < 0.25


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "config"])
def test_each_verb_explains_itself(verb: str, reach: Any) -> None:
    shown = reach(verb, "--help")
    assert shown.exit_code == 0
    assert "Example:" in shown.stdout


def test_a_daemons_process_carries_nothing_of_the_other_verbs() -> None:
    code = (
        "import sys, reach_cli.main as m; m.main.get_command(None, 'sidecar')\n"
        "print([x for x in ('rich', 'aiohttp', 'http.client', 'reach_cli.demo', 'reach_cli.run') if x in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert shown.stdout == "[]\n", shown.stderr


def test_the_line_of_a_verb_is_that_of_its_own_help() -> None:
    """Repeated in VERBS so that listing imports nothing; the first words must not drift apart."""
    for verb, (_, line) in VERBS.items():
        assert line.endswith("."), verb
        assert len(line) < 80, verb


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["peer"], "Did you mean `reach peers`?"),
        (["xyzzy"], "`reach --help` lists the verbs"),
        (["call"], "Missing argument"),
        (["call", "x", "-H", "no colon"], "is not a header"),
        (["call", "x", "--timeout", "soon"], "is not a duration"),
        (["call", "x", "-d", "@/nowhere/at/all"], "cannot read that file"),
        (["peers", "--admin", "ftp://x"], "is not an address"),
        (["peers", "--admin", "127.0.0.1:port"], "is not an address"),
        (["logs", "--level", "loud"], "loud"),
        (["run"], "Say what to run"),
        (["run", "--port", "0", "--", "true"], "--port"),
        (["control", "--exit-when-idle", "soon"], "is not a duration"),
        (["sidecar"], "--config"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(args: list[str], said: str, reach: Any) -> None:
    result = reach(*args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_version(reach: Any) -> None:
    result = reach("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("reach ")
    assert "compiled" not in result.stdout  # tests run the Python as it is


def test_no_verb_shows_the_help(reach: Any) -> None:
    result = reach()
    assert result.exit_code == 2
    assert "Commands:" in result.output


def test_a_bug_shows_a_sentence_not_a_traceback(reach: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reach_cli.peers.admin_door", lambda _: 1 / 0)
    result = reach("peers")
    assert result.exit_code == 1
    assert "REACH_DEBUG=1" in result.stderr
    assert "Traceback" not in result.output
    monkeypatch.setenv("REACH_DEBUG", "1")
    assert isinstance(reach("peers").exception, ZeroDivisionError)


def test_ctrl_c_is_exit_code_130(reach: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("reach_cli.peers.admin_door", interrupt)
    assert reach("peers").exit_code == 130


def test_a_reader_that_has_seen_enough_is_no_error(stand_in: Any) -> None:
    stand_in.answers["/v1/logs"] = type(stand_in.answers["/v1/self"])(b'{"event": "call"}\n' * 20_000)
    piped = subprocess.run(
        f"{sys.executable} -m reach_cli logs | head -n 1", shell=True, capture_output=True, text=True, timeout=30
    )
    assert piped.stdout == '{"event": "call"}\n'
    assert piped.stderr == ""


def test_a_full_disk_is_no_bug() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "reach_cli", "config", "schema", "sidecar"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=30)
    assert result.returncode == 1
    assert result.stderr == "reach: The disk is full where the output or the state goes: make room there.\n"


def test_every_verb_has_its_module() -> None:
    from importlib.util import find_spec

    assert [verb for verb, (module, _) in main_module.VERBS.items() if find_spec(module) is None] == []
