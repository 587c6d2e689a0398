"""The guarantee of delivery, with everything being killed, stopped and cut all the time.

CHAOS_SECONDS is how long (`make chaos`: three minutes), CHAOS_SEED repeats the choices of a run.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from harness.chaos import Chaos, ChaosMesh
from harness.mesh import Mesh
from harness.repeaters import Asked, Repeaters, settle
from harness.verdict import Facts, Violation, violations

SECONDS = float(os.environ.get("CHAOS_SECONDS", "20"))
SEED = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
CALLERS = 50


@pytest.fixture
def world(mesh: Mesh) -> Iterator[ChaosMesh]:
    world = ChaosMesh(mesh, SEED)
    yield world
    world.close()


def said(asked: Asked) -> str:
    if asked.broke or asked.hung_up:
        return "connection lost" if asked.broke else "the caller hung up"
    return "success" if asked.succeeded else asked.problem or str(asked.status)


def summary(facts: Facts, chaos: Chaos) -> str:
    """Calls, answers, what was broken, and how long it took."""
    answers = Counter(said(one) for one in facts.asked)
    done = sum(any(one.succeeded for one in asked) for asked in facts.by_call.values())
    took = sorted(one.ended - one.began for one in facts.asked) or [0.0]
    broken = Counter(f"{one.kind} {one.target}" for one in chaos.disturbances)
    return "\n".join([
        f"seed {SEED}, {SECONDS:g} s: {len(facts.by_call)} calls, {done} done, {len(facts.asked)} requests",
        f"answers: {dict(answers.most_common())}",
        f"disturbances: {sum(broken.values())}: {dict(sorted(broken.items()))}",
        f"p50 {took[len(took) // 2]:.3f} s, p99 {took[len(took) * 99 // 100]:.3f} s, longest {took[-1]:.3f} s; "
        f"the test itself was up to {chaos.late_s:.3f} s late",
    ])


def explained(found: list[Violation], facts: Facts, world: ChaosMesh) -> str:
    """How many broke each rule, and the first of each with what happened then and what the sidecars said about it."""
    counts = Counter(one.rule for one in found)
    lines = [f"violations: {dict(counts)}; CHAOS_SEED={SEED} CHAOS_SECONDS={SECONDS:g} repeats this run"]
    for rule in counts:
        for one in [one for one in found if one.rule == rule][:3]:
            lines.append(f"{rule}: {one.what}")
            lines += [f"    asked {asked}" for asked in one.asked]
            lines += [f"    ran {run}" for run in facts.runs[one.call]]
            began, ended = one.asked[0].began, one.asked[-1].ended
            lines += [f"    {cause}" for cause in facts.disturbances if cause.touches(began - 2, ended + 1)]
            traces = {asked.trace_id for asked in one.asked if asked.trace_id}
            lines += [f"    {line}" for line in world.lines_about(one.call, traces)[:40]]
    return "\n".join(lines)


@pytest.mark.timeout(SECONDS + 120)
def test_nothing_is_done_twice_and_nothing_said_falsely(world: ChaosMesh) -> None:
    callers = Repeaters(world.doors, CALLERS, SEED)
    chaos = Chaos(world, SEED)
    try:
        chaos.run(SECONDS)
    finally:
        asked = callers.stop()
    for via, url in world.doors.items():
        numbers = iter(range(1000))

        def ask(via: str = via, url: str = url, numbers: Iterator[int] = numbers) -> Asked:
            return callers.ask(f"after-{via}-{next(numbers)}", via, url, b"x", True, 4.0)

        settle(ask, 10, 25.0)
    time.sleep(0.5)  # whatever was still under way somewhere may show now
    facts = Facts(asked, world.runs(), chaos.disturbances, chaos.late_s)
    print(summary(facts, chaos))
    found = violations(facts)
    assert not found, explained(found, facts, world)
    done = sum(any(one.succeeded for one in asked) for asked in facts.by_call.values())
    assert done > len(facts.by_call) * 0.5, "where nearly nothing succeeds, nothing was tested"
