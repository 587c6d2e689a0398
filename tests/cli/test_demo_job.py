from pathlib import Path

import pytest

from reach_cli import demo_job


def test_four_agents_and_their_sources() -> None:
    agents = demo_job.demo_agents()
    assert [agent.id for agent in agents] == ["planner-01", "summarizer-01", "reviewer-01", "scribe-01"]
    assert all(agent.source.is_file() for agent in agents)


@pytest.mark.parametrize(("node", "source"), [("/usr/bin/node", "scribe.mjs"), (None, "scribe.py")])
def test_the_scribe_is_a_node_program_where_node_is(
    node: str | None, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: node)
    assert demo_job.demo_agents()[-1].source.name == source


def test_the_agents_import_nothing_of_ours() -> None:
    for source in Path(demo_job.AGENTS).iterdir():
        if source.suffix in (".py", ".mjs") and source.stem != "__init__":
            text = source.read_text()
            assert not any(word in text for word in ("import reach", "from reach")), source
