"""By turns: every round samples each system once, so that whatever else the machine does hits them alike."""

import math
from collections.abc import Callable, Iterable

from bench.measures import Measure, Rig, Sample

Samples = dict[str, dict[str, list[Sample]]]  # measure -> system -> a sample a round


def order(systems: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The turn of each system in round `number`: forwards, then backwards, so that a drift cancels out."""
    return systems if number % 2 == 0 else systems[::-1]


def interleave(
    rig: Rig, measures: Iterable[Measure], rounds: int, progress: Callable[[str], None]
) -> Samples:
    """Samples of every measure; at least one round each. Systems that the rig does not have are left out."""
    taken: Samples = {}
    for measure in measures:
        systems = measure.among(rig.pairs)
        own: dict[str, list[Sample]] = {name: [] for name in systems}
        times = max(1, math.ceil(rounds * measure.share))
        for number in range(times):
            for system in order(systems, number):
                progress(f"{measure.name}: round {number + 1} of {times}, {system}")
                own[system].append(measure.take(rig, system))
        taken[measure.name] = own
    return taken
