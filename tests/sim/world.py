"""A whole mesh in virtual time, from one seed, watched at every step.

What must hold whatever happens (checked with each change of any table, so it costs little):
- a table only moves to a larger `(gen, ver, rank, digest)` of an agent, unless it forgot all of it on purpose;
- an agent that left stays gone, until it is registered anew;
- what is remembered stays within its bounds.
"""

import os
from collections.abc import Callable, Iterable
from random import Random, SystemRandom

from sim.control import Control, sign
from sim.heap import Heap
from sim.network import Network
from sim.node import BASE_MS, Node
from sim.sidecar import Sidecar

from reach_control.registry.lease import Terms
from reach_core.gossip.seeds import MAX_BATCHES
from reach_core.keyring import Keyring
from reach_core.peer import Capability, Entry, Rank, owner_of
from reach_core.table import Change, PeerTable

SETTLED_S = 60.0
"""After this long, everybody who can be told has been told."""
MOST_RUMORS = 4096


# One for the whole run, so that workers that share it collect the same tests.
_CHANCE = Random(os.environ.get("PYTEST_XDIST_TESTRUNUID") or SystemRandom().random())


def seeds(count: int) -> list[int]:
    """That many, new with each run; SIM_SEED replays one."""
    if given := os.environ.get("SIM_SEED"):
        return [int(given)]
    return [_CHANCE.randrange(2**31) for _ in range(count)]


def name_of(number: int) -> str:
    return f"agent-{number}"


