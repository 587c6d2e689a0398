import random

import pytest
from harness.nodes import Nodes, url
from harness.owners import Owners
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reach_control.registry.exchange import MOST_ENTRIES, Exchange
from reach_core.messages import HeartbeatRequest, NodeAnswer, NodePush, RegisterRequest
from reach_core.peer import Entry, Rank, owner_of, pack_entry
from reach_core.problem import Problem


def cut(a: int, b: int) -> bool:
    return True


def test_a_change_here_is_soon_known_there_and_both_stay_quiet() -> None:
    nodes = Nodes(3)
    nodes.run(3)
    nodes.owners[0].register("a")
    nodes.run(0.3)
    assert [owners.rank("a") for owners in nodes.owners] == ["up"] * 3
    nodes.run(3)
    nodes.pushes.clear()
    nodes.compared.clear()
    nodes.run(10)
    assert len(nodes.hashes()) == 1
    assert nodes.compared == []
    assert sum(len(push.entries) for push in nodes.pushes) == 0
    assert 50 <= len(nodes.pushes) <= 66, "once a second and pair"


def test_heartbeats_taken_by_one_keep_the_agent_up_at_all() -> None:
    nodes = Nodes(3)
    nodes.owners[0].register("a")
    nodes.owners[0].keep("a")
    nodes.run(120)
    assert [owners.rank("a") for owners in nodes.owners] == ["up"] * 3
    assert [owners.seen for owners in nodes.owners[1:]] == [["a up"]] * 2
    assert all(owners.looks == [] for owners in nodes.owners)
    silent_s = [owners.registry.silent_s("a", owners.at_s) for owners in nodes.owners]
    assert max(s for s in silent_s if s is not None) < 11


def test_a_node_cut_off_loses_sight_and_is_put_right_when_it_is_back() -> None:
    nodes = Nodes(2)
    mine = nodes.owners[0].register("a")
    nodes.owners[0].keep("a")
    nodes.run(5)
    nodes.run(100, cut)
    assert [owners.rank("a") for owners in nodes.owners] == ["up", "down"]
    nodes.run(6)
    assert [owners.rank("a") for owners in nodes.owners] == ["up", "up"]
    assert nodes.owners[0].entry("a").gen == mine.gen
    nodes.run(700, cut)
    assert [owners.rank("a") for owners in nodes.owners] == ["up", "left"]
    nodes.run(6)
    assert [owners.rank("a") for owners in nodes.owners] == ["up", "up"]
    assert nodes.owners[1].entry("a").gen == mine.gen + 1
    assert len(nodes.hashes()) == 1


def test_one_that_is_held_here_is_not_lifted_there() -> None:
    nodes = Nodes(2)
    one = nodes.owners[0]
    one.register("a")
    for _ in range(2):
        nodes.run(33)
        assert one.rank("a") == "suspect"
        one.heartbeat("a")
    one.keep("a")
    nodes.run(25)
    assert [owners.rank("a") for owners in nodes.owners] == ["suspect", "suspect"]
    vers = one.entry("a").ver
    nodes.run(60)
    assert [owners.rank("a") for owners in nodes.owners] == ["up", "up"]
    assert one.entry("a").ver == vers + 1


def test_a_takeover_at_another_node_wins_and_the_former_owner_is_told() -> None:
    nodes = Nodes(2)
    nodes.owners[0].register("a", instance="one")
    nodes.run(2)
    nodes.run(5, cut)
    nodes.owners[1].register("a", instance="two", takeover=True)
    nodes.run(6)
    with pytest.raises(Problem) as caught:
        nodes.owners[0].heartbeat("a", instance="one")
    assert caught.value.code == "agent_id_conflict"
    assert {owners.entry("a").owner for owners in nodes.owners} == {owner_of("two")}


def test_pushes_are_bounded_and_a_backlog_goes_faster() -> None:
    nodes = Nodes(2)
    nodes.run(2)
    nodes.pushes.clear()
    nodes.owners[0].fill(1200)
    nodes.run(1, step_s=0.05)
    sizes = [len(push.entries) for push in nodes.pushes if push.node == "node-0"]
    assert max(sizes) <= MOST_ENTRIES
    assert sum(sizes) == 1200
    assert len(nodes.hashes()) == 1
    assert sum(len(push.entries) for push in nodes.pushes if push.node == "node-1") == 0, "no echo"
    assert all(not push.hash for push in nodes.pushes if len(push.entries) == MOST_ENTRIES)
    assert nodes.compared in ([], [(0, 1)], [(1, 0)], [(0, 1), (1, 0)])


