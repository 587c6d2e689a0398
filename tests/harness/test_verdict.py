"""Each rule of the verdict finds what it is there for, and nothing where all is well."""

from collections.abc import Sequence

import pytest
from harness.disturbance import Disturbance, overlap_s
from harness.ledger import Run
from harness.repeaters import Asked
from harness.verdict import Facts, violations

FINE = Asked("c", True, "caller-1", 10.0, 10.2, 2.0, status=200, agent="worker-1", run="r")
NO = FINE._replace(status=503, problem="no_agent_available", executed="no", agent=None, run=None)
UNKNOWN = FINE._replace(status=502, problem="outcome_unknown", executed="unknown", run=None)
BROKE = FINE._replace(status=None, agent=None, run=None, broke="refused")
RAN = Run("c", 10.1, "worker-1", "c", "1")


def cause(kind: str, target: str, began: float, ended: float) -> Disturbance:
    return Disturbance(kind, target, began, ended)


@pytest.mark.parametrize(("asked", "runs", "causes", "broken"), [
    ([FINE], [RAN], [], set()),
    ([FINE], [RAN, RAN._replace(at=10.15, agent="worker-2")], [], {"run_once"}),
    ([FINE], [], [], {"success_ran"}),
    ([FINE], [RAN._replace(agent="worker-2")], [], {"success_ran"}),
    ([FINE], [RAN._replace(at=10.3)], [], {"success_ran"}),
    ([FINE, FINE._replace(began=11, ended=11.1)], [RAN], [], set()),
    ([FINE, FINE._replace(began=11, ended=11.1, run="other")], [RAN], [], {"same_answer"}),
    ([NO], [], [], set()),
    ([NO], [RAN], [], {"no_means_no"}),
    ([NO], [RAN._replace(at=99.0)], [], {"no_means_no"}),
    ([NO, FINE._replace(began=11, ended=11.2)], [RAN._replace(at=11.1)], [], set()),
    ([NO, FINE._replace(began=11, ended=11.2)], [RAN._replace(at=10.9)], [], {"no_means_no"}),
    ([BROKE, NO._replace(began=11, ended=11.1)], [RAN], [cause("kill", "caller-1", 10.1, 10.5)], set()),
    ([FINE._replace(ended=12.9)], [RAN], [], set()),
    ([FINE._replace(ended=13.1)], [RAN], [], {"answered_in_time"}),
    ([FINE._replace(ended=13.1)], [RAN], [cause("stop", "caller-1", 10.5, 10.9)], set()),
    ([FINE._replace(ended=13.1)], [RAN], [cause("stop", "worker-1", 10.5, 10.9)], {"answered_in_time"}),
    ([BROKE], [], [], {"broken_only_with_its_sidecar"}),
    ([BROKE], [], [cause("stop", "caller-1", 10, 11)], {"broken_only_with_its_sidecar"}),
    ([BROKE], [], [cause("kill", "caller-2", 10, 11)], {"broken_only_with_its_sidecar"}),
    ([BROKE], [RAN], [cause("kill", "caller-1", 10, 11)], set()),
    ([FINE._replace(nonsense="418", run=None)], [RAN], [], {"makes_sense"}),
    ([NO._replace(problem="key_reused")], [], [], {"makes_sense"}),
    ([NO._replace(problem="answer_not_kept", executed="yes")], [RAN], [], {"makes_sense"}),
    ([NO._replace(problem="answer_not_kept", executed="yes", big=True)], [RAN], [], set()),
    ([UNKNOWN], [], [], {"doubt_has_a_cause"}),
    ([UNKNOWN], [], [cause("kill", "worker-1-agent", 10.1, 11)], set()),
    ([UNKNOWN], [], [cause("cut", "worker-1-link", 10.1, 10.1)], set()),
    ([UNKNOWN], [], [cause("kill", "worker-2-agent", 10.1, 11)], {"doubt_has_a_cause"}),
    ([UNKNOWN], [], [cause("kill", "worker-1", 1.0, 2.0)], {"doubt_has_a_cause"}),
    ([UNKNOWN], [], [cause("kill", "control", 9, 11)], {"doubt_has_a_cause"}),
    ([UNKNOWN._replace(problem="deadline_exceeded")], [], [cause("kill", "worker-2", 10.1, 11)], set()),
    ([UNKNOWN._replace(problem="deadline_exceeded")], [], [], {"doubt_has_a_cause"}),
    ([UNKNOWN._replace(problem="deadline_exceeded", agents=("worker-2", "worker-1")),
      UNKNOWN._replace(began=20, ended=21)], [], [], set()),
    ([UNKNOWN, FINE._replace(began=10.1, ended=10.3)], [RAN], [], set()),
    ([UNKNOWN, FINE._replace(began=10.4, ended=10.5)], [RAN], [], {"doubt_has_a_cause"}),
    ([FINE._replace(began=9, ended=9.1, status=None, run=None, hung_up=True, big=True), UNKNOWN], [], [], set()),
    ([FINE._replace(began=9, ended=9.1, status=None, run=None, hung_up=True), UNKNOWN], [], [], {"doubt_has_a_cause"}),
])  # fmt: skip
def test_rules(asked: Sequence[Asked], runs: Sequence[Run], causes: Sequence[Disturbance], broken: set[str]) -> None:
    assert {one.rule for one in violations(Facts(asked, runs, causes))} == broken


def test_overlapping_outages_count_once() -> None:
    outages = [cause("kill", "a", 0, 2), cause("stop", "a", 1, 3), cause("stop", "a", 5, 9)]
    assert overlap_s(outages, 0.5, 6) == pytest.approx(2.5 + 1)