class World:
    """`sidecars` and `controls` by name. All agents are registered and known to all at the beginning, unless `cold`."""

    def __init__(self, seed: int, agents: int, controls: int = 1, *, loss: float = 0.0, udp: bool = True,
                 cold: bool = False, terms: Terms | None = None, latency_s: tuple[float, float] = (0.001, 0.02),
                 sign: Callable[[Entry], Entry] = sign, keyring: Keyring | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.heap = Heap()
        self.network = Network(self.heap, self.random, loss=loss, udp=udp, latency_s=latency_s)
        self.terms = terms or Terms()
        self.sidecars: dict[str, Sidecar] = {}
        self.controls: dict[str, Control] = {}
        self.left: dict[str, tuple[int, float]] = {}
        self.learned: list[Callable[[Node, Change], None]] = []
        self.changes = 0
        self._sign = sign
        self._keyring = keyring
        base = PeerTable()
        if not cold:
            base.merge([sign(self.entry(number)) for number in range(agents)], BASE_MS)
        addresses = [f"control-{number}:1" for number in range(controls)]
        for number, address in enumerate(addresses):
            peers = [other for other in addresses if other != address]
            self.add_control(f"control-{number}", peers, base.fork())
        for number in range(agents):
            order = addresses[number % controls :] + addresses[: number % controls]
            one = self.add(name_of(number), controls=order, table=base.fork() if not cold else None,
                           instance=f"instance-{number}", start=False)
            if not cold:
                one.holds(BASE_MS - 1000, 1)
            one.start(at_once=cold)

    @staticmethod
    def entry(number: int, **changes: object) -> Entry:
        fields = {
            "agent_id": name_of(number), "gen": BASE_MS - 1000, "ver": 1, "rank": Rank.UP, "cluster": "sim",
            "address": f"host-{number}:1", "version": "1", "capabilities": (Capability(name="work"),),
            "owner": owner_of(f"instance-{number}"),
        } | changes  # fmt: skip
        return Entry(**fields)  # type: ignore[arg-type]

    # -- who is there

    def add(self, agent_id: str, *, address: str = "", controls: list[str] | None = None, table: PeerTable | None = None,
            instance: str = "", start: bool = True) -> Sidecar:
        """Another sidecar, or the next process of one that was there."""
        address = address or f"host-{agent_id.removeprefix('agent-')}:1"
        order = controls or [control.address for control in self.controls.values()]
        one = Sidecar(self.network, self.heap, self.random, agent_id, address, order, table=table, instance=instance,
                      keyring=self._keyring, on_changes=self._changed)
        self.sidecars[agent_id] = one
        if start:
            one.start()
        return one

    def add_control(self, name: str, peers: list[str], table: PeerTable | None = None,
                    disk: dict[str, Entry] | None = None, skew_ms: int = 0) -> Control:
        one = Control(self.network, self.heap, self.random, name, f"{name}:1", peers, table=table, disk=disk,
                      terms=self.terms, sign=self._sign, keyring=self._keyring, skew_ms=skew_ms,
                      on_changes=self._changed)
        self.controls[name] = one
        one.start()
        return one

    def restart_control(self, name: str, keep: bool = True) -> Control:
        """SIGKILL and start: it has what was on its disk, or nothing."""
        old = self.controls[name]
        old.kill()
        return self.add_control(name, old.peers, disk=dict(old.disk) if keep else None)

    @property
    def nodes(self) -> list[Node]:
        """Those that run."""
        return [one for one in (*self.controls.values(), *self.sidecars.values()) if one.alive]

    def leave(self, agent_id: str) -> None:
        """Its owner stops in order; from then on the agent must not be seen again."""
        one = self.sidecars[agent_id]
        self.left[agent_id] = (one.gen, self.heap.now_s)
        one.leave()
        one.after(1.0, one.kill)

    # -- time

    def run(self, seconds: float, stop: Callable[[], bool] | None = None) -> bool:
        """Let so much time pass, or until `stop`; True if it stopped."""
        try:
            return self.heap.run_until(self.heap.now_s + seconds, stop)
        except AssertionError as error:
            raise AssertionError(f"SIM_SEED={self.seed} at {self.heap.now_s:.3f} s: {error}") from error

    def run_until_equal(self, within_s: float, step_s: float = 1.0) -> float:
        """Until all tables are the same; how long that took."""
        began = self.heap.now_s
        while not self.is_equal():
            self.expect(self.heap.now_s - began < within_s, f"tables are not equal after {within_s:g} s: {self.describe()}")
            self.run(step_s)
        return self.heap.now_s - began

    # -- what is to be seen

    def is_equal(self) -> bool:
        return len({one.table.hash for one in self.nodes}) == 1

    def ranks(self, agent_id: str) -> dict[str, str]:
        """What the nodes that run think of it: `up`, … or `-` where it is not known or gone."""
        found = {}
        for one in self.nodes:
            entry = one.table.get(agent_id)
            found[one.name] = "-" if entry is None or entry.is_tombstone else entry.rank.label
        return found

    def all_have(self, agent_id: str, condition: Callable[[Entry | None], bool]) -> bool:
        return all(condition(one.table.get(agent_id)) for one in self.nodes)

    def expect(self, condition: bool, what: str) -> None:
        assert condition, f"SIM_SEED={self.seed} at {self.heap.now_s:.3f} s: {what}"

    def describe(self) -> str:
        """Which tables there are, by how many hold each."""
        by_hash: dict[str, list[str]] = {}
        for one in self.nodes:
            by_hash.setdefault(one.table.hash[:8], []).append(one.name)
        return ", ".join(f"{name}: {len(who)} (such as {who[0]})" for name, who in by_hash.items())

    def refutes(self, names: Iterable[str]) -> None:
        """None of these may be taken for worse than up by anybody from now on."""
        watched = set(names)

        def check(node: Node, change: Change) -> None:
            if change.after.agent_id in watched:
                assert change.after.rank <= Rank.UP, f"{node.name} takes {change.after.agent_id} for {change.after.rank.label}"

        self.learned.append(check)

    # -- invariants

    def _changed(self, node: Node, changes: list[Change]) -> None:
        for change in changes:
            self.changes += 1
            before, after = change
            if before is not None and after.expires_ms != 86_400_000:  # a table that was emptied says so with tombstones of 1970
                assert after.order > before.order, f"{node.name} went back from {before.order} to {after.order}"
            if after.agent_id in self.left and not after.is_tombstone:
                gen, since_s = self.left[after.agent_id]
                is_back = after.gen <= gen and self.heap.now_s > since_s + SETTLED_S
                assert not is_back, f"{after.agent_id} left, and is back from the dead at {node.name}"
            for check in self.learned:
                check(node, change)
        if isinstance(node, Sidecar):
            assert len(node.machine.rumors) <= MOST_RUMORS
        elif isinstance(node, Control):
            assert len(node.seeds) <= MAX_BATCHES
