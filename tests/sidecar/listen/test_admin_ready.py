"""Readiness: the verdict, and sentences that say what is missing."""

import orjson
import pytest

from reach_sidecar.listen.admin_ready import Facts, Readiness, judge


@pytest.mark.parametrize(
    ("facts", "ready", "lines"),
    [
        (Facts(True, 0.5), True, []),
        (Facts(True, 0.5, has_agent=True, registered=True), True, []),
        (Facts(True, None), False, ["the table has not arrived from control yet"]),
        (
            Facts(False, None, controls=("http://127.0.0.1:7080",)),
            False,
            ["no control node reached yet (http://127.0.0.1:7080); there is no table to route on"],
        ),
        (
            Facts(False, 12.3, from_cache=True),
            True,
            ["no control node reached yet; routing on the cached table of 12 s ago"],
        ),
        (Facts(False, 40.0), True, ["no control node answers now; routing on the table of 40 s ago"]),
        (Facts(True, 1.0, has_agent=True), False, ["the agent is not registered yet: others cannot call it"]),
        (
            Facts(False, 1.0, has_agent=True),
            True,
            [
                "no control node answers now; routing on the table of 1 s ago",
                "the agent is not registered yet: others cannot call it",
            ],
        ),
        (
            Facts(True, 1.0, has_agent=True, registered=True, unfit=True),
            True,
            ["the agent does not answer its health checks: others do not call it"],
        ),
        (Facts(True, 1.0, draining=True), False, ["draining: others are asked not to call this agent any more"]),
    ],
)
def test_verdicts(facts: Facts, ready: bool, lines: list[str]) -> None:
    assert judge(facts) == Readiness(ready, lines)


def test_both_forms() -> None:
    readiness = Readiness(False, ["draining: no new calls are taken"])
    assert orjson.loads(readiness.to_json()) == {"ready": False, "reasons": ["draining: no new calls are taken"]}
    assert readiness.to_text() == "not ready\ndraining: no new calls are taken\n"
    assert Readiness(True, []).to_text() == "ready\n"