def test_what_was_not_acknowledged_comes_again() -> None:
    nodes = Nodes(2)
    nodes.run(2)
    nodes.owners[0].register("a")
    nodes.owners[0].at_s += 0.2
    nodes.push(0, 1, is_heard=False)
    nodes.push(0, 1, is_answered=False)
    nodes.push(0, 1)
    assert [len(push.entries) for push in nodes.pushes[-3:]] == [1, 1, 1]
    assert [len(push.renewals) for push in nodes.pushes[-3:]] == [1, 1, 1]
    nodes.push(0, 1)
    assert (len(nodes.pushes[-1].entries), len(nodes.pushes[-1].renewals)) == (0, 0)


def test_a_node_that_started_anew_is_compared_with() -> None:
    nodes = Nodes(2)
    nodes.owners[0].fill(30)
    nodes.run(5)
    nodes.compared.clear()
    nodes.restart(1, [])
    nodes.pushes.clear()
    nodes.run(2)
    assert nodes.compared
    assert len(nodes.hashes()) == 1
    assert len(nodes.owners[1].registry.table) == 30
    assert sum(len(push.entries) for push in nodes.pushes if push.node == "node-0") == 0, "that is not told anew"


def test_tables_that_differ_while_nothing_is_said_are_compared_after_two_seconds() -> None:
    nodes = Nodes(2)
    nodes.run(3)
    nodes.compared.clear()
    entry = Entry(agent_id="lost", gen=nodes.owners[0].now.ms, ver=1, rank=Rank.UP)
    nodes.owners[0].registry.meet([entry], nodes.owners[0].now)
    nodes.exchanges[0]._links[url(1)].acked += 1  # as if it had been told, and taken
    nodes.exchanges[1]._links[url(0)].received += 1
    nodes.run(1.9)
    assert nodes.compared == []
    nodes.run(2)
    assert nodes.compared
    assert nodes.owners[1].rank("lost") == "up"


def test_a_change_that_was_told_to_nobody_is_missed_at_once() -> None:
    nodes = Nodes(2)
    nodes.run(3)
    nodes.compared.clear()
    nodes.owners[0].register("a")
    nodes.exchanges[0]._links[url(1)].acked += 1
    nodes.run(1.2)
    assert nodes.compared[0] == (1, 0)
    assert nodes.owners[1].rank("a") == "up"


def test_a_difference_that_no_comparison_mends_is_not_tried_all_the_time() -> None:
    nodes = Nodes(2)
    nodes.run(1)
    entry = Entry(agent_id="odd", gen=nodes.owners[0].now.ms, ver=1, rank=Rank.UP)
    nodes.owners[0].registry.table.merge([entry], nodes.owners[0].now.ms)  # unsigned: the other never takes it
    nodes.compare = lambda a, b: (  # type: ignore[method-assign]
        nodes.compared.append((a, b)),
        nodes.exchanges[a].compared(url(b), False, nodes.owners[a].now),
    )[1]
    nodes.run(120, step_s=0.5)
    assert 2 <= len([one for one in nodes.compared if one == (0, 1)]) <= 10
    assert nodes.exchanges[1].unverified == 1


def test_what_no_control_node_signed_is_not_taken_and_what_is_known_not_verified() -> None:
    world, verified = Owners(), []

    def verify(entry: Entry) -> bool:
        verified.append(entry.agent_id)
        return entry.agent_id != "forged"

    exchange = Exchange(world.registry, "node-0", "", random.Random(1), epoch="e", verify=verify)
    known = world.register("known")
    entries = [Entry(agent_id=one, gen=world.now.ms, ver=1, rank=Rank.UP) for one in ("forged", "good")]
    push = NodePush(node="x", epoch="x1", seq=3, entries=[pack_entry(one) for one in (*entries, known)] + [b"no entry"])
    _, changes = exchange.receive(push, world.now)
    assert [change.after.agent_id for change in changes] == ["good"]
    assert verified == ["forged", "good"]
    assert exchange.unverified == 2


