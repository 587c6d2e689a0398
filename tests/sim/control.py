"""A control node: the product's registry, exchange and seeds, and around them what its drivers do on real sockets."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
from sim.network import Network
from sim.node import Node
from sim.sidecar import AnyKey

from reach_control.registry.exchange import Exchange
from reach_control.registry.lease import Moment, Terms
from reach_control.registry.look import Look, Sighting
from reach_control.registry.registry import Registry
from reach_core.gossip.compare import (
    MAX_ENTRIES,
    Opening,
    Transfer,
    differences,
    is_all,
    opening,
    push,
    transfer,
    transferred,
)
from reach_core.gossip.datagram import ACK, Datagram, encode
from reach_core.gossip.seal import OVERHEAD
from reach_core.gossip.seeds import Push, Seeds
from reach_core.keyring import Keyring
from reach_core.messages import HeartbeatRequest, LeaveRequest, NodePush, RegisterRequest, unpack_entries
from reach_core.peer import SIGNATURE_BYTES, Entry, with_signature
from reach_core.problem import Problem
from reach_core.table import Change, PeerTable

DISK_S = 0.02
MAX_ROUNDS = 16
SIGNATURE = bytes(range(SIGNATURE_BYTES))


def sign(entry: Entry) -> Entry:
    """As any control node: see AnyKey."""
    return with_signature(entry, SIGNATURE)


class Control(Node):
    """`disk` is what survives it: the entries it had noted."""

    def __init__(self, network: Network, heap: Any, random: Random, name: str, address: str, peers: list[str], *,
                 disk: dict[str, Entry] | None = None, table: PeerTable | None = None, terms: Terms | None = None,
                 sign: Callable[[Entry], Entry] = sign, keyring: Keyring | None = None, skew_ms: int = 0,
                 on_changes: Callable[[Any, list[Change]], None]) -> None:
        super().__init__(heap, name, address)
        self.skew_ms = skew_ms
        self.disk = {} if disk is None else disk
        self.peers = peers
        self.requests = 0
        self.requests_at: list[float] = []
        self._network = network
        self._random = random
        self._told_changes = on_changes
        self._sign = sign
        self._keyring = keyring or AnyKey()
        self.table = PeerTable() if table is None else table
        self.registry = Registry("sim", terms or Terms(), self.table, self._moment(), random, sign=self._own_sign)
        if not self.disk and len(self.table):  # what all begin with is on disk, too
            self.disk = {entry.agent_id: entry for entry in self.table}
        self.registry.restore([*self.disk.values()], self._moment())
        self.own: dict[str, bytes] = {}  # digests of what this node decided
        self.seeds = Seeds(self.table, random, name)
        self.exchange = Exchange(self.registry, name, address, random, epoch=f"{name}-{heap.now_s}-{random.random()}",
                                 verify=self._keyring.verify)
        self.exchange.peers(peers, self._moment())
        self._seeds_at = float("inf")
        self._comparing: set[str] = set()
        network.add(self)

    def start(self) -> None:
        self._tick()
        for peer in self.peers:
            self.after(0.1 * self._random.random(), self._tell, peer)

    def _moment(self) -> Moment:
        return Moment(self.now_s, self.now_ms)

    # -- what sidecars ask

    def register(self, message: RegisterRequest) -> Any:
        return self._decide(lambda now: self.registry.register(message, now))

    def heartbeat(self, message: HeartbeatRequest) -> Any:
        return self._decide(lambda now: self.registry.heartbeat(message, now))

    def leave(self, message: LeaveRequest) -> bool:
        try:
            self.apply(self.registry.leave(message, self._moment()))
        except Problem:
            return False
        return True

    def whole_table(self) -> list[Entry]:
        self._count()
        return [*self.table.entries(tombstones=True)]

    def answer(self, asked: Opening | Transfer, source: str) -> Any:
        self._count()
        if isinstance(asked, Opening):
            return differences(self.table, asked, self._random)
        self._meet(asked.entries, source not in {f"control-{n}" for n in range(9)})
        return transferred(self.table, asked)

    def receive_push(self, message: NodePush) -> Any:
        answer, changes = self.exchange.receive(message, self._moment())
        self.apply(changes)
        return answer

    def hello(self) -> str:
        return self.name

    def received(self, what: Datagram, source: str) -> None:
        if what.kind == ACK:
            self.seeds.acknowledged(what.number, what.sender)

    # -- steps

    def _own_sign(self, entry: Entry) -> Entry:
        signed = self._sign(entry)
        self.own[entry.agent_id] = signed.digest
        return signed

    def _decide(self, decide: Callable[[Moment], Any]) -> Any:
        self._count()
        try:
            outcome = decide(self._moment())
        except Problem as problem:
            return problem
        self.apply(outcome.changes)
        return outcome.entry

    def _count(self) -> None:
        self.requests += 1
        self.requests_at.append(self.now_s)

    def apply(self, changes: list[Change]) -> None:
        if changes:
            self._told_changes(self, changes)
            self.after(DISK_S, self._saved, [change.after for change in changes])

    def _saved(self, entries: list[Entry]) -> None:
        """On disk now: only then it is told."""
        for entry in entries:
            self.disk[entry.agent_id] = entry
        mine = [one for one in entries if self.own.get(one.agent_id) == one.digest]
        if mine:
            self.seeds.add(mine, self.now_s)
            self._sow()

    def _sow(self) -> None:
        due = self.seeds.tick(self.now_s)
        for address, datagram in due.sends:
            self._network.datagram(self, address, datagram, len(encode(datagram)) + OVERHEAD)
        for one in due.pushes:
            self._push_over_tcp(one)
        if due.next_s is not None and self.now_s + due.next_s < self._seeds_at - 1e-9:
            self._seeds_at = self.now_s + due.next_s
            self.after(due.next_s, self._sow_due)

    def _sow_due(self) -> None:
        self._seeds_at = float("inf")
        self._sow()

    def _push_over_tcp(self, one: Push) -> None:
        news = push(one.entries, self.name)

        def failed() -> None:
            self.seeds.failed(one.number, one.agent_id, self.now_s)
            self._sow()

        self._network.request(self, one.address, lambda node: node.answer(news, self.name),
                              lambda _: self.seeds.acknowledged(one.number, one.agent_id), failed, 2.0)

    def _tick(self) -> None:
        tick = self.registry.tick(self._moment())
        self.apply(tick.changes)
        for look in tick.looks:
            self._look(look)
        self.after(max(0.01, tick.next_s), self._tick)

    def _look(self, look: Look) -> None:
        seen: list[bool | None] = []

        def tell(found: bool | None) -> None:
            seen.append(found)
            if len(seen) == 1 + len(look.witnesses):
                sighting = Sighting(own[0], others.count(True), others.count(False))
                self.apply(self.registry.looked(look.agent_id, look.gen, sighting, self._moment()))

        own: list[bool] = []
        others: list[bool | None] = []

        def saw(found: bool) -> None:
            own.append(found)
            tell(found)

        def told(found: bool | None) -> None:
            others.append(found)
            tell(found)

        self._network.request(self, look.address, lambda node: node.hello() == look.agent_id, saw, lambda: saw(False), 1.0)
        for witness in look.witnesses:
            self._ask_witness(witness, look, told)

    def _ask_witness(self, witness: str, look: Look, told: Callable[[bool | None], None]) -> None:
        state = {"open": True}

        def once(found: bool | None) -> None:
            if state["open"]:
                state["open"] = False
                told(found)

        def back(found: bool) -> None:
            """Its answer has a way to go, too."""
            self._network.request(self, witness, lambda node: found, once, lambda: None, 1.5)

        self._network.request(self, witness, lambda node: node.look(look.address, look.agent_id, back),
                              lambda _: None, lambda: once(None), 1.5)
        self.after(3.0, once, None)

    # -- other control nodes

    def _tell(self, peer: str) -> None:
        wait_s = self.exchange.due_s(peer, self._moment())
        if wait_s > 1e-6:
            self.after(min(wait_s, 0.05), self._tell, peer)
            return
        message = self.exchange.push(peer, self._moment())

        def answered(answer: Any) -> None:
            self.exchange.answered(peer, answer, self._moment())
            if peer not in self._comparing and self.exchange.compare_due(peer, self._moment()):
                self._comparing.add(peer)
                self._compare(peer, MAX_ROUNDS)

        def failed() -> None:
            self.exchange.failed(peer, self._moment())

        size = len(msgspec.json.encode(message))
        self._network.request(self, peer, lambda node: node.receive_push(message), answered, failed, 5.0, size)
        self.after(0.05, self._tell, peer)

    def _compare(self, peer: str, rounds: int) -> None:
        def done(is_same: bool) -> None:
            self._comparing.discard(peer)
            self.exchange.compared(peer, is_same, self._moment())

        def found(differs: Any) -> None:
            if differs.same:
                done(True)
                return
            ours = transfer(self.table, differs, self.name, self._random)

            def got(answer: Any) -> None:
                self._meet(answer.entries, False)
                if is_all(differs, ours, answer) or rounds <= 1:
                    done(False)
                else:
                    self._compare(peer, rounds - 1)

            size = 300 + sum(map(len, ours.entries))
            self._network.request(self, peer, lambda node: node.answer(ours, self.name), got, lambda: done(False),
                                  5.0, size)

        asked = opening(self.table, self.name)
        self._network.request(self, peer, lambda node: node.answer(asked, self.name), found, lambda: done(False), 5.0)

    def _meet(self, packed: Any, is_hearsay: bool) -> None:
        entries, _ = unpack_entries(packed[:MAX_ENTRIES])
        newer = [one for one in entries if (known := self.table.get(one.agent_id)) is None or one.order > known.order]
        good = [one for one in newer if self._keyring.verify(one)]
        self.apply(self.registry.meet(good, self._moment(), is_hearsay=is_hearsay))
