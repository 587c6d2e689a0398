"""The network between nodes: what is sent may come late, get lost, or not get through at all.

A datagram is lost with `loss`. A request over TCP is not lost but delayed (it is sent again after 200 ms); it fails after
its time-out where a partition, a pause or a dead node is in its way, and at once where nobody listens any more.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from sim.heap import Heap
from sim.node import Node

RESEND_S = 0.2


class Network:
    """`split` says which pairs cannot reach each other; `sent` and `bytes_out` count datagrams by sender."""

    def __init__(self, heap: Heap, random: Random, *, loss: float = 0.0, latency_s: tuple[float, float] = (0.001, 0.02),
                 udp: bool = True) -> None:
        self.loss = loss
        self.latency_s = latency_s
        self.udp = udp
        self.nodes: dict[str, Node] = {}
        self.is_cut: Callable[[str, str], bool] = lambda one, other: False
        self.datagrams = 0
        self.requests = 0
        self._heap = heap
        self._random = random

    def add(self, node: Node) -> None:
        """Whoever had the address before is no longer there."""
        self.nodes[node.address] = node

    def cut(self, *sides: set[str]) -> None:
        """Nodes (by name) of different sides cannot reach each other; those of none reach all."""
        side = {name: number for number, names in enumerate(sides) for name in names}

        def is_cut(one: str, other: str) -> bool:
            return one in side and other in side and side[one] != side[other]

        self.is_cut = is_cut

    def heal(self) -> None:
        """All can reach all again."""
        self.is_cut = lambda one, other: False

    def datagram(self, sender: Node, address: str, what: Any, size: int) -> None:
        self.datagrams += 1
        sender.datagrams_out += 1
        sender.bytes_out += size
        if self.udp and self._random.random() >= self.loss:
            self._heap.after(self._delay_s(), self._arrive, sender, address, what)

    def request(self, sender: Node, address: str, ask: Callable[[Any], Any], answered: Callable[[Any], None],
                failed: Callable[[], None], timeout_s: float = 3.0, size: int = 300) -> None:
        """`ask(node)` runs at the other node and gives the answer; an exception there is a failure here."""
        self.requests += 1
        sender.bytes_out += size
        state = {"open": True}

        def finish(callback: Callable[..., None], *arguments: Any) -> None:
            if state["open"]:
                state["open"] = False
                sender.soon(callback, *arguments)

        def arrive() -> None:
            node = self.nodes.get(address)
            if self.is_cut(sender.name, node.name if node else address):
                return  # silence, until the time-out
            if node is None or not node.alive:
                self._heap.after(self._delay_s(), finish, failed)
                return
            node.soon(serve, node)

        def serve(node: Node) -> None:
            node.under_way += 1
            node.most_under_way = max(node.most_under_way, node.under_way)
            try:
                answer = ask(node)
            except Exception:
                if not self.is_cut(node.name, sender.name):
                    self._heap.after(self._tcp_delay_s(), finish, failed)
            else:
                if not self.is_cut(node.name, sender.name):
                    self._heap.after(self._tcp_delay_s(), finish, answered, answer)
            finally:
                self._heap.after(0.002, node.served)

        self._heap.after(self._tcp_delay_s(), arrive)
        self._heap.after(timeout_s, finish, failed)

    def _arrive(self, sender: Node, address: str, what: Any) -> None:
        node = self.nodes.get(address)
        if node is not None and node.alive and not self.is_cut(sender.name, node.name):
            node.soon(node.received, what, sender.address)

    def _delay_s(self) -> float:
        return self._random.uniform(*self.latency_s)

    def _tcp_delay_s(self) -> float:
        delay_s = self._delay_s()
        while self._random.random() < self.loss:
            delay_s += RESEND_S
        return delay_s
