"""What an agent's call inherits from the calls it may be working for: deadline, retries left, session.

Several calls of one trace can run at one agent, and where it passes on the trace only, nobody knows for which of
them it calls. Then the largest deadline counts, so that no call is cut off for another's sake; the fewest retries,
so that a chain never gets more than it has; and a session only where all have the same (design §3).
"""

from collections.abc import Sequence
from typing import NamedTuple


class Inherited(NamedTuple):
    """`deadline` in loop seconds; `session` is empty where there is none."""

    deadline: float
    retries_left: int
    session: bytes


def merge(matches: Sequence[Inherited]) -> Inherited | None:
    """None where nothing matches."""
    if not matches:
        return None
    sessions = {match.session for match in matches}
    return Inherited(max(match.deadline for match in matches), min(match.retries_left for match in matches),
                     sessions.pop() if len(sessions) == 1 else b"")
