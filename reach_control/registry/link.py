"""What this node knows of one other control node, and how far each has told the other its changes.

Both number the changes of their own table. `acked` is how far the other has taken ours, `received` how far we have
taken its. A process that has started anew has an `epoch` of its own; its numbers begin anew as well, and what the two
know is then made equal by comparison, not by telling everything.
"""

from random import Random
from typing import NamedTuple

from reach_core.peer import Entry, Order

PUSH_S = 0.2
BACKLOG_S = 0.05
IDLE_S = 1.0
LONGEST_PAUSE_S = 5.0
ANSWER_S = 10.0  # a push of which nothing was heard for so long has failed
DIFFERENT_S = 2.0
COMPARING_S = 15.0
LONGEST_DIFFERENT_S = 60.0
MOST_ECHOES = 5_000


class Sent(NamedTuple):
    """A push under way: up to which change, and which heartbeat."""

    seq: int
    mark: int
    at_s: float


class Link:
    """`url` is empty for a node that tells us things and is not in our list. Times are monotonic seconds."""

    def __init__(self, url: str, acked: int, now_s: float) -> None:
        self.url = url
        self.node = ""
        self.epoch = ""
        self.acked = acked
        self.mark = 0
        self.received = 0
        self.sent: Sent | None = None
        self.failures = 0
        self.is_reachable = False
        self.trouble = ""
        self.seq = 0
        self.hash = ""
        self.frozen = ""
        self.agents = 0
        self.level_s = now_s  # when the other had all of ours
        self.same_s = now_s  # when both tables were last the same, or one of them on the move
        self._pushed_s = -IDLE_S
        self._pause_s = 0.0
        self._compare_s: float | None = None  # when a comparison is due
        self._comparing_s: float | None = None  # since when one is under way
        self._compared: tuple[int, str] = (0, "")  # both tables when the last comparison began
        self._fruitless = 0
        self._echoes: dict[str, Order] = {}

    # -- pushes

    def due_s(self, now_s: float, last: int, is_news: bool, most: int) -> float:
        """Seconds until the next push; `last` is the newest change here, `most` what one push takes."""
        if self.sent is not None and now_s - self.sent.at_s < ANSWER_S:
            return self.sent.at_s + ANSWER_S - now_s
        if self.failures:
            pause_s = self._pause_s
        elif last - self.acked > most:
            pause_s = BACKLOG_S
        else:
            pause_s = PUSH_S if is_news or last > self.acked else IDLE_S
        return max(0.0, self._pushed_s + pause_s - now_s)

    def push(self, sent: Sent) -> None:
        self.sent, self._pushed_s = sent, sent.at_s

    def fail(self, trouble: str, random: Random) -> None:
        """Try again later each time, and not at the same moment as others do."""
        self.sent = None
        self.failures += 1
        self.is_reachable = False
        self.trouble = trouble
        self._pause_s = min(LONGEST_PAUSE_S, 0.25 * 2.0 ** min(self.failures, 8)) * random.uniform(0.8, 1.0)

    def meet(self, node: str, epoch: str, last: int, now_s: float) -> bool:
        """The other node is this process. True if it is new to us: only what changes from now on is told."""
        self.node = node
        if epoch == self.epoch:
            return False
        self.epoch = epoch
        self.acked, self.received = last, 0
        self._echoes.clear()
        self._fruitless = 0
        self._compare_s = now_s
        return True

    def take(self, seq: int, is_gap: bool, now_s: float) -> None:
        """It has told its changes up to `seq`; with a gap, some were told to nobody."""
        self.received = max(self.received, seq)
        if is_gap:
            self._compare_s = now_s

    # -- what need not be told

    def heard(self, entry: Entry) -> None:
        """The other node has this entry, for it told us."""
        if len(self._echoes) < MOST_ECHOES:
            self._echoes[entry.agent_id] = entry.order

    def is_echo(self, entry: Entry) -> bool:
        return self._echoes.pop(entry.agent_id, None) == entry.order

    # -- comparisons

    def see(self, own_hash: str, is_quiet: bool, now_s: float) -> None:
        """Both tables as they are now; `is_quiet`: each has told the other everything."""
        if not self.hash or not is_quiet:
            self.same_s = now_s
            return
        if self.hash == own_hash:
            self.same_s = now_s
            self._compare_s, self._fruitless = None, 0
        elif self._compare_s is None:
            self._compare_s = now_s + self._pause_after_s()

    def is_compare_due(self, last: int, now_s: float) -> bool:
        """True once; then `compared` is expected."""
        if self._comparing_s is not None and now_s - self._comparing_s < COMPARING_S:
            return False
        if self._compare_s is None or now_s < self._compare_s or self.failures:
            return False
        self._comparing_s = now_s
        self._fruitless = 0 if self._compared != (last, self.hash) else min(self._fruitless + 1, 6)
        self._compared = (last, self.hash)
        return True

    def compared(self, is_same: bool, now_s: float) -> None:
        """A comparison ended. One does not always bring all: the next comes soon, or later if one brought nothing."""
        self._comparing_s = None
        if is_same:
            self._compare_s, self._fruitless = None, 0
        else:
            self._compare_s = now_s + (self._pause_after_s() if self._fruitless else BACKLOG_S)

    def _pause_after_s(self) -> float:
        return min(LONGEST_DIFFERENT_S, DIFFERENT_S * 2.0**self._fruitless)
