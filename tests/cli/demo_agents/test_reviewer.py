from reach_cli.demo_agents.reviewer import review


def test_what_is_missing_is_named() -> None:
    text = "Sidecars route calls. Sidecars route quickly. Leases expire. Leases renew."
    verdict = review(text, "Sidecars route calls.")
    assert verdict["missing"] == ["leases"]
    assert verdict["coverage"] == 0.67
    assert verdict["verdict"].startswith("Keeps 2 of 3 topics")


def test_nothing_to_keep() -> None:
    assert review("", "")["missing"] == []
