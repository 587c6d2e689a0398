"""The defaults of a sidecar's settings, which the design fixes."""

from reach_sidecar.config_sections import SidecarConfig


def test_defaults() -> None:
    config = SidecarConfig()
    assert config.agent is None
    assert config.control == ["http://127.0.0.1:7080"]
    listen = config.listen
    assert (listen.outbound, listen.mesh, listen.admin) == ("127.0.0.1:7070", "127.0.0.1:7071", "127.0.0.1:7072")
    assert listen.probe is None
    assert config.default_timeout == 600.0
    assert (config.egress, config.advertise, config.join, config.insecure) == (None, None, None, False)
    log = config.log
    assert (log.level, log.format, log.keep, log.max_size) == ("info", "json", 86400.0, 256 << 20)
    assert (config.dedup.memory, config.dedup.keep, config.dedup.keep_durable) == (64 << 20, 600.0, 86400.0)
    weights = config.weights
    assert (weights.match, weights.load, weights.rtt, weights.prefer, weights.fail) == (1.0, 0.6, 0.2, 0.4, 0.4)
    assert (config.limits.head, config.limits.url, config.limits.head_timeout) == (65536, 16384, 10.0)
    assert (config.drain.wait, config.drain.grace) == (5.0, 30.0)
