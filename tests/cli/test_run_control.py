import socket
from pathlib import Path
from typing import Any

import pytest

from reach_cli.failure import Failed
from reach_cli.run_control import ensure_control, last_lines, probe


def test_who_is_there(stand_in: Any) -> None:
    stand_in.answers["/livez"] = type(stand_in.answers["/v1/self"])(b"alive\n")
    assert probe(stand_in.url) == "control"
    del stand_in.answers["/livez"]
    assert probe(stand_in.url) == "other"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert probe(f"http://127.0.0.1:{unused.getsockname()[1]}") == "nobody"


def test_what_does_not_speak_http_is_something_else(no_http: str) -> None:
    assert probe(no_http) == "other"


def test_one_that_answers_is_enough(stand_in: Any) -> None:
    stand_in.answers["/livez"] = type(stand_in.answers["/v1/self"])(b"alive\n")
    assert ensure_control(["http://127.0.0.1:1", stand_in.url]) is None


def test_nodes_of_other_machines_are_not_ours_to_start() -> None:
    assert ensure_control(["http://127.255.255.254:1", "https://control.example:7080"][:1]) is None


def test_a_port_that_another_program_has_is_named(stand_in: Any) -> None:
    with pytest.raises(Failed, match=r"is not a control node but pid \d+ .*--control"):
        ensure_control([stand_in.url])


def test_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log) == "  (nothing)"
    log.write_text("one\ntwo\nthree\n")
    assert last_lines(log, 2) == "  two\n  three"
