"""Loading `control.yaml`: its defaults, and what each mistake is answered with."""

from pathlib import Path

import pytest
from harness.settings import complaint_at_mark

from reach_control.config import ControlConfig, complete, load_control, parse_control
from reach_core.settings.complaint import ConfigError

# ▸ stands before the character that the complaint must point at.
BAD = {
    "unknown key": ("▸clutser: x", "did you mean `cluster`?"),
    "a sidecar's key": ("listen: {▸outbound: 127.0.0.1:1}", "known are api, admin, probe"),
    "ttl": ("lease: {heartbeat: 10s, ttl: ▸29s}", "less than three heartbeats, so one lost message would count as a death: write at least 30s"),
    "ttl by default": ("lease: {heartbeat: ▸11s}", "`lease.ttl`: 30s is less than three heartbeats"),
    "down": ("lease: {down: ▸30s}", "30s is not more than `lease.ttl` (30s)"),
    "forget": ("lease: {forget: ▸1m}", "1m is not more than `lease.down` (1m)"),
    "ports": ('listen: {api: "127.0.0.1:81", admin: ▸"127.0.0.1:81"}', "port 81 is that of `listen.api` already"),
    "api without TLS": ("listen: {api: ▸0.0.0.0:7080}", "reachable from other machines without TLS"),
    "admin without TLS": ("listen: {admin: ▸0.0.0.0:7082}", "reachable from other machines without TLS"),
    "same capability": ("aliases:\n  a.b: [x]\n  A-B: ▸[y]", "`aliases.A-B`: is the same name as `a.b`"),
    "alias of two": ("aliases: {a: [x], b: [▸X]}", "`X` is an alias of `a` already"),
    "alias is a capability": ("aliases: {a: [▸b], b: [x]}", "`b` is itself a capability with aliases here"),
    "alias not in a list": ("aliases: {a: ▸b}", "expected a list, found `b` (write [b])"),
    "alias's name": ("aliases: {▸a/: [b]}", "expected a capability name"),
    "cluster": ("cluster: ▸two words", "`cluster`: expected an id"),
    "peers": ("peers: [▸control-2]", "it starts with http:// or https://"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_each_mistake_is_named_with_its_place(case: str) -> None:
    marked, fragment = BAD[case]
    complaint = complaint_at_mark(lambda text: parse_control(text, "control.yaml", {}), marked)
    assert fragment in complaint.message


def test_defaults() -> None:
    config = ControlConfig()
    assert (config.cluster, config.peers, config.aliases, config.insecure) == ("local", [], {}, False)
    assert (config.listen.api, config.listen.admin) == ("127.0.0.1:7080", "127.0.0.1:7082")
    lease = config.lease
    assert (lease.heartbeat, lease.ttl, lease.down, lease.forget, lease.cooldown) == (10.0, 30.0, 60.0, 600.0, 30.0)


def test_every_line_has_a_default() -> None:
    assert parse_control("{}", "f", {"STATE_DIRECTORY": "/s"}) == complete(ControlConfig(), {"STATE_DIRECTORY": "/s"})


def test_the_state_directory() -> None:
    assert complete(ControlConfig(), {}, root=True).state_dir == "/var/lib/reach-control"
    assert complete(ControlConfig(), {"HOME": "/h"}, root=False).state_dir == "/h/.local/state/reach/control"
    assert complete(ControlConfig(), {"XDG_STATE_HOME": "/x"}, root=False).state_dir == "/x/reach/control"
    assert complete(ControlConfig(state_dir="/s"), {"STATE_DIRECTORY": "/t"}).state_dir == "/s"


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "control.yaml"
    file.write_text("cluster: ${C}\n")
    assert load_control(file, {"C": "blue"}).cluster == "blue"
    for path, fragment in ((tmp_path / "none", "no such file"), (tmp_path, "a directory"), ("a\0b", "not the name")):
        with pytest.raises(ConfigError, match=fragment):
            load_control(path, {})
