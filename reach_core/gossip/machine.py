"""A sidecar's part in gossip: hear, check, tell on, and compare now and then.

News is told to four random peers at once when it is learned, and again every 200 ms for `4·⌈log10(N+1)⌉` rounds in all.
Every 10 s ± 20 % the table is compared with that of one random peer, every 30th time with control's. What a
comparison brought is told on only if it was little: whoever missed a lot missed what the others know.

The machine has no clock, no chance and no I/O of its own: time and the random generator come in, what is to be done
goes out through `Port`. So sidecars on a network and ten thousand of them in a simulator run the same code.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, Protocol

from reach_core.gossip.allowance import Allowance
from reach_core.gossip.datagram import ACK, Datagram, acknowledgement
from reach_core.gossip.rumors import FAN_OUT, PERIOD_S, Rumors, rounds
from reach_core.keyring import Keyring
from reach_core.messages import unpack_entries
from reach_core.peer import Entry
from reach_core.table import Change, PeerTable

COMPARE_S = 10.0
COMPARE_JITTER = 0.2
WITH_CONTROL = 30
FEW = 8
"""Entries that a comparison may bring and that are told on."""
FEW_ROUNDS = 4
AT_ONCE_EVERY_S = 0.02
"""Under a storm of news what is new waits for the next round instead of being told one by one."""
MAX_PULLED = 64
MOST_SEEN = 8_192

How = Literal["control", "gossip", "compared", "snapshot"]


class Port(Protocol):
    """What the machine has done for it; an address is `host:port` of a mesh listener."""

    def send(self, address: str, datagram: Datagram) -> None:
        """A datagram, which may get lost."""

    def pull(self, address: str, agent_ids: list[str]) -> None:
        """Fetch these entries over TCP, and `learn` them as compared."""

    def compare(self, address: str | None) -> None:
        """Compare tables over TCP; None: with control."""


class Gossip:
    """`own_id` is the agent's. `counts`: `datagrams_sent`, `datagrams_received`, `acknowledgements`, `entries_new`,
    `_known`, `_forged`, `_unverified` (over the allowance), `_unknown_key`, `pulls`, `comparisons`.
    """

    def __init__(
        self,
        own_id: Callable[[], str],
        table: PeerTable,
        keyring: Keyring,
        port: Port,
        random: Random,
        *,
        on_changes: Callable[[list[Change]], None],
        on_notice: Callable[[int], None],
        on_forged: Callable[[str, str, str], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.rumors = Rumors()
        self._own_id = own_id
        self._table = table
        self._keyring = keyring
        self._port = port
        self._random = random
        self._on_changes = on_changes
        self._on_notice = on_notice
        self._on_forged = on_forged
        self._allowance = Allowance()
        self._seen: set[int] = set()  # hashes of packed entries that are no news
        self._round_at: float | None = None
        self._at_once_again_at = float("-inf")
        self._compare_at: float | None = None
        self._comparisons = random.randrange(WITH_CONTROL)

    def receive(self, datagram: Datagram, source: str, now_s: float, now_ms: int) -> None:
        """A datagram came from `source`, `host:port`."""
        counts = self.counts
        if datagram.kind == ACK:
            counts["acknowledgements"] += 1
            return
        counts["datagrams_received"] += 1
        if datagram.number:
            self._port.send(source, acknowledgement(datagram.number, self._own_id(), self.rumors.notice))
        if datagram.notice > self.rumors.notice and self.rumors.note(datagram.notice, rounds(len(self._table))):
            self._on_notice(datagram.notice)
            self._tell_at_once(now_s)
        if datagram.entries:
            self._read(datagram, source, now_s, now_ms)
        if datagram.hints:
            self._follow(datagram, source)

    def learn(self, entries: Sequence[Entry], how: How, source: str, now_s: float, now_ms: int,
              sender: str = "") -> list[Change]:
        """Take in what is newer and rightly signed. `source` is whose allowance counts, `sender` who says it.

        A `snapshot` has no allowance: its caller hands it over in parts.
        """
        newer = [entry for entry in entries if self._is_newer(entry)]
        known_by_key = [entry for entry in newer if self._keyring.knows(entry)]
        granted = len(known_by_key)
        if how != "snapshot" and granted:
            granted = self._allowance.take(source, now_s, granted)
        good = []
        for entry in known_by_key[:granted]:
            if self._keyring.verify(entry):
                good.append(entry)
            else:
                self.counts["entries_forged"] += 1
                self._on_forged(source, sender or source, entry.agent_id)
        counts = self.counts
        counts["entries_known"] += len(entries) - len(newer)
        counts["entries_unknown_key"] += len(newer) - len(known_by_key)
        counts["entries_unverified"] += len(known_by_key) - granted
        changes = self._table.merge(good, now_ms) if good else []
        if changes:
            counts["entries_new"] += len(changes)
            self._on_changes(changes)
            self._tell_on(changes, how, now_s)
        return changes

    def tick(self, now_s: float) -> float:
        """Do what is due; seconds until something will be."""
        if self._compare_at is None:  # the first time
            self._compare_at = now_s + COMPARE_S * self._random.random()
        if self._round_at is not None and now_s >= self._round_at:
            self._tell(self.rumors.next(self._own_id()))
            self._round_at = now_s + PERIOD_S if self.rumors else None
        if now_s >= self._compare_at:
            self._compare_at = now_s + COMPARE_S * (1 - COMPARE_JITTER + 2 * COMPARE_JITTER * self._random.random())
            self._compare()
        due = self._compare_at if self._round_at is None else min(self._compare_at, self._round_at)
        return max(0.0, due - now_s)

    def forget_what_was_seen(self) -> None:
        """The table has lost entries: what was known is to be read again."""
        self._seen.clear()

    # -- steps

    def _read(self, datagram: Datagram, source: str, now_s: float, now_ms: int) -> None:
        """Each piece of news comes some sixty times, as the same bytes: only what is not known as such is read."""
        seen, table = self._seen, self._table
        fresh = [packed for packed in datagram.entries if hash(packed) not in seen]
        self.counts["entries_known"] += len(datagram.entries) - len(fresh)
        if not fresh:
            return
        entries, unreadable = unpack_entries(fresh)
        self.counts["entries_unreadable"] += unreadable
        self.learn(entries, "gossip", source, now_s, now_ms, datagram.sender)
        if unreadable:
            return
        if len(seen) > MOST_SEEN:
            seen.clear()
        for packed, entry in zip(fresh, entries, strict=True):
            known = table.get(entry.agent_id)
            if known is not None and entry.order <= known.order:
                seen.add(hash(packed))

    def _is_newer(self, entry: Entry) -> bool:
        known = self._table.get(entry.agent_id)
        return known is None or entry.order > known.order

    def _tell_on(self, changes: list[Change], how: How, now_s: float) -> None:
        if how == "snapshot":
            return
        if how == "compared":
            if len(changes) > FEW:
                for _, after in changes:
                    self.rumors.drop(after.agent_id)
                return
            times = min(FEW_ROUNDS, rounds(len(self._table)))
        else:
            times = rounds(len(self._table))
        for _, after in changes:
            self.rumors.add(after, times)
        self._tell_at_once(now_s)

    def _tell_at_once(self, now_s: float) -> None:
        if now_s >= self._at_once_again_at:
            self._at_once_again_at = now_s + AT_ONCE_EVERY_S
            self._tell(self.rumors.next(self._own_id(), fresh_only=True))
        if self._round_at is None and self.rumors:
            self._round_at = now_s + PERIOD_S

    def _tell(self, datagrams: list[Datagram]) -> None:
        if not datagrams:
            return
        for peer in self._table.random_entries(FAN_OUT, self._random, (self._own_id(),)):
            for datagram in datagrams:
                self._port.send(peer.address, datagram)
                self.counts["datagrams_sent"] += 1

    def _follow(self, datagram: Datagram, source: str) -> None:
        """Fetch what was too large for a datagram, if it is news."""
        wanted = []
        for hint in datagram.hints[:MAX_PULLED]:
            known = self._table.get(hint.agent_id)
            if known is None or hint.order > known.order:
                wanted.append(hint.agent_id)
        if wanted:
            self.counts["pulls"] += 1
            self._port.pull(source, wanted)

    def _compare(self) -> None:
        self.counts["comparisons"] += 1
        self._comparisons += 1
        peers = self._table.random_entries(1, self._random, (self._own_id(),))
        with_control = self._comparisons % WITH_CONTROL == 0 or not peers
        self._port.compare(None if with_control else peers[0].address)
