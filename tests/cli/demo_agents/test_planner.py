from typing import Any

import pytest

from reach_cli.demo_agents import planner


def test_what_the_reviewer_misses_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any]] = []
    reviews = [{"missing": ["beta"], "verdict": "no"}, {"missing": [], "verdict": "fine"}]

    def call(capability: str, job: dict[str, Any], trace: str | None) -> dict[str, Any]:
        asked.append((capability, job))
        assert trace == "00-ab-cd-01"
        if capability == "summarize":
            return {"summary": f"short {job['task'][:5]}"}
        return reviews.pop(0) if capability == "review" else {"report": "\n".join(job["paragraphs"])}

    monkeypatch.setattr(planner, "call", call)
    done = planner.plan("alpha alpha.\n\nbeta beta.", "Title", "00-ab-cd-01")
    assert done["report"] == "short alpha\nshort beta "
    assert done["parts"] == 2
    assert [capability for capability, _ in asked].count("summarize") == 3
    assert asked[3] == ("summarize", {"task": "beta beta.", "sentences": 2, "about": ["beta"]})
