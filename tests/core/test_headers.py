"""The names on the wire are look-up keys: folded, and each set says what stops where."""

from reach_core import headers
from reach_core.headers import named_by_connection


def test_names_are_folded() -> None:
    for names in (headers.HOP_BY_HOP, headers.SIDECAR_ONLY, headers.TARGETING, headers.MESH_ANSWER):
        assert all(name == name.lower().strip() for name in names)


def test_what_passes_is_in_no_set() -> None:
    """These are for the agents themselves, or travel from hop to hop."""
    stopped = headers.HOP_BY_HOP | headers.SIDECAR_ONLY | headers.TARGETING | headers.MESH_ANSWER
    through = {b"idempotency-key", b"traceparent", b"tracestate", b"prefer", b"reach-outcome", b"authorization", b"host"}
    assert not stopped & through


def test_refusals_are_between_sidecars_only() -> None:
    assert b"reach-refused" in headers.MESH_ANSWER
    told_on = {b"reach-retries-left"}  # an agent may pass it on with its calls
    assert headers.MESH_ANSWER - told_on <= headers.SIDECAR_ONLY, "an agent must not be able to say them either"


def test_connection_names() -> None:
    assert named_by_connection(b"keep-alive, X-Private ,,\tTE") == {b"keep-alive", b"x-private", b"te"}
    assert named_by_connection(b"") == frozenset()
