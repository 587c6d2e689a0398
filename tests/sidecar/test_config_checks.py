"""Combinations of settings that cannot work, each named at the setting to change."""

import pytest
from harness.settings import complaint_at_mark

from reach_sidecar.config import ConfigError, parse_sidecar

AGENT = "agent:\n  address: http://127.0.0.1:9001\n  capabilities:\n"

# ▸ stands before the value that the complaint must point at.
BAD = {
    "same port": ('listen: {outbound: "127.0.0.1:81", admin: ▸"127.0.0.1:81"}', "port 81 is that of `listen.outbound` already"),
    "same port on other addresses": ('listen: {mesh: "127.0.0.1:81", probe: ▸"[::1]:81"}', "port 81 is that of `listen.mesh`"),
    "same port as a default": ("listen: {outbound: ▸127.0.0.1:7072}", "`listen.admin`: port 7072 is that of `listen.outbound`"),
    "the agent is the sidecar": ("agent: {address: ▸http://127.0.0.1:7070}", "that is `listen.outbound`, the sidecar itself"),
    "a token is no TLS": ("join: {token_file: /t}\nlisten: {mesh: ▸0.0.0.0:7071}", "or write `insecure: true`"),
    "mesh without TLS": ("listen: {mesh: ▸0.0.0.0:7071}", "listen on 127.0.0.1, or write `insecure: true`"),
    "outbound without TLS": ("listen: {outbound: ▸0.0.0.0:7070}", "listen on 127.0.0.1, or write `insecure: true`"),
    "admin without TLS": ("listen: {admin: ▸10.0.0.1:7072}", "is reachable from other machines without TLS"),
    "an open proxy": ("insecure: true\nlisten: {outbound: 0.0.0.0:7070}\negress: ▸allow", "an open proxy: write mesh-only"),
    "capabilities without address": ("agent:\n  ▸capabilities: [{name: a}]", "`address` is missing"),
    "GET with a body": ("agent: {probe: {path: /, method: ▸GET, body: x}}", "GET sends no body"),
    "same name": (AGENT + "  - {name: text.sum}\n  - {name: ▸Text_Sum}", "same name as `text.sum`, which capability 1 has already"),
    "alias is a name": (AGENT + "  - {name: a, aliases: [▸B]}\n  - {name: b}", "`B` is the name of another capability"),
    "alias of two": (AGENT + "  - {name: a, aliases: [c]}\n  - {name: b, aliases: [▸c]}", "`c` is an alias of `a` already"),
    "alias twice": (AGENT + "  - {name: a, aliases: [x-y, ▸x.y]}", "`x.y` is an alias of `a` already"),
    "alias of itself": (AGENT + "  - {name: a-b, aliases: [▸a.b]}", "the capability's own name"),
    "fallback to itself": (AGENT + "  - {name: a, fallback: ▸A}", "leads back to itself: a → a"),
    "fallback to itself by an alias": (AGENT + "  - {name: a, aliases: [b], fallback: ▸b}", "leads back to itself: a → a"),
    "answers forgotten too early": (AGENT + "  - {name: a, timeout: ▸11m}", "longer than answers are remembered with `dedup: memory` (10m)"),
    "durable answers too": (AGENT + "  - {name: a, timeout: ▸2h, dedup: durable}\ndedup: {keep_durable: 1h}", "a longer `dedup.keep_durable`"),
    "more than an entry holds": (
        AGENT.replace("capabilities:\n", "capabilities:\n  ▸") + "".join(f"  - {{name: n{n}{'x' * 99}}}\n" for n in range(40))[2:],
        "every sidecar of the mesh keeps at most 3584",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_work_together(case: str) -> None:
    marked, fragment = BAD[case]
    complaint = complaint_at_mark(lambda text: parse_sidecar(text, "f", {}), marked)
    assert fragment in complaint.message


def test_a_circle_of_fallbacks_is_named_at_each_of_its_members() -> None:
    text = AGENT + "  - {name: a, fallback: b}\n  - {name: b, fallback: c}\n  - {name: c, fallback: a}\n  - {name: d, fallback: a}"
    with pytest.raises(ConfigError) as caught:
        parse_sidecar(text, "f", {})
    assert [c.line for c in caught.value.complaints] == [4, 5, 6]
    assert "a → b → c → a" in caught.value.complaints[0].message


@pytest.mark.parametrize(
    "text",
    [
        'listen: {outbound: "127.0.0.1:0", mesh: "127.0.0.1:0", admin: "127.0.0.1:0"}',
        "insecure: true\nlisten: {outbound: 0.0.0.0:7070, mesh: 0.0.0.0:7071, admin: 0.0.0.0:7072}",
        "listen: {probe: 0.0.0.0:7073}",
        'listen: {outbound: "[::1]:7070", mesh: "localhost:7071"}',
        AGENT + "  - {name: a, fallback: b}\n  - {name: b, fallback: elsewhere}",
        AGENT + "  - {name: a, timeout: 10m}\n  - {name: b, timeout: 11m, dedup: durable}\n  - {name: c, timeout: 20h, dedup: off}",
        AGENT + "  - {name: message.push}\n  - {name: push.message}",
        "agent: {capabilities: []}",
    ],
)  # fmt: skip
def test_what_works_together(text: str) -> None:
    parse_sidecar(text, "f", {})


def test_nothing_is_said_about_what_is_wrong_already() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sidecar("listen: {mesh: 0.0.0.0:7071}\ninsecure: maybe", "f", {})
    assert [c.line for c in caught.value.complaints] == [2]
