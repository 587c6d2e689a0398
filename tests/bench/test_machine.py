from bench import machine


def test_names_of_files_are_plain() -> None:
    assert machine.slug("AMD EPYC 7B13 (64 cores) @ 2.4GHz") == "amd-epyc-7b13-64-cores-2-4ghz"


def test_facts_name_what_decides_the_figures() -> None:
    facts = machine.facts()
    assert facts["cpu"]
    assert facts["python_build"]
    assert "uvloop" in facts["packages"]  # type: ignore[operator]


def test_busy_share_is_a_share() -> None:
    assert 0 <= machine.busy_share(0.05) <= 1
