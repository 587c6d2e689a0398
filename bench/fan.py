"""Work that one caller hands out all at once: a hundred pieces of 0.4 s for ten agents that take four at a time.

Three waves do it, so 1.2 s are the least there is. One agent that gets a thirteenth piece makes it four waves, and
what the sidecars themselves need for a hundred calls at once comes on top: the figure holds both to account.

The same fleet shows what picking costs: the caller's CPU per call with all ten to choose from, and with one.
"""

import math
import statistics
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from bench import accounting, fleet, reach, wrk
from bench.daemon import BenchError
from bench.load import Sender
from bench.pair import Pair

AGENTS = 10
MAX_CONCURRENCY = 4
PIECES = 100
WORK_S = 0.4
IDEAL_S = math.ceil(PIECES / (AGENTS * MAX_CONCURRENCY)) * WORK_S
ROUNDS = 7
REST_S = 0.3  # between rounds
TURNS = 3
TURN_S = 1.0
CONNECTIONS = 16
_numbers = count(1)


def measure(build: str, agent: str, control: str, directory: Path, script: Path) -> dict[str, float]:
    """{total_s, worst_s: all pieces done; ideal: total_s by the ideal; fullest_percent: the most that one agent got;
    one_us, all_us: CPU of the caller's sidecar per call with one agent to choose from and with all; pick_us: the rest}.

    Nothing is connected yet in the first round; it counts like the others.
    """
    spread, single = (f"{word}-{next(_numbers)}" for word in ("spread", "single"))
    with ExitStack() as stack:
        caller = fleet.stand(
            build, agent, control, directory, stack, spread, AGENTS, MAX_CONCURRENCY,
            lambda number: [reach.capability(name) for name in (spread, single)[: 2 if number == 1 else 1]],
        )  # fmt: skip
        return _spread(caller) | _pick(caller, f"/to/{single}", script)


def _spread(caller: Pair) -> dict[str, float]:
    sender = Sender(caller.address, f"{caller.prefix}/work?ms={round(WORK_S * 1000)}", PIECES)
    totals_s, fullest = [], []
    for _ in range(ROUNDS):
        sender.run([0.0] * PIECES)
        if sender.answers != {"200": PIECES}:
            raise BenchError(f"{PIECES} calls at once were answered {dict(sender.answers)}.")
        totals_s.append(max(sender.latencies_s))
        fullest.append(max(sender.agents.values()))
        for noted in (sender.latencies_s, sender.answers, sender.agents):
            noted.clear()
        time.sleep(REST_S)
    sender.close()
    middle_s = statistics.median(totals_s)
    return {
        "total_s": middle_s,
        "worst_s": max(totals_s),
        "ideal": middle_s / IDEAL_S,
        "fullest_percent": max(fullest) / PIECES * 100,
        **{f"round{number}_s": total_s for number, total_s in enumerate(totals_s, 1)},
        **{f"round{number}_fullest": float(most) for number, most in enumerate(fullest, 1)},
    }


def _pick(caller: Pair, single: str, script: Path) -> dict[str, float]:
    found: dict[str, list[float]] = {caller.prefix: [], single: []}
    for turn in range(TURNS):
        for prefix in sorted(found, reverse=turn % 2 == 1):
            (before,) = (accounting.cpu_ns(pid) for pid in caller.pids)
            load = wrk.run(f"http://{caller.address}{prefix}/process", CONNECTIONS, TURN_S, script)
            (after,) = (accounting.cpu_ns(pid) for pid in caller.pids)
            load.require_clean(caller.name)
            found[prefix].append((after - before) / 1000 / load.calls)
    of_all, of_one = found[caller.prefix], found[single]
    differences = [all_us - one_us for all_us, one_us in zip(of_all, of_one, strict=True)]
    return {
        "one_us": statistics.median(of_one),
        "all_us": statistics.median(of_all),
        "pick_us": statistics.median(differences),
    }
