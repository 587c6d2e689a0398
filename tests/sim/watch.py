"""A World whose tables are watched from inside, so that also what they drop is seen.

World judges what nodes say of their changes. A table that loses an entry says nothing, and an entry that then comes back
looks new. Here each table remembers what it dropped:
- a live entry is dropped by emptying the table only, a tombstone when its time is over or there are too many;
- where a tombstone was, that registration does not come back, however long ago it was forgotten;
- an older registration never follows a newer one;
- the books of a table agree with what is in it (`check_books`).
"""

from collections.abc import Iterable

from sim.control import Control
from sim.node import Node
from sim.sidecar import Sidecar
from sim.world import World

from reach_core.peer import Entry, Rank
from reach_core.table import MAX_TOMBSTONES, Change, PeerTable


class WatchedTable(PeerTable):
    """Made of any table by `watched`."""

    _node: Node
    _dropped: dict[str, Entry]
    _highest: dict[str, int]

    def merge(self, entries: Iterable[Entry], now_ms: int) -> list[Change]:
        changes = super().merge(entries, now_ms)
        for before, after in changes:
            where = f"{self._node.name} took {after.agent_id} {after.rank.label} {after.order[:3]}"
            assert before is None or after.order > before.order, f"{where} for {before.order[:3]}"  # type: ignore[union-attr]
            dropped = self._dropped.get(after.agent_id)
            if before is None and dropped is not None and not after.is_tombstone:
                is_back = dropped.is_tombstone and after.gen <= dropped.gen
                assert not is_back, f"{where}, which it had as removed: {dropped.order[:3]}"
            highest = self._highest.get(after.agent_id, 0)
            assert after.gen >= highest or after.is_tombstone, f"{where}, and knew of gen {highest}"
            self._highest[after.agent_id] = max(highest, after.gen)
        return changes

    def clear(self) -> list[Change]:
        self._highest.clear()  # forgotten on purpose, and so is what it dropped alive
        return super().clear()

    def _remove(self, entry: Entry) -> None:
        is_over = entry.expires_ms is not None and entry.expires_ms <= self._node.now_ms
        is_too_many = entry.is_tombstone and self.tombstones > MAX_TOMBSTONES
        assert is_over or is_too_many, f"{self._node.name} dropped {entry.agent_id} {entry.rank.label} before its time"
        super()._remove(entry)
        self._dropped[entry.agent_id] = entry


def watched(node: Sidecar | Control) -> None:
    """From now on its table watches itself."""
    table = node.table
    table.__class__ = WatchedTable
    assert isinstance(table, WatchedTable)
    table._node, table._dropped = node, {}
    table._highest = {entry.agent_id: entry.gen for entry in table.entries(tombstones=True)}


class WatchedWorld(World):
    """A World all of whose nodes have watched tables."""

    def add(self, *arguments: object, **named: object) -> Sidecar:
        one = super().add(*arguments, **named)  # type: ignore[arg-type]
        watched(one)
        return one

    def add_control(self, *arguments: object, **named: object) -> Control:
        one = super().add_control(*arguments, **named)  # type: ignore[arg-type]
        watched(one)
        return one

    def check_books(self) -> None:
        """Do counts and buckets of all tables agree with their entries?"""
        for one in self.nodes:
            everything = list(one.table.entries(tombstones=True))  # type: ignore[attr-defined]
            alive = sum(not entry.is_tombstone for entry in everything)
            self.expect(len({entry.agent_id for entry in everything}) == len(everything), f"{one.name} has one twice")
            self.expect(alive == len(one.table), f"{one.name} counts {len(one.table)} of {alive}")  # type: ignore[attr-defined]
            self.expect(len(everything) - alive == one.table.tombstones, f"{one.name} miscounts its tombstones")  # type: ignore[attr-defined]

    def expect_truth(self) -> None:
        """Every agent that runs is up in every table, as its owner has it; who left is callable in none."""
        for name, one in self.sidecars.items():
            for node in self.nodes:
                entry = node.table.get(name)  # type: ignore[attr-defined]
                if one.alive and not one.has_left:
                    found = entry is not None and entry.rank == Rank.UP and entry.gen == one.gen and entry.address == one.address
                    self.expect(found, f"{node.name} has {name} as {entry}, its owner has gen {one.gen}")
                elif one.has_left:  # or its leave was lost, and it fell silent
                    self.expect(entry is None or entry.rank >= Rank.SUSPECT, f"{node.name} still has {name} as {entry}")
