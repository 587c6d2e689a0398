"""The bounds that the design promises."""

from reach_sidecar.http1.limits import Limits


def test_defaults() -> None:
    limits = Limits()
    assert (limits.head_bytes, limits.url_bytes, limits.head_timeout_s) == (64 << 10, 16 << 10, 10.0)
    assert (limits.connect_timeout_s, limits.write_timeout_s, limits.stream_idle_s) == (3.0, 15.0, 300.0)
