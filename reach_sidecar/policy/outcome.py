"""The agent's own verdict on a call, where it gives one: in `Reach-Outcome`, or in its JSON answer (`outcome: json`).

A 200 can carry a failure and a 500 a success; what the agent says of its work wins over the status. No verdict is
None, and then the status speaks. So a body that says nothing, or is no JSON object, is no failure; a `success: true`
is a verdict as good as `status: "success"`. The word in `status` is the finer one and wins over `success`; a `status`
of any other kind (`"ok"`, `200`, an object) says nothing.

Any agent's answer is read here, so what it costs counts: the body is scanned once and nothing is built from it but
the two members. A 1 MiB body of many small values takes 3 ms this way, 20 ms or more when it becomes Python objects.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

Outcome = Literal["success", "failure", "retryable_failure", "invalid_request"]

MAX_JSON_BYTES = 1024 * 1024  # a longer answer streams to its caller, and is not looked into

_WORDS: dict[bytes, Outcome] = {
    b"success": "success", b"failure": "failure", b"retryable_failure": "retryable_failure",
    b"invalid_request": "invalid_request",
}
_WORD_AT_MOST = 128  # as JSON: the longest word with each letter written as an escape is 104

# The two members as they stand in the text, empty where absent. Made by a call: a class body that is compiled to C
# does not keep what msgspec needs to know of it.
_NONE = msgspec.Raw(b"")
_Verdict = msgspec.defstruct("_Verdict", [("status", msgspec.Raw, _NONE), ("success", msgspec.Raw, _NONE)])
_read: Callable[[bytes], Any] = msgspec.json.Decoder(_Verdict).decode


def from_header(value: bytes | None) -> Outcome | None:
    """The word in `Reach-Outcome`, in any case; None where it is absent or no such word."""
    if value is None:
        return None
    return _WORDS.get(value) or _WORDS.get(value.strip().lower())


def from_json(body: bytes) -> Outcome | None:
    """The verdict in a JSON object; None where it holds none, is too long, or is anything else. Never raises."""
    if len(body) > MAX_JSON_BYTES:
        return None
    try:
        found = _read(body)
        word = _WORDS.get(_text(bytes(found.status)))
    except (msgspec.DecodeError, RecursionError):  # nested too deep is as good as broken
        return None
    if word is not None:
        return word
    said = bytes(found.success)
    return "failure" if said == b"false" else "success" if said == b"true" else None


def _text(raw: bytes) -> bytes:
    """A short JSON string in lower case, without its quotes; b"" for any other value. Raises DecodeError."""
    if not raw.startswith(b'"') or len(raw) > _WORD_AT_MOST:
        return b""
    if b"\\" in raw:
        return msgspec.json.decode(raw, type=str).encode().strip().lower()
    return raw[1:-1].strip().lower()


def is_json(content_type: bytes | None) -> bool:
    """Is this the `Content-Type` of JSON: application/json, or a type with the suffix +json (RFC 6839)?"""
    if content_type is None:
        return False
    if content_type == b"application/json":
        return True
    media_type = content_type.partition(b";")[0].strip().lower()
    return media_type == b"application/json" or (media_type.endswith(b"+json") and b"/" in media_type)
