"""Settings without effect are named, those with one are not."""

import pytest

from reach_sidecar.config import parse_sidecar
from reach_sidecar.config_unused import without_effect

AGENT = "agent: {{address: 'http://127.0.0.1:1', capabilities: [{{name: a, {0}}}], {1}}}"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{}", []),
        (AGENT.format("idempotent: true, timeout: 1s, dedup: 'off'", "weight: 2, health: {path: /healthz}"), []),
        ("weights: {load: 2}", []),
        ("weights: {load: 2, rtt: 0, prefer: 1}", []),
        ("dedup: {keep: 1h}", []),
        ("join: {token_file: /t}", ["join"]),
        (AGENT.format("adaptive: true, outcome: json, key: 'json:/id', fallback: b, dedup: durable",
                      "probe: {path: /x}"), ["agent.probe"]),
    ],
)
def test_what_has_no_effect_yet_is_named(text: str, names: list[str]) -> None:
    assert without_effect(parse_sidecar(text, "x.yaml", {})) == names