def test_pauses_grow_while_a_node_is_away_and_end_when_it_is_back() -> None:
    nodes = Nodes(2)
    nodes.run(2)
    nodes.pushes.clear()
    nodes.run(30, cut)
    assert 5 <= len([push for push in nodes.pushes if push.node == "node-0"]) <= 14
    (state,) = nodes.exchanges[0].nodes(nodes.owners[0].now)
    assert (state.reachable, state.trouble) == (False, "It could not be reached.")
    assert state.behind_s > 25
    nodes.run(6)
    (state,) = nodes.exchanges[0].nodes(nodes.owners[0].now)
    assert (state.id, state.url, state.reachable, state.trouble) == ("node-1", url(1), True, "")
    assert (state.behind_s, state.differs_s, state.hash) == (0.0, 0.0, nodes.owners[1].registry.table.hash)
    assert nodes.exchanges[0].due_s(url(1), nodes.owners[0].now) <= 1


def test_why_expiry_stands_still_is_told() -> None:
    nodes = Nodes(2)
    noted = [nodes.owners[0].register("a")]
    nodes.owners[0].registry.restore(noted, nodes.owners[0].now)
    nodes.run(2)
    (state,) = nodes.exchanges[1].nodes(nodes.owners[1].now)
    assert "just started" in state.frozen


def test_a_node_that_is_told_to_talk_to_itself_says_so() -> None:
    nodes = Nodes(1)
    exchange, now = nodes.exchanges[0], nodes.owners[0].now
    answer, changes = exchange.receive(exchange.push("http://me", now), now)
    assert changes == []
    exchange.answered("http://me", answer, now)
    (state,) = exchange.nodes(now)
    assert state.trouble.startswith("This address leads to this node itself.")


def test_a_node_with_a_copy_of_our_state_directory_is_named() -> None:
    nodes = Nodes(2)
    nodes.exchanges[1]._own_id = "node-0"
    nodes.owners[1].register("a")
    nodes.run(1)
    assert nodes.owners[0].rank("a") is None
    (state,) = nodes.exchanges[0].nodes(nodes.owners[0].now)
    assert (state.reachable, "copy of its state directory" in state.trouble) == (False, True)


def test_a_node_that_is_in_no_list_is_heard_and_shown() -> None:
    world = Owners()
    exchange = Exchange(world.registry, "node-0", "", random.Random(1), epoch="e", verify=lambda entry: True)
    for n in range(100):
        exchange.receive(NodePush(node=f"x{n}", epoch="x", seq=1), world.now)
    states = exchange.nodes(world.now)
    assert len(states) == 16
    assert states[0].trouble == "It is not in this node's list of control nodes."


def test_peers_that_left_the_list_are_forgotten() -> None:
    world = Owners()
    exchange = Exchange(world.registry, "node-0", "", random.Random(1), epoch="e", verify=lambda entry: True)
    exchange.peers(["http://a", "http://b"], world.now)
    exchange.peers(["http://b", "http://c"], world.now)
    assert [state.url for state in exchange.nodes(world.now)] == ["http://b", "http://c"]


def test_an_answer_of_a_node_that_was_never_asked_does_no_harm() -> None:
    world = Owners()
    exchange = Exchange(world.registry, "node-0", "", random.Random(1), epoch="e", verify=lambda entry: True)
    exchange.answered("http://a", NodeAnswer(node="a", epoch="x", seq=7, hash="00"), world.now)
    exchange.compared("http://a", True, world.now)
    assert len(exchange.push("http://a", world.now).entries) == 0


class Process:
    """One that runs an agent and behaves as a sidecar does."""

    def __init__(self, agent_id: str, instance: str) -> None:
        self.agent_id, self.instance = agent_id, instance
        self.gen = self.ver = 0
        self.is_running = False
        self.is_fenced = False

    def renew(self, world: Owners) -> None:
        try:
            self._take(
                world.registry.heartbeat(
                    HeartbeatRequest(
                        agent_id=self.agent_id, instance=self.instance, gen=self.gen, ver=self.ver, healthy=True
                    ),
                    world.now,
                ).entry
            )
        except Problem as problem:
            if problem.code == "register_again":
                self.register(world)
            else:
                self.is_fenced = True

    def register(self, world: Owners, takeover: bool = False) -> None:
        request = RegisterRequest(
            agent_id=self.agent_id,
            instance=self.instance,
            address="h:1",
            gen=self.gen,
            ver=self.ver,
            healthy=True,
            takeover=takeover,
        )
        try:
            self._take(world.registry.register(request, world.now).entry)
            self.is_running, self.is_fenced = True, False
        except Problem as problem:
            assert problem.code == "agent_id_conflict"
            self.is_fenced = True

    def _take(self, entry: Entry) -> None:
        if entry.gen >= self.gen:
            self.gen, self.ver = entry.gen, entry.ver


