"""What must hold however processes die: the guarantee of delivery (design §3), judged by what callers saw and agents did.

Each rule is a function from the facts to what breaks it. A call is one piece of work; it may be asked for many times.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from harness.disturbance import Disturbance, overlap_s
from harness.ledger import Run
from harness.repeaters import Asked

GRACE_S = 1.0  # how much later than its deadline an answer may come
UNPUNCTUAL = 3.0  # and so many times as much as the test itself was late at worst: it does far less than a sidecar
SLACK_S = 1.0  # how much longer than it lasted a disturbance may explain something: connections that it spoiled

EXPECTED = {
    "no_agent_available", "backpressure", "breaker_open", "retries_exhausted", "deadline_too_short", "deadline_exceeded",
    "outcome_unknown", "agent_failure", "turned_down", "in_progress", "answer_not_kept",
}


class Facts:
    """Everything there is to judge by. `late_s`: how late the test's own machine was at worst."""

    def __init__(self, asked: Sequence[Asked], runs: Sequence[Run], disturbances: Sequence[Disturbance],
                 late_s: float = 0.0) -> None:
        self.asked = sorted(asked, key=lambda one: one.began)
        self.runs: dict[str, list[Run]] = defaultdict(list)
        for run in sorted(runs, key=lambda one: one.at):
            self.runs[run.call].append(run)
        self.disturbances = disturbances
        self.late_s = late_s
        self.by_call: dict[str, list[Asked]] = defaultdict(list)
        for one in self.asked:
            self.by_call[one.call].append(one)

    def of(self, *targets: str) -> list[Disturbance]:
        return [one for one in self.disturbances if one.target in targets]

    def on_the_way(self, asked: Asked) -> list[Disturbance]:
        """Of its own sidecar, and of the agents it went to: with their sidecars and links. Unnamed, it may be any."""
        agents = {*asked.agents, *([asked.agent] if asked.agent else [])}
        return [
            one for one in self.disturbances
            if one.target == asked.via
            or (one.target != "control" and not one.target.startswith("caller")
            and (not agents or one.target.removesuffix("-agent").removesuffix("-link") in agents))
        ]


class Violation(NamedTuple):
    rule: str
    call: str
    what: str
    asked: list[Asked]  # for this call, oldest first


Rule = Callable[[Facts], Iterator[tuple[str, str]]]  # (call, what)


def run_once(facts: Facts) -> Iterator[tuple[str, str]]:
    """No call is executed twice, over all agents."""
    for call, runs in facts.runs.items():
        if len(runs) > 1:
            yield call, f"ran {len(runs)} times, by {', '.join(run.agent for run in runs)}"


def success_ran(facts: Facts) -> Iterator[tuple[str, str]]:
    """An answer that says success really ran, and at the agent it names."""
    for one in facts.asked:
        if one.succeeded and not any(run.at <= one.ended and run.agent == one.agent for run in facts.runs[one.call]):
            yield one.call, f"a success at {one.ended:.3f} that {one.agent} has not done"


def same_answer(facts: Facts) -> Iterator[tuple[str, str]]:
    """Whoever repeats gets the answer of the one run there was."""
    for call, asked in facts.by_call.items():
        runs = {one.run for one in asked if one.run is not None}
        if len(runs) > 1:
            yield call, f"answered in {len(runs)} ways"


def no_means_no(facts: Facts) -> Iterator[tuple[str, str]]:
    """`executed: no` is true, until the caller asks again: it has not run and it does not run later."""
    for call, asked in facts.by_call.items():
        for index, one in enumerate(asked):
            if one.executed != "no":
                break  # from here on an earlier request may have run it
            until = asked[index + 1].began if index + 1 < len(asked) else float("inf")
            for run in facts.runs[call]:
                if run.at < until:
                    yield call, f"said at {one.ended:.3f} not to have run ({one.problem}), ran at {run.at:.3f}"
                    break


def answered_in_time(facts: Facts) -> Iterator[tuple[str, str]]:
    """Each request is answered within its deadline, plus what its own sidecar was stopped or gone."""
    for one in facts.asked:
        outage = overlap_s(facts.of(one.via), one.began, one.ended)
        took = one.ended - one.began
        if took > one.timeout_s + outage + GRACE_S + UNPUNCTUAL * facts.late_s:
            yield one.call, f"took {took:.3f} s of {one.timeout_s} s, with {outage:.3f} s of outage, from {one.began:.3f}"


def broken_only_with_its_sidecar(facts: Facts) -> Iterator[tuple[str, str]]:
    """A caller sees a broken connection only where its own sidecar was killed."""
    for one in facts.asked:
        if one.broke is not None and not any(
            cause.kind == "kill" and cause.touches(one.began - 0.3, one.ended + 0.3) for cause in facts.of(one.via)
        ):
            yield one.call, f"the connection broke at {one.ended:.3f} although {one.via} was not killed: {one.broke}"


def makes_sense(facts: Facts) -> Iterator[tuple[str, str]]:
    """Each answer is the agent's or a whole problem, and none of a kind that nothing here explains."""
    for one in facts.asked:
        if one.nonsense is not None:
            yield one.call, f"neither an agent's answer nor a whole problem: {one.nonsense}"
        elif one.problem is not None and one.problem not in EXPECTED:
            yield one.call, f"nothing here explains {one.problem}"
        elif one.problem in ("in_progress", "answer_not_kept") and not one.big:
            yield one.call, f"{one.problem} for one that is small enough to join or to be replayed"


def doubt_has_a_cause(facts: Facts) -> Iterator[tuple[str, str]]:
    """`executed: unknown` only where something happened on the call's way while it lived.

    Or where the agent itself failed (retries_exhausted), another request with that key was under way, or its caller
    hung up in the middle of a body that is passed on as it comes. Time runs out also where others are disturbed, whose
    calls an agent gets besides its own, and where an attempt comes late; then every repeat is in doubt for that.
    """
    for call, asked in facts.by_call.items():
        if any(one.hung_up and one.big for one in asked):
            continue
        began = asked[0].began
        timed_out = False
        for one in asked:
            if one.executed != "unknown" or one.problem == "retries_exhausted" or timed_out:
                continue
            beside = any(other is not one and other.began < one.ended and other.ended > one.began for other in asked)
            possible = facts.disturbances if one.problem == "deadline_exceeded" else facts.on_the_way(one)
            causes = [cause for cause in possible if cause.touches(began - SLACK_S, one.ended)]
            timed_out = one.problem == "deadline_exceeded"
            if not causes and not beside and not (timed_out and len(one.agents) > 1):
                yield call, f"{one.problem} at {one.ended:.3f}, and nothing had happened to {one.via} or {one.agent}"


RULES: tuple[Rule, ...] = (run_once, success_ran, same_answer, no_means_no, answered_in_time,
                           broken_only_with_its_sidecar, makes_sense, doubt_has_a_cause)


def violations(facts: Facts) -> list[Violation]:
    """Empty when all is well."""
    return [Violation(rule.__name__, call, what, facts.by_call[call]) for rule in RULES for call, what in rule(facts)]
