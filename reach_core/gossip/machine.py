"""A sidecar's part in gossip: hear, check, tell on, and compare now and then.

News is told to four random peers at once when it is learned, and again every 200 ms for `4·⌈log10(N+1)⌉` rounds in all.
Telling at once is what makes it quick: with 30 % loss all of 1,000 know within half a second instead of one and a half.
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
from reach_core.gossip.datagram import ACK, Datagram, Hint, acknowledgement
from reach_core.gossip.rumors import FAN_OUT, PERIOD_S, Rumors, rounds
from reach_core.keyring import Keyring
from reach_core.messages import unpack_entries
from reach_core.peer import Entry, Order
from reach_core.table import MAX_AHEAD_MS, Change, PeerTable

COMPARE_S = 10.0
COMPARE_JITTER = 0.2
WITH_CONTROL = 30
FEW = 8
"""Entries that a comparison may bring and that are told on."""
FEW_ROUNDS = 4
AT_ONCE_EVERY_S = 0.05
"""What comes sooner after the last telling is told when this is over: a storm of news fills its datagrams."""
AT_ONCE_DATAGRAMS = 2
MAX_PULLED = 64
PULL_AGAIN_S = 1.0
"""Hints of one entry come from many; until this is over the first one's answer is waited for."""
MOST_PULLED = 1_024
MOST_SEEN = 8_192

