"""Whatever a chaos does, with its time: what a verdict may take as an excuse."""

from collections.abc import Iterable
from typing import NamedTuple

FOREVER = float("inf")


class Disturbance(NamedTuple):
    kind: str  # kill, stop, cut, freeze, down
    target: str  # the process or link
    began: float  # monotonic
    ended: float = FOREVER  # it runs, or carries, again

    def touches(self, start: float, end: float) -> bool:
        return self.began <= end and self.ended >= start

    def __str__(self) -> str:
        return f"{self.began:.3f}–{self.ended:.3f} {self.kind} {self.target}"


def overlap_s(disturbances: Iterable[Disturbance], start: float, end: float) -> float:
    """How long of this time at least one of them lasted."""
    total, until = 0.0, start
    for one in sorted(disturbances, key=lambda one: one.began):
        begin, stop = max(one.began, until), min(one.ended, end)
        if stop > begin:
            total += stop - begin
            until = stop
    return total
