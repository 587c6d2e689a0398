import json
from pathlib import Path
from typing import Any

import pytest

from reach_cli.call import content_type, target_path

PROBLEM = {
    "type": "urn:reach:no_agent_available",
    "title": "No agent can take the call now",
    "status": 503,
    "detail": "summarizer-01 is down. Start it again.",
    "executed": "unknown",
    "trace_id": "ab" * 16,
    "attempts": [{"agent": "summarizer-01", "result": "refused", "ms": 1.5}],
}


def canned(stand_in: Any, body: Any, **fields: Any) -> Any:
    return type(stand_in.answers["/v1/self"])(body, **fields)


@pytest.mark.parametrize(
    ("capability", "path", "target"),
    [
        ("summarize", None, "/to/summarize"),
        ("summarize", "/process", "/to/summarize/process"),
        ("summarize", "process?x=1&y=a b", "/to/summarize/process?x=1&y=a%20b"),
        ("@summarizer-01", "/v1", "/to/@summarizer-01/v1"),
        ("text/summarize", None, "/to/text.summarize"),
        ("with space", None, "/to/with%20space"),
        ("summarize", "/", "/to/summarize/"),
    ],
)
def test_the_path_form(capability: str, path: str | None, target: str) -> None:
    assert target_path(capability, path) == target


def test_the_answer_goes_to_stdout_untouched(stand_in: Any, reach: Any) -> None:
    stand_in.answers["/to/summarize"] = canned(stand_in, b"\x00\xff raw")
    result = reach("call", "summarize", "-d", '{"task": "x"}', "-H", "X-Mine: a: b", "--timeout", "3s")
    assert result.exit_code == 0
    assert result.stdout_bytes == b"\x00\xff raw"
    assert result.stderr == ""
    asked = stand_in.asked[-1]
    assert (asked.method, asked.body) == ("POST", b'{"task": "x"}')
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.headers["X-Mine"] == "a: b"
    assert asked.headers["Reach-Timeout"] == "3s"


def test_without_a_body_it_is_get(stand_in: Any, reach: Any) -> None:
    stand_in.answers["/to/summarize/x"] = canned(stand_in, b"ok")
    assert reach("call", "summarize", "/x").stdout == "ok"
    assert stand_in.asked[-1].method == "GET"
    assert "Content-Type" not in stand_in.asked[-1].headers
    reach("call", "summarize", "/x", "-X", "put", "-d", "", "-H", "content-type: text/csv")
    assert stand_in.asked[-1].method == "PUT"
    assert stand_in.asked[-1].headers["content-type"] == "text/csv"
    assert "Content-Type" not in stand_in.asked[-1].headers


def test_a_file_and_standard_input(stand_in: Any, reach: Any, tmp_path: Path) -> None:
    stand_in.answers["/to/summarize"] = canned(stand_in, b"ok")
    file = tmp_path / "job"
    file.write_bytes(b"[1]" + b" " * 300_000)
    reach("call", "summarize", "-d", f"@{file}")
    assert stand_in.asked[-1].body == file.read_bytes()
    assert stand_in.asked[-1].headers["Content-Length"] == "300003"
    assert stand_in.asked[-1].headers["Content-Type"] == "application/json"
    reach("call", "summarize", "-d", "@-", stdin=b"from a pipe")
    assert stand_in.asked[-1].body == b"from a pipe"
    assert stand_in.asked[-1].headers["Content-Type"].startswith("text/plain")


def test_the_head_is_shown_on_request(stand_in: Any, reach: Any) -> None:
    stand_in.answers["/to/x"] = canned(stand_in, b"body", headers=(("Reach-Agent", "a"),))
    head, _, body = reach("call", "x", "-i").stdout.partition("\n\n")
    assert head.startswith("HTTP/1.1 200 OK\n")
    assert "Reach-Agent: a" in head
    assert body == "body"


def test_a_problem_is_explained_on_stderr(stand_in: Any, reach: Any) -> None:
    headers = (("Content-Type", "application/problem+json"), ("Retry-After", "2"))
    stand_in.answers["/to/x"] = canned(stand_in, PROBLEM, status=503, headers=headers)
    result = reach("call", "x")
    assert result.exit_code == 1
    assert result.stdout == ""
    for said in (PROBLEM["detail"], "tried summarizer-01: refused (1.5 ms)", "may have run", "in 2 s"):
        assert str(said) in result.stderr
    assert f"reach logs --trace-id {'ab' * 16}" in result.stderr


def test_an_agents_own_error_is_its_own(stand_in: Any, reach: Any) -> None:
    headers = (("Reach-Agent", "a-1"), ("Reach-Trace-Id", "cd" * 16))
    stand_in.answers["/to/x"] = canned(stand_in, {"error": "no such job"}, status=404, headers=headers)
    result = reach("call", "x")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"error": "no such job"}
    assert "a-1 answered 404" in result.stderr
    assert "cd" * 16 in result.stderr


def test_a_200_that_carries_a_failure_is_one(stand_in: Any, reach: Any) -> None:
    stand_in.answers["/to/x"] = canned(stand_in, b"sorry", headers=(("Reach-Outcome", "retryable_failure"),))
    result = reach("call", "x")
    assert result.exit_code == 1
    assert "retryable failure" in result.stderr


def test_an_answer_that_is_cut_off_never_looks_whole(stand_in: Any, reach: Any) -> None:
    stand_in.answers["/to/x"] = canned(stand_in, b"half of", cut=8)
    result = reach("call", "x")
    assert result.exit_code == 1
    assert "cut off" in result.stderr


def test_nobody_listens(reach: Any) -> None:
    result = reach("call", "x", "--admin", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "does not answer at http://127.0.0.1:1" in result.stderr


def test_a_header_that_cannot_be_sent(stand_in: Any, reach: Any) -> None:
    result = reach("call", "x", "-H", "X-A: b\nc")
    assert result.exit_code == 1
    assert "could not be sent" in result.stderr


def test_what_a_body_looks_like() -> None:
    assert content_type(b' {"a": 1}') == "application/json"
    assert content_type(b"[1]") == "application/json"
    assert content_type(b"hello") == "text/plain; charset=utf-8"
    assert content_type(b"") == "text/plain; charset=utf-8"