HOUR_MS = 3_600_000
NODE = st.integers(0, 2)


class Mesh(RuleBasedStateMachine):
    """Anything may happen to three nodes whose clocks differ; once it is quiet again, all have the same table, and it is
    true.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nodes = Nodes(3, ahead_ms=(0, -HOUR_MS, HOUR_MS))
        self.processes = [Process(agent_id, instance) for agent_id in ("a", "b", "c") for instance in ("one", "two")]
        self.old: list[Entry] = []

    @rule(which=st.integers(0, 5), node=NODE, takeover=st.booleans())
    def register(self, which: int, node: int, takeover: bool) -> None:
        self.processes[which].register(self.nodes.owners[node], takeover)

    @rule(which=st.integers(0, 5), node=NODE)
    def renew(self, which: int, node: int) -> None:
        if self.processes[which].is_running and not self.processes[which].is_fenced:
            self.processes[which].renew(self.nodes.owners[node])

    @rule(which=st.integers(0, 5), node=NODE)
    def leave(self, which: int, node: int) -> None:
        process = self.processes[which]
        try:
            self.nodes.owners[node].leave(process.agent_id, process.instance)
        except Problem as problem:
            assert problem.code == "agent_id_conflict"
        process.is_running = False

    @rule(which=st.integers(0, 5))
    def die(self, which: int) -> None:
        self.processes[which].is_running = False

    @rule(a=NODE, further=st.integers(1, 2), is_heard=st.booleans(), is_answered=st.booleans())
    def push(self, a: int, further: int, is_heard: bool, is_answered: bool) -> None:
        self.nodes.push(a, (a + further) % 3, is_heard, is_answered)

    @rule(a=NODE, further=st.integers(1, 2))
    def compare(self, a: int, further: int) -> None:
        self.nodes.compare(a, (a + further) % 3)

    @rule(seconds=st.sampled_from([0.2, 3.0, 31.0, 65.0, 610.0]), node=NODE)
    def silence(self, seconds: float, node: int) -> None:
        """Time passes in which the running processes renew at one of the nodes, and no push gets through."""
        for step in range(round(seconds / min(seconds, 1.0))):
            for owners in self.nodes.owners:
                owners.at_s += min(seconds, 1.0)
                owners.tick()
            if step % 10 == 0:
                self._renew_all(node)

    @rule(node=NODE, notes=st.sampled_from(["all", "old", "none"]))
    def restart(self, node: int, notes: str) -> None:
        known = list(self.nodes.owners[node].registry.table.entries(tombstones=True))
        self.nodes.restart(node, {"all": known, "old": self.old, "none": []}[notes])
        self.old = known

    @invariant()
    def leases_and_live_entries_are_the_same(self) -> None:
        for owners in self.nodes.owners:
            live = {entry.agent_id: entry.gen for entry in owners.registry.table}
            assert {lease.agent_id: lease.gen for lease in owners.registry._ledger.leases.values()} == live

    def teardown(self) -> None:
        self._be_quiet(12)
        assert len(self.nodes.hashes()) == 1
        self._be_quiet(400)  # who was held is up again
        for owners in self.nodes.owners:
            owners.seen.clear()
        self._be_quiet(60)
        running_ids = {one.agent_id for one in self.processes if one.is_running and not one.is_fenced}
        seen = {one for owners in self.nodes.owners for one in owners.seen if one.split()[0] in running_ids}
        assert not seen, "who renews is left alone"
        assert len(self.nodes.hashes()) == 1
        for agent_id in ("a", "b", "c"):
            running = [
                one for one in self.processes if one.agent_id == agent_id and one.is_running and not one.is_fenced
            ]
            assert len(running) <= 1
            entry = self.nodes.owners[0].registry.table.get(agent_id)
            if running:
                assert entry is not None
                assert (entry.owner, entry.rank, entry.gen) == (owner_of(running[0].instance), Rank.UP, running[0].gen)
            else:
                assert entry is None or entry.rank >= Rank.SUSPECT

    def _be_quiet(self, seconds: int) -> None:
        for second in range(seconds):
            if second % 10 == 0:
                self._renew_all(second // 10 % 3)
            self.nodes.run(1.0, step_s=0.5)

    def _renew_all(self, node: int) -> None:
        for process in self.processes:
            if process.is_running and not process.is_fenced:
                process.renew(self.nodes.owners[node])


TestMesh = Mesh.TestCase
TestMesh.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