How = Literal["control", "gossip", "told", "compared", "snapshot"]
"""`told`: over TCP, by one who compares with us or has news; `compared`: what we asked for."""


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
    `_known`, `_unsound` (ahead of the clock, or expired), `_forged`, `_unverified` (over the allowance),
    `_unknown_key`, `_unreadable`, `notices_unsound`, `pulls`, `comparisons`.
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
        # apart, for whoever floods us with datagrams must not keep us from comparing
        self._for_asked = Allowance()
        self._for_unasked = Allowance()
        self._seen: set[int] = set()  # hashes of packed entries that are no news
        self._pulled: dict[str, tuple[Order, float]] = {}  # by agent: what was asked for, and until when not again
        self._round_at: float | None = None
        self._at_once_again_at = float("-inf")
        self._fresh_at: float | None = None  # when what has never been told is due
        self._compare_at: float | None = None
        self._comparisons = random.randrange(WITH_CONTROL)

    def receive(self, datagram: Datagram, source: str, now_s: float, now_ms: int) -> None:
        """A datagram came from `source`, `host:port`."""
        counts = self.counts
        if datagram.kind == ACK:
            counts["acknowledgements"] += 1
            return
        counts["datagrams_received"] += 1
        if datagram.notice > self.rumors.notice:
            self._hear(datagram.notice, now_s, now_ms)
        if datagram.entries:
            self._read(datagram, source, now_s, now_ms)
        if datagram.hints:
            self._follow(datagram.hints, source, now_s, now_ms)
        # only what is known now: what could not be taken (a key not known yet, say) is told in another way
        if datagram.number and all(hash(packed) in self._seen for packed in datagram.entries):
            self._port.send(source, acknowledgement(datagram.number, self._own_id(), self.rumors.notice))

    def learn(self, entries: Sequence[Entry], how: How, source: str, now_s: float, now_ms: int,
              sender: str = "") -> list[Change]:
        """Take in what is newer and rightly signed. `source` is whose allowance counts, `sender` who says it.

        A `snapshot` has no allowance: its caller hands it over in parts.
        """
        counts = self.counts
        newer = [entry for entry in entries if self._is_newer(entry)]
        counts["entries_known"] += len(entries) - len(newer)
        sound = [entry for entry in newer if _is_sound(entry, now_ms)]
        counts["entries_unsound"] += len(newer) - len(sound)
        known_by_key = [entry for entry in sound if self._keyring.knows(entry)]
        counts["entries_unknown_key"] += len(sound) - len(known_by_key)
        granted = len(known_by_key)
        if how != "snapshot" and granted:
            allowance = self._for_asked if how == "compared" else self._for_unasked
            granted = allowance.take(source, now_s, granted)
        counts["entries_unverified"] += len(known_by_key) - granted
        good = []
        for entry in known_by_key[:granted]:
            if self._keyring.verify(entry):
                good.append(entry)
            else:
                counts["entries_forged"] += 1
                self._on_forged(source, sender or source, entry.agent_id)
        changes = self._table.merge(good, now_ms) if good else []
        if changes:
            counts["entries_new"] += len(changes)
            self._tell_on(changes, how, now_s)
            self._on_changes(changes)
        return changes

    def tick(self, now_s: float) -> float:
        """Do what is due; seconds until something will be."""
        if self._compare_at is None:  # the first time
            self._compare_at = now_s + COMPARE_S * self._random.random()
        if self._round_at is not None and now_s >= self._round_at:
            self._round_at = None
            self._tell(self.rumors.next(self._own_id()), now_s)
        if self._fresh_at is not None and now_s >= self._fresh_at:
            self._tell_at_once(now_s)
        if now_s >= self._compare_at:
            self._compare_at = now_s + COMPARE_S * (1 - COMPARE_JITTER + 2 * COMPARE_JITTER * self._random.random())
            self._compare()
        due = self._compare_at
        if self._round_at is not None and self._round_at < due:
            due = self._round_at
        if self._fresh_at is not None and self._fresh_at < due:
            due = self._fresh_at
        return max(0.0, due - now_s)

    def forget_what_was_seen(self) -> None:
        """The table has lost entries: those are to be read again when they come, and told no more."""
        self._seen.clear()
        self._pulled.clear()
        self.rumors.keep(lambda entry: self._table.get(entry.agent_id) is not None)

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

    def _hear(self, notice: int, now_s: float, now_ms: int) -> None:
        """What holds mesh-wide has a new version. One far ahead would be the newest for ever, so nobody takes it."""
        if notice > now_ms + MAX_AHEAD_MS:
            self.counts["notices_unsound"] += 1
        elif self.rumors.note(notice, rounds(len(self._table))):
            self._tell_at_once(now_s)
            self._on_notice(notice)

    def _tell_on(self, changes: list[Change], how: How, now_s: float) -> None:
        """What was told of these agents until now is old, whatever becomes of the new."""
        if how == "snapshot" or (how in ("told", "compared") and len(changes) > FEW):
            for _, after in changes:
                self.rumors.drop(after.agent_id)
            return
        times = rounds(len(self._table))
        if how in ("told", "compared"):
            times = min(FEW_ROUNDS, times)
        for _, after in changes:
            self.rumors.add(after, times)
        self._tell_at_once(now_s)

    def _tell_at_once(self, now_s: float) -> None:
        """What is new, or a moment later if something has just been told."""
        if now_s < self._at_once_again_at:
            self._fresh_at = self._at_once_again_at
            return
        self._at_once_again_at = now_s + AT_ONCE_EVERY_S
        self._tell(self.rumors.next(self._own_id(), AT_ONCE_DATAGRAMS, fresh_only=True), now_s)

    def _tell(self, datagrams: list[Datagram], now_s: float) -> None:
        """To four others, all the same; and the next telling is set."""
        self._fresh_at = self._at_once_again_at if self.rumors.has_fresh else None
        if self._round_at is None and self.rumors:
            self._round_at = now_s + PERIOD_S
        if not datagrams:
            return
        peers = self._table.random_entries(FAN_OUT, self._random, (self._own_id(),))
        self.counts["datagrams_sent"] += len(peers) * len(datagrams)
        for peer in peers:
            for datagram in datagrams:
                self._port.send(peer.address, datagram)

    def _follow(self, hints: Sequence[Hint], source: str, now_s: float, now_ms: int) -> None:
        """Fetch what was too large for a datagram, if it is news."""
        wanted = []
        for hint in hints[:MAX_PULLED]:
            known = self._table.get(hint.agent_id)
            if (known is not None and hint.order <= known.order) or hint.gen > now_ms + MAX_AHEAD_MS:
                continue
            asked = self._pulled.get(hint.agent_id)
            if asked is not None and now_s < asked[1] and hint.order <= asked[0]:
                continue
            if len(self._pulled) >= MOST_PULLED:
                self._pulled.clear()
            self._pulled[hint.agent_id] = (hint.order, now_s + PULL_AGAIN_S)
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


def _is_sound(entry: Entry, now_ms: int) -> bool:
    """Would the table take it? Looked at before its signature, which costs more."""
    return entry.gen <= now_ms + MAX_AHEAD_MS and (entry.expires_ms is None or entry.expires_ms > now_ms)
