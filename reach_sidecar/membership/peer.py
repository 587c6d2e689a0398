"""One agent as this sidecar sees it: its entry in the table, and what this sidecar has noticed by itself."""

from reach_core.address import split_address
from reach_core.peer import Entry
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.pool import Pool
from reach_sidecar.membership.track import Track
from reach_sidecar.policy.exclude import Exclusion, breaker_open, full, why_excluded
from reach_sidecar.policy.limit import known_full
from reach_sidecar.policy.pick import rtt_factor
from reach_sidecar.policy.repeat import ADDRESS_OUT_S

LOAD_HALF_LIFE_S = 5.0
RTT_SPAN_S = 30.0  # the shortest way there within this time is the distance; all above it is queueing somewhere
# A sidecar closes a connection without a word only when it dies, and then the next call notices as well.
TRUST_S = 0.05


class Peer:
    """`in_flight` counts this sidecar's own calls; `running`, `queued` are what the peer said `heard_at`.

    `called_at` is when a call last went to it. `journals`: ids of its stores of answered calls by their `dedup`, as its
    answers told. `rtt` is the factor that its distance counts by. `tracks`: by capability. `wire_id`
    and `wire_address` are its id and its sidecar's address as bytes, ready for a head.
    """

    __slots__ = ("_limits", "_rtt_s", "_rtt_until", "_standing", "called_at", "entry", "heard_at", "host", "in_flight",
                 "journals", "out_until", "pool", "port", "queued", "rtt", "running", "tracks", "trouble",
                 "wire_address", "wire_id")

    def __init__(self, entry: Entry, limits: Limits) -> None:
        self._limits = limits
        self.in_flight = 0
        self.running = 0
        self.queued = 0
        self.heard_at: float | None = None
        self.called_at = float("-inf")
        self.out_until = 0.0
        self.trouble = ""
        self.journals: dict[str, bytes] = {}
        self.tracks: dict[str, Track] = {}
        self.rtt = 1.0
        self._rtt_s = 0.0
        self._rtt_until = 0.0
        self.host, self.port = _place(entry.address)
        self._take(entry)
        self.pool = self._new_pool()

    def _take(self, entry: Entry) -> None:
        self.entry = entry
        self.wire_id = entry.agent_id.encode()
        self.wire_address = entry.address.encode()
        self._standing = why_excluded(entry, unreachable_for_s=0.0, trouble="")

    def _new_pool(self) -> Pool:
        return Pool(self.host, self.port, self._limits, trust_s=TRUST_S)

    @property
    def agent_id(self) -> str:
        return self.entry.agent_id

    def update(self, entry: Entry) -> None:
        """Take a newer entry. A new address starts with a clean sheet; so does one that registered again.

        An address that was put out is tried again once its owner has said anything new (`ver` grows with that, and
        not when others suspect it).
        """
        before = self.entry
        self._take(entry)
        if entry.address != before.address:
            self.host, self.port = _place(entry.address)
            self.pool.retire()
            self.pool = self._new_pool()
        if (entry.address, entry.gen) != (before.address, before.gen):
            self.out_until = 0.0
            self.heard_at = None
            for track in self.tracks.values():
                track.breaker.succeeded()  # another process, or another place: what failed before tells nothing of it
        elif entry.ver > before.ver:
            self.out_until = 0.0

    def put_out(self, trouble: str, now: float, out_s: float = ADDRESS_OUT_S) -> None:
        """The address refused a connection, say: leave it alone for a while, or until a newer entry."""
        self.out_until = now + out_s
        self.trouble = trouble

    def hear_load(self, running: int, queued: int, now: float) -> None:
        self.running, self.queued, self.heard_at = running, queued, now

    def is_open(self, now: float) -> bool:
        """May it be called? The short form of `excluded`, asked for every candidate of every call."""
        return self._standing is None and self.out_until <= now

    def may_take(self, now: float) -> bool:
        """Open, and not known to be full: asked for every candidate of every call."""
        return self._standing is None and self.out_until <= now and not self.is_full(now)

    def is_full(self, now: float) -> bool:
        """Would it refuse another call, as far as can be known from here?"""
        limits = self.entry.limits
        if self.in_flight < limits.max_concurrency and self.running < limits.max_concurrency:
            return False
        return known_full(self.running, self.queued, limits,
                          None if self.heard_at is None else now - self.heard_at, in_flight=self.in_flight)

    def excluded(self, now: float, capability: str = "") -> Exclusion | None:
        """Why it is not given a call for `capability` (any of its own where that is empty); None: it may be."""
        found = why_excluded(self.entry, unreachable_for_s=self.out_until - now, trouble=self.trouble)
        if found is None:
            for name, track in self.tracks.items():
                if capability in ("", name) and track.breaker.state(now) != "closed":
                    return breaker_open(track.breaker.failures, track.breaker.open_until - now)
            if self.is_full(now):
                found = full(self.entry.limits)
        return found

    def track(self, capability: str) -> Track:
        """What was seen of it at `capability`, a declared name."""
        track = self.tracks.get(capability)
        if track is None:
            track = self.tracks[capability] = Track()
        return track

    def hear_rtt(self, seconds: float, now: float) -> None:
        """An answered call took so long besides queueing and the agent's work."""
        if seconds <= self._rtt_s or now >= self._rtt_until:
            self._rtt_s, self._rtt_until = seconds, now + RTT_SPAN_S
            self.rtt = rtt_factor(seconds)

    def load(self, now: float) -> float:
        """(running + queued) / limit. What the peer said of it fades with age; what this sidecar has under way itself
        is always true."""
        said = self.running + self.queued
        if self.heard_at is None or now - self.heard_at > 4 * LOAD_HALF_LIFE_S:
            said = 0
        elif now - self.heard_at > LOAD_HALF_LIFE_S:
            said //= 2
        return max(said, self.in_flight) / self.entry.limits.max_concurrency

    def describe(self, now: float, capability: str = "") -> dict[str, object]:
        """The agent in the shape of `GET /v1/agents` (design §2); `excluded` from calls for `capability`."""
        entry = self.entry
        excluded = self.excluded(now, capability)
        return {
            "agent_id": entry.agent_id,
            "status": entry.rank.label,
            "version": entry.version,
            "address": entry.address,
            "capabilities": [{"name": capability.name, "aliases": list(capability.aliases),
                              "attributes": capability.attributes} for capability in entry.capabilities],
            "load": {"running": max(self.running, self.in_flight), "queued": self.queued,
                     "limit": entry.limits.max_concurrency,
                     "age_s": None if self.heard_at is None else round(now - self.heard_at, 3)},
            "gen": entry.gen,
            "ver": entry.ver,
            "flags": list(entry.flags),
            "excluded": None if excluded is None else excluded._asdict(),
        }


def _place(address: str) -> tuple[str, int]:
    """Host and port to connect to; an address that is none becomes one that cannot be connected to."""
    try:
        return split_address(address)
    except ValueError:
        return "", 0
