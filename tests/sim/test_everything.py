"""Everything at once, at random: cuts (also one-way), pauses, crashes, restarts with and without what was known, clocks
that step, agents that leave, come back, move and change. Then quiet, and all tables must be equal and true.
"""

import pytest
from sim.control import Control
from sim.node import Node
from sim.sidecar import Sidecar
from sim.watch import WatchedWorld
from sim.world import name_of, seeds

from reach_core.table import Change

QUIET_S = 180.0
"""Time for the longest back-off and three comparisons, a lease, and what damping holds back of who fell twice."""
HOUR_MS = 3_600_000


class Troubles:
    """One thing that happens at a time; each is over when its time is."""

    def __init__(self, world: WatchedWorld, agents: int) -> None:
        self._world = world
        self._names = [name_of(number) for number in range(agents)]
        self.done: list[str] = []
        self.taken: dict[str, int] = {}  # leaves that a control node has taken: agent id -> gen
        world.learned.append(self._note_leave)

    def _note_leave(self, node: Node, change: Change) -> None:
        """`World.left` would not do: who is cut off may go on believing in who left, for as long as that lasts."""
        after = change.after
        is_leave = after.is_tombstone and change.before is not None and after.ver > change.before.ver
        if isinstance(node, Control) and is_leave and self._world.sidecars[after.agent_id].has_left:
            self.taken[after.agent_id] = after.gen

    def next(self) -> None:
        world = self._world
        what = world.random.choice([self.split, self.one_way, self.pause, self.crash, self.control_dies, self.step_clock,
                                    self.leave, self.move, self.change, self.change])  # fmt: skip
        self.done.append(what.__name__)
        what()

    def end(self) -> None:
        world = self._world
        world.network.heal()
        for node in world.nodes:
            node.go_on()
            node.skew_ms = 0

    def split(self) -> None:
        names = [one.name for one in self._world.nodes]
        some = set(self._world.random.sample(names, self._world.random.randrange(1, len(names))))
        self._world.network.cut(some, set(names) - some)
        self._world.heap.after(self._world.random.uniform(5, 120), self._world.network.heal)

    def one_way(self) -> None:
        names = [one.name for one in self._world.nodes]
        some = set(self._world.random.sample(names, self._world.random.randrange(1, len(names))))
        self._world.network.is_cut = lambda one, other: one in some and other not in some
        self._world.heap.after(self._world.random.uniform(5, 120), self._world.network.heal)

    def pause(self) -> None:
        node = self._world.random.choice(self._world.nodes)
        node.stop()
        node.heap.after(self._world.random.uniform(1, 90), node.go_on)

    def crash(self) -> None:
        """A sidecar, which starts again after a while, with its state directory or without."""
        one = self._any()
        if one is None:
            return
        one.kill()
        instance = one.instance if self._world.random.random() < 0.7 else ""
        self._world.heap.after(self._world.random.uniform(0.5, 60), self._start, one.agent_id, instance, one.address)

    def move(self) -> None:
        one = self._any()
        if one is not None:
            one.kill()
            self._start(one.agent_id, one.instance, f"moved-{self._world.random.getrandbits(32)}:1")

    def control_dies(self) -> None:
        name = self._world.random.choice(list(self._world.controls))
        if self._world.controls[name].alive:
            self._world.controls[name].kill()
            keep = self._world.random.random() < 0.7
            self._world.heap.after(self._world.random.uniform(1, 60), self._world.restart_control, name, keep)

    def step_clock(self) -> None:
        node = self._world.random.choice(self._world.nodes)
        node.skew_ms = self._world.random.choice([-1, 1]) * HOUR_MS
        node.heap.after(self._world.random.uniform(5, 60), setattr, node, "skew_ms", 0)

    def leave(self) -> None:
        """In order, and back again later."""
        one = self._any()
        if one is None:
            return
        one.leave()
        one.after(1.0, one.kill)
        if self._world.random.random() < 0.6:
            self._world.heap.after(self._world.random.uniform(2, 60), self._start, one.agent_id, one.instance, one.address)

    def change(self) -> None:
        one = self._any()
        if one is not None:
            one.change(f"{self._world.heap.now_s:.3f}")

    def _any(self) -> Sidecar | None:
        able = [one for name in self._names if (one := self._world.sidecars[name]).alive and not one.has_left]
        return self._world.random.choice(able) if able else None

    def _start(self, agent_id: str, instance: str, address: str) -> None:
        self._world.sidecars[agent_id].kill()
        self._world.add(agent_id, instance=instance, address=address)


@pytest.mark.parametrize(("seed", "agents", "controls"), [
    *((seed, 12, controls) for controls in (1, 3) for seed in seeds(2)),
    *(pytest.param(seed, 30, controls, marks=[pytest.mark.slow, pytest.mark.timeout(600)])
      for controls in (1, 2, 3) for seed in seeds(40)),
])  # fmt: skip
def test_after_any_troubles_all_tables_are_equal_and_true(seed: int, agents: int, controls: int) -> None:
    world = WatchedWorld(seed, agents, controls=controls, loss=0.1)
    world.run(10.0)
    troubles = Troubles(world, agents)
    for _ in range(40):
        troubles.next()
        world.run(world.random.uniform(0.0, 20.0))
    world.run(130.0)
    troubles.end()
    world.run(QUIET_S)
    world.run_until_equal(60.0)
    world.expect_truth()
    for name, gen in troubles.taken.items():
        if world.sidecars[name].has_left and world.sidecars[name].gen <= gen:
            world.expect(world.all_have(name, lambda entry: entry is None or entry.is_tombstone), f"{name} left: {world.ranks(name)}")
    world.check_books()
