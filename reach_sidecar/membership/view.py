"""The table as calls read it: agents by id, and by every name they answer to.

Kept up to date by whoever merges the table (`apply`), read without an await by the path of a call.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from reach_core.messages import Load
from reach_core.names import near, normalise
from reach_core.peer import Capability
from reach_core.table import Change, PeerTable
from reach_sidecar.http1.limits import Limits
from reach_sidecar.membership.peer import Peer
from reach_sidecar.membership.track import Track
from reach_sidecar.policy.match import fallbacks, meant_by_path

MAX_FALLBACKS_KNOWN = 10_000
LATELY_S = 60.0  # whose load is asked for with each heartbeat: the agents called within that time


ANY = Capability(name="-")  # what a call is for that names an agent, until its path is looked at


class Offer(NamedTuple):
    """`peer` offers `capability`; `matched` says by which of its names: `exact`, `alias` or `fallback`.

    `wire_target` is what its sidecar is asked for, as bytes; `track` what was seen of the agent at it.
    """

    peer: Peer
    capability: Capability
    matched: str
    wire_target: bytes
    track: Track


class PeerView:
    def __init__(self, table: PeerTable, limits: Limits) -> None:
        self._table = table
        self._limits = limits
        self._peers: dict[str, Peer] = {}
        self._by_name: dict[str, dict[str, Offer]] = {}
        self._by_alias: dict[str, dict[str, Offer]] = {}
        self._mesh_wide: dict[str, str] = {}
        self._fallbacks: dict[str, str] = {}  # as last declared: known also when all who declared it are gone
        self._keyed: set[str] = set()  # agents that say where a caller's own key stands
        self._weighted: set[str] = set()  # agents that are to get more or less than their even share
        self.changed_at = 0.0

    def apply(self, changes: Iterable[Change]) -> None:
        """Follow changes of the table, in their order."""
        for before, after in changes:
            peer = self._peers.get(after.agent_id)
            if before is not None:
                self._unindex(after.agent_id, before.capabilities)
            if after.is_tombstone:
                if peer is not None:
                    peer.pool.retire()  # an agent that leaves still finishes what it has begun
                    del self._peers[after.agent_id]
                    self._weighted.discard(after.agent_id)
                    self._keyed.discard(after.agent_id)
                continue
            if any(capability.key is not None for capability in after.capabilities):
                self._keyed.add(after.agent_id)
            else:
                self._keyed.discard(after.agent_id)
            if after.limits.weight != 1.0:
                self._weighted.add(after.agent_id)
            else:
                self._weighted.discard(after.agent_id)
            if peer is None:
                peer = self._peers[after.agent_id] = Peer(after, self._limits)
            else:
                peer.update(after)
            self._index(peer)

    def peer(self, agent_id: str) -> Peer | None:
        return self._peers.get(agent_id)

    def peer_folded(self, agent_id: str) -> Peer | None:
        """The one whose id differs from `agent_id` by case only, as in a host name; None if there is more than one."""
        folded = agent_id.lower()
        found = [peer for known, peer in self._peers.items() if known.lower() == folded]
        return found[0] if len(found) == 1 else None

    def peers(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def key_place(self, offers: Sequence[Offer]) -> str | None:
        """Where a caller's own key stands, as the first of those who say so has it; None: in its usual header."""
        if not self._keyed:
            return None
        said = [offer for offer in offers if offer.capability.key is not None]
        return min(said, key=lambda offer: offer.peer.agent_id).capability.key if said else None

    @property
    def is_even(self) -> bool:
        """Have all agents the same weight?"""
        return not self._weighted

    def __len__(self) -> int:
        return len(self._peers)

    def offers(self, name: str) -> list[Offer]:
        """Who offers `name`, whatever their state: by exact name if anyone does, else by an alias that an agent
        declares, else by a mesh-wide one."""
        normal = normalise(name)
        found = self._by_name.get(normal) or self._by_alias.get(normal)
        return list(found.values()) if found else self._offers_mesh_wide(normal)

    def _offers_mesh_wide(self, alias: str) -> list[Offer]:
        meant = self._mesh_wide.get(alias)
        found = None if meant is None else self._by_name.get(meant) or self._by_alias.get(meant)
        return [offer._replace(matched="alias") for offer in found.values()] if found else []

    def fallback_offers(self, name: str) -> Iterator[list[Offer]]:
        """Who offers what stands in for `name`, the nearest first: its declared fallback, and that one's."""
        for other in fallbacks(name, self._fallbacks.get):
            if offers := self.offers(other):
                yield [offer._replace(matched="fallback") for offer in offers]

    def offer_of(self, peer: Peer, path: bytes | None) -> Offer:
        """What a call is that names the agent `peer` only, and `path` there (None: the capability's own)."""
        declared = peer.entry.capabilities
        capability = meant_by_path(declared, ANY.path.encode() if path is None else path)
        return Offer(peer, capability, "exact", b"@" + peer.wire_id, peer.track(capability.name))

    def take_aliases(self, aliases: Mapping[str, Sequence[str]]) -> None:
        """The mesh-wide aliases, all of them: capability -> its other names (`aliases:` of control.yaml)."""
        self._mesh_wide = {normalise(other): normalise(name) for name, others in aliases.items() for other in others}

    def names_meant(self, name: str) -> frozenset[str]:
        """`name`, normalised, and the capability it is a mesh-wide alias of."""
        normal = normalise(name)
        meant = self._mesh_wide.get(normal)
        return frozenset((normal,) if meant is None else (normal, meant))

    def near(self, name: str) -> list[str]:
        """Names that the asker may have meant."""
        offered = self._by_name.keys() | self._by_alias.keys()
        return near(name, offered.union(alias for alias, meant in self._mesh_wide.items() if meant in offered))

    def near_agents(self, agent_id: str) -> list[str]:
        return near(agent_id, self._peers)

    def lately_called(self, now: float) -> list[str]:
        """The agents called within `LATELY_S`, those first whose load was heard of the longest ago."""
        called = [peer for peer in self._peers.values() if peer.called_at > now - LATELY_S]
        called.sort(key=lambda peer: peer.heard_at or 0.0)
        return [peer.agent_id for peer in called]

    def failing(self, now: float) -> dict[str, int]:
        """How many calls in a row failed, of the agents called within `LATELY_S`."""
        failed = {}
        for peer in self._peers.values():
            if peer.called_at > now - LATELY_S:
                in_a_row = max((track.breaker.failures for track in peer.tracks.values()), default=0)
                if in_a_row:
                    failed[peer.agent_id] = in_a_row
        return failed

    def hear_loads(self, loads: Mapping[str, Load], now: float) -> None:
        """What control knows of agents' load, unless they have said something newer themselves."""
        for agent_id, load in loads.items():
            peer = self._peers.get(agent_id)
            said_at = now - load.age_s
            if peer is not None and (peer.heard_at is None or peer.heard_at < said_at):
                peer.hear_load(load.running, load.queued, said_at)

    def table_info(self, now: float) -> dict[str, object]:
        """The `table` object of `GET /v1/agents`; `age_s` since the last change."""
        return {"entries": len(self._peers), "hash": self._table.hash, "age_s": round(now - self.changed_at, 3)}

    def close(self) -> None:
        for peer in self._peers.values():
            peer.pool.close()

    def _index(self, peer: Peer) -> None:
        for capability in peer.entry.capabilities:
            name = normalise(capability.name)
            wire_target = name.encode()
            track = peer.track(name)
            if capability.fallback is not None and len(self._fallbacks) < MAX_FALLBACKS_KNOWN:
                self._fallbacks[name] = capability.fallback
            self._by_name.setdefault(name, {})[peer.agent_id] = Offer(peer, capability, "exact", wire_target, track)
            for alias in capability.aliases:
                offer = Offer(peer, capability, "alias", wire_target, track)
                self._by_alias.setdefault(normalise(alias), {})[peer.agent_id] = offer

    def _unindex(self, agent_id: str, capabilities: Iterable[Capability]) -> None:
        for capability in capabilities:
            _remove(self._by_name, normalise(capability.name), agent_id)
            for alias in capability.aliases:
                _remove(self._by_alias, normalise(alias), agent_id)


def _remove(index: dict[str, dict[str, Offer]], name: str, agent_id: str) -> None:
    offers = index.get(name)
    if offers is not None:
        offers.pop(agent_id, None)
        if not offers:
            del index[name]
