"""Several control nodes that tell each other, in virtual time; what is on the wire really is encoded."""

import random
from collections.abc import Callable, Iterable, Sequence

from harness.owners import Owners

from reach_control.registry.exchange import Exchange
from reach_core.keyring import Keyring, Signer
from reach_core.messages import NodeAnswer, NodePush, decode, encode
from reach_core.peer import Entry


class Nodes:
    """`owners[n]` is the registry of node n, `exchanges[n]` its exchange with all others. All share one time."""

    def __init__(self, count: int, seed: int = 1, ahead_ms: Sequence[int] = (0, 0, 0)) -> None:
        self.owners = [Owners(seed=seed + n, ahead_ms=ahead_ms[n]) for n in range(count)]
        self.signers = [Signer(bytes([n]) * 32) for n in range(count)]
        self.keyring = Keyring(signer.public for signer in self.signers)
        self.starts = 0
        self.exchanges: list[Exchange] = []
        self.pushes: list[NodePush] = []
        self.compared: list[tuple[int, int]] = []
        for n in range(count):
            self.sign(n)
            self.exchanges.append(self.make(n))

    def sign(self, n: int) -> None:
        self.owners[n].registry._ledger._sign = self.signers[n].sign

    def make(self, n: int) -> Exchange:
        """A new start of node n."""
        self.starts += 1
        owners = self.owners[n]
        exchange = Exchange(
            owners.registry, f"node-{n}", url(n), random.Random(n), epoch=f"e{self.starts}", verify=self.keyring.verify
        )
        exchange.peers([url(other) for other in range(len(self.owners)) if other != n], owners.now)
        return exchange

    def restart(self, n: int, noted: Iterable[Entry]) -> None:
        """Node n dies and starts again, with these notes."""
        before = self.owners[n]
        self.owners[n] = Owners(at_s=before.at_s, seed=self.starts, ahead_ms=before.ahead_ms)
        self.sign(n)
        self.owners[n].registry.restore(noted, self.owners[n].now)
        self.exchanges[n] = self.make(n)

    def push(self, a: int, b: int, is_heard: bool = True, is_answered: bool = True) -> None:
        now = self.owners[a].now
        push = self.exchanges[a].push(url(b), now)
        self.pushes.append(push)
        if is_heard:
            answer, changes = self.exchanges[b].receive(decode(NodePush, encode(push)), now)
            self.owners[b].note(changes)
        if is_heard and is_answered:
            self.exchanges[a].answered(url(b), decode(NodeAnswer, encode(answer)), now)
        else:
            self.exchanges[a].failed(url(b), now)

    def compare(self, a: int, b: int) -> None:
        """Both end up with both, as after a comparison of their tables."""
        one, other = self.owners[a], self.owners[b]
        is_same = one.registry.table.hash == other.registry.table.hash
        entries = list(one.registry.table.entries(tombstones=True))
        one.note(one.registry.meet(list(other.registry.table.entries(tombstones=True)), one.now))
        other.note(other.registry.meet(entries, other.now))
        self.compared.append((a, b))
        self.exchanges[a].compared(url(b), is_same, one.now)

    def run(self, seconds: float, is_cut: Callable[[int, int], bool] = lambda a, b: False, step_s: float = 0.1) -> None:
        """Let time pass: everybody ticks, pushes and compares when it is due."""
        for _ in range(round(seconds / step_s)):
            for a, owners in enumerate(self.owners):
                owners.at_s += step_s
                owners.tick()
                for b in range(len(self.owners)):
                    if a != b and self.exchanges[a].due_s(url(b), owners.now) <= 0:
                        self.push(a, b, is_heard=not is_cut(a, b))
                    if a != b and not is_cut(a, b) and self.exchanges[a].compare_due(url(b), owners.now):
                        self.compare(a, b)

    def hashes(self) -> set[str]:
        return {owners.registry.table.hash for owners in self.owners}


def url(n: int) -> str:
    return f"http://node-{n}"
