"""The agent's own verdict: in a header, or in its JSON."""

import time
from typing import get_args

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.policy.outcome import MAX_JSON_BYTES, Outcome, from_header, from_json, is_json

WORDS: tuple[Outcome, ...] = get_args(Outcome)


@pytest.mark.parametrize("word", WORDS)
def test_each_word(word: Outcome) -> None:
    assert from_header(word.encode()) == word
    assert from_header(b" %b\t" % word.upper().encode()) == word
    assert from_json(orjson.dumps({"result": [1], "status": word})) == word
    assert from_json(orjson.dumps({"status": word.title(), "success": word != "success"})) == word


@pytest.mark.parametrize("value", [None, b"", b"ok", b"failed", b"success, failure", b"success;q=1", b"\xff\xfe",
                                   b"failure\x00", b"retryable-failure", b"x" * 100_000])
def test_no_word_in_the_header(value: bytes | None) -> None:
    assert from_header(value) is None


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (b'{"success": false}',                          "failure"),
        (b'{"success": true}',                           "success"),
        (b'{"status": "ok", "success": false}',          "failure"),
        (b'{"status": 200, "success": false}',           "failure"),
        (b'{"status": {"status": "failure"}}',           None),
        (b'{"status": ["failure"]}',                     None),
        (b'{"status": "ok"}',                            None),
        (b'{"status": null, "success": null}',           None),
        (b'{"success": 0}',                              None),
        (b'{"success": "false"}',                        None),
        (b'{"success": ""}',                             None),
        (b'{"result": {"success": false}}',              None),
        (b'{"task": "done"}',                            None),
        (b'{}',                                          None),
        (b' \r\n\t{"status" : "failure" } \n',           "failure"),
        (rb'{"st\u0061tus": "f\u0061ilure"}',            "failure"),
        (rb'{"status": "\ud800", "success": false}',     None),
        (b'{"status": "' + b"\\u0066" * 90 + b'"}',      None),
        (b'{"status": "failure", "status": "success"}',  "success"),
        # not an object, or none at all
        (b'["status", "failure"]',                       None),
        (b'[{"status": "failure"}]',                     None),
        (b'"failure"',                                   None),
        (b'null',                                        None),
        (b'false',                                       None),
        (b'',                                            None),
        (b'failure',                                     None),
        (b'{"status": "failure"',                        None),
        (b'{"status": "failure"} and more',              None),
        (b'{"status": "failure", "x": NaN}',             None),
        (b"{'status': 'failure'}",                       None),
        (b'\xef\xbb\xbf{"status": "failure"}',           None),
        (b'<html>"status": "failure"</html>',            None),
    ],
)  # fmt: skip
def test_json(body: bytes, verdict: Outcome | None) -> None:
    assert from_json(body) == verdict


def test_bound() -> None:
    frame = b'{"status":"failure","x":"%b"}'
    most = frame % (b"x" * (MAX_JSON_BYTES - len(frame) + 2))
    assert len(most) == MAX_JSON_BYTES
    assert from_json(most) == "failure"
    assert from_json(most + b" ") is None


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"status":', b'{"success":['])
def test_nesting_without_end_is_no_verdict(opening: bytes) -> None:
    assert from_json(b'{"status":"success","x":' + opening * (1_000_000 // len(opening))) is None
    assert from_json(opening * (1_000_000 // len(opening))) is None


@pytest.mark.parametrize("filling", [b"[],", b"1,", b'"",', b'{"a":1},', b'"\\u0061",'])
def test_a_mebibyte_of_small_values_is_read_in_a_moment(filling: bytes) -> None:
    body = b'{"x":[' + filling * (1_048_000 // len(filling)) + b'0],"status":"invalid_request"}'
    began = time.process_time()
    assert from_json(body) == "invalid_request"
    assert time.process_time() - began < 0.25, "many times what it takes"


@given(st.binary(max_size=200))
def test_never_raises(body: bytes) -> None:
    assert from_json(body) in (None, *WORDS)
    assert from_header(body) in (None, *WORDS)
    is_json(body)


JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([*WORDS, "", "ok", "é\\\""]),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(["status", "success", "x"]), inner, max_size=3))


@given(JSON)
def test_as_a_reader_of_whole_json_would_say(value: object) -> None:
    expected = None
    if isinstance(value, dict):
        status, success = value.get("status"), value.get("success")
        if isinstance(status, str) and status in WORDS:
            expected = status
        elif isinstance(success, bool):
            expected = "success" if success else "failure"
    assert from_json(orjson.dumps(value)) == expected


@pytest.mark.parametrize(
    ("content_type", "json"),
    [
        (None,                                False),
        (b"",                                 False),
        (b"application/json",                 True),
        (b"Application/JSON; charset=utf-8",  True),
        (b"application/json ;x=y",            True),
        (b"application/problem+json",         True),
        (b"application/vnd.agent.v1+JSON",    True),
        (b"application/jsonlines",            False),
        (b"application/x-ndjson",             False),
        (b"text/event-stream",                False),
        (b"text/plain; a=application/json",   False),
        (b"+json",                            False),
    ],
)  # fmt: skip
def test_is_json(content_type: bytes | None, json: bool) -> None:
    assert is_json(content_type) is json
