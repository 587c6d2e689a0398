"""A sidecar: the product's gossip machine and table, and around them what its drivers do on real sockets.

The owner's side follows `reach_sidecar/membership/registrar.py`: a heartbeat every 10 s ± 10 %, the next control node
when one does not answer, back-off when none does.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from sim.network import Network
from sim.node import Node

from reach_core.gossip.absence import Absence
from reach_core.gossip.compare import Opening, Transfer, differences, is_all, opening, transfer, transferred
from reach_core.gossip.datagram import Datagram, encode
from reach_core.gossip.machine import Gossip, How
from reach_core.gossip.seal import OVERHEAD
from reach_core.keyring import Keyring
from reach_core.messages import HeartbeatRequest, LeaveRequest, Load, RegisterRequest, unpack_entries
from reach_core.peer import Capability, Entry, owner_of
from reach_core.problem import Problem
from reach_core.table import Change, PeerTable

HEARTBEAT_S = 10.0
MAX_ROUNDS = 8


class Sidecar(Node):
    """`controls`: addresses of control nodes, in the order of its configuration. `state`: its instance, which its state
    directory keeps over restarts."""

    def __init__(self, network: Network, heap: Any, random: Random, agent_id: str, address: str, controls: list[str], *,
                 table: PeerTable | None = None, instance: str = "", keyring: Keyring | None = None,
                 on_changes: Callable[["Sidecar", list[Change]], None]) -> None:
        super().__init__(heap, agent_id, address)
        self.agent_id = agent_id
        self.controls = controls
        self.instance = instance or f"{agent_id}-{random.getrandbits(32):x}"
        self.gen = self.ver = 0
        self.flags: tuple[str, ...] = ()
        self.is_registered = False
        self.refused = ""
        self.has_left = False
        self.version = "1"
        self.forged: list[tuple[str, str]] = []
        self.under_way_s: set[str] = set()
        self._network = network
        self._random = random
        self._told_changes = on_changes
        self._current = 0
        self._tried = 0
        self._backoff_s = 0.1
        self._timer = 0
        self._tick_at = float("inf")
        self.table = PeerTable() if table is None else table
        self.absence = Absence(heap.now_s)
        self.machine = Gossip(lambda: self.agent_id, self.table, keyring or AnyKey(), self, random,
                              on_changes=self._changed, on_notice=lambda version: None,
                              on_forged=lambda source, sender, agent: self.forged.append((sender, agent)))
        network.add(self)

    def start(self, at_once: bool = True) -> None:
        """Load the table if there is none, register, gossip."""
        self._stir()
        if at_once:
            self._beat(self._timer)
        else:
            self._beat_in(HEARTBEAT_S * self._random.random())
        if not len(self.table):
            self._load()

    def holds(self, gen: int, ver: int) -> None:
        """It is registered already, as the table that all begin with says."""
        self.gen, self.ver, self.is_registered = gen, ver, True

    def change(self, version: str) -> None:
        """The owner declares something new."""
        self.version = version
        self._register()

    def leave(self) -> None:
        """An orderly stop."""
        self.has_left = True
        message = LeaveRequest(agent_id=self.agent_id, instance=self.instance, gen=self.gen, ver=self.ver)
        self._ask_control(lambda control: control.leave(message), lambda _: None, lambda: None)

    # -- gossip

    def received(self, what: Any, source: str) -> None:
        if self._is_current():
            self.machine.receive(what, source, self.now_s, self.now_ms)
            self._stir()

    def send(self, address: str, datagram: Datagram) -> None:
        self._network.datagram(self, address, datagram, len(encode(datagram)) + OVERHEAD)

    def pull(self, address: str, agent_ids: list[str]) -> None:
        wanted = Transfer(sender=self.agent_id, want=tuple(agent_ids))
        self._network.request(self, address, lambda node: node.answer(wanted, self.name),
                              lambda got: self._learn(got.entries, address), lambda: None)

    def compare(self, address: str | None) -> None:
        target = self.controls[self._current] if address is None else address
        if target not in self.under_way_s:
            self.under_way_s.add(target)
            self._compare(target, MAX_ROUNDS)

    def answer(self, asked: Opening | Transfer, source: str) -> Any:
        """To a comparison that another node began."""
        if not self._is_current():
            raise ConnectionError("loads its table anew")
        if isinstance(asked, Opening):
            return differences(self.table, asked, self._random)
        self._learn(asked.entries, source, "told")
        return transferred(self.table, asked)

    def hello(self) -> str:
        return self.agent_id

    def look(self, address: str, agent_id: str, tell: Callable[[bool], None]) -> None:
        """Control asks: do you see that agent there?"""
        self._network.request(self, address, lambda node: node.hello() == agent_id, tell, lambda: tell(False), 1.0)

    def tick(self) -> None:
        if self.now_s + 1e-9 < self._tick_at:
            return  # an earlier timer has done it
        self._tick_at = float("inf")
        self._stir()

    # -- steps

    def _stir(self) -> None:
        self.table.expire(self.now_ms)
        wait_s = self.machine.tick(self.now_s) if self._is_current() else 1.0
        when_s = self.now_s + wait_s
        if when_s < self._tick_at:
            self._tick_at = when_s
            self.after(wait_s, self.tick)

    def _is_current(self) -> bool:
        return not self.absence.ended and not self.absence.is_too_long(self.now_s)

    def _hear_control(self) -> None:
        was_ended = self.absence.ended
        if self.absence.heard(self.now_s) and not was_ended:
            self._told_changes(self, self.table.clear())
            self.machine.forget_what_was_seen()
            self._load()

    def _load(self) -> None:
        def loaded(entries: list[Entry]) -> None:
            self.machine.learn(entries, "snapshot", "control", self.now_s, self.now_ms)
            self.absence.reset()

        self._ask_control(lambda control: control.whole_table(), loaded, lambda: self.after(1.0, self._load))

    def _compare(self, target: str, rounds: int) -> None:
        def done() -> None:
            self.under_way_s.discard(target)

        def found(differs: Any) -> None:
            if differs.same or not self._is_current():
                done()
                return
            ours = transfer(self.table, differs, self.agent_id, self._random)

            def got(answer: Any) -> None:
                self._learn(answer.entries, target)
                if is_all(differs, ours, answer) or rounds <= 1:
                    done()
                else:
                    self._compare(target, rounds - 1)

            size = 300 + sum(map(len, ours.entries))
            self._network.request(self, target, lambda node: node.answer(ours, self.name), got, done, size=size)

        asked = opening(self.table, self.agent_id)
        self._network.request(self, target, lambda node: node.answer(asked, self.name), found, done, size=2400)

    def _learn(self, packed: Any, source: str, how: How = "compared") -> None:
        entries, _ = unpack_entries(packed)
        self.machine.learn(entries, how, source, self.now_s, self.now_ms)
        self._stir()

    def _changed(self, changes: list[Change]) -> None:
        self._told_changes(self, changes)
        for _, after in changes:
            if after.agent_id == self.agent_id and self.is_registered and not self.has_left:
                if after.rank.value >= 2:
                    self._beat_in(0.0)
                elif after.gen > self.gen and after.owner not in ("", owner_of(self.instance)):
                    self.is_registered, self.refused = False, "fenced"

    # -- the owner's side

    def _beat_in(self, wait_s: float) -> None:
        self._timer += 1
        self.after(wait_s, self._beat, self._timer)

    def _beat(self, timer: int) -> None:
        if timer != self._timer or self.has_left:
            return
        if not self.is_registered:
            self._register()
            return
        message = HeartbeatRequest(agent_id=self.agent_id, instance=self.instance, gen=self.gen, ver=self.ver,
                                   flags=self.flags, healthy=True, load=Load(running=1, limit=4))
        self._ask_control(lambda control: control.heartbeat(message), self._renewed, self._not_heard)

    def _register(self) -> None:
        message = RegisterRequest(agent_id=self.agent_id, instance=self.instance, gen=self.gen, ver=self.ver,
                                  address=self.address, version=self.version, healthy=True, flags=self.flags,
                                  capabilities=(Capability(name="work"),))
        self._ask_control(lambda control: control.register(message), self._renewed, self._not_heard)

    def _renewed(self, answer: Any) -> None:
        if self.has_left:
            return
        self._hear_control()
        self._tried, self._backoff_s = 0, 0.1
        if isinstance(answer, Problem):
            self.is_registered = False
            self.refused = answer.code
            self._beat_in(0.0 if answer.code == "register_again" else 2.0 * (0.5 + self._random.random()))
            return
        self.gen, self.ver = answer.gen, answer.ver
        self.is_registered, self.refused = True, ""
        self._beat_in(HEARTBEAT_S * self._random.uniform(0.9, 1.1))

    def _not_heard(self) -> None:
        self._current = (self._current + 1) % len(self.controls)
        self._tried += 1
        if self._tried < len(self.controls):
            self._beat_in(0.0)
            return
        self._tried = 0
        self._beat_in(self._backoff_s * (0.5 + self._random.random()))
        self._backoff_s = min(5.0, 2 * self._backoff_s)

    def _ask_control(self, ask: Callable[[Any], Any], answered: Callable[[Any], None],
                     failed: Callable[[], None]) -> None:
        self._network.request(self, self.controls[self._current], ask, answered, failed, 5.0)


class AnyKey(Keyring):
    """Believes every signature: what is simulated is not cryptography, unless a test says so."""

    def knows(self, entry: Entry) -> bool:
        return bool(entry.signature)

    def verify(self, entry: Entry) -> bool:
        return True
