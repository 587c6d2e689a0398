"""Control nodes tell each other: what changed, and whom they heard of. The pure side; requests are made elsewhere.

Each node pushes to each other in its list, every 0.2 s while there is news and once a second otherwise: its changes
since what the other acknowledged, and the heartbeats it took since the last push. What a push cannot mend (a node that
was away, entries that were refused) shows as different root hashes while both are quiet, and is mended by a comparison.
Entries are verified before they are met; what is not newer than ours is not even verified.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from reach_control.registry.lease import Moment
from reach_control.registry.link import ANSWER_S, Link, Sent
from reach_control.registry.registry import Registry
from reach_core.messages import NodeAnswer, NodePush, unpack_entries
from reach_core.peer import Entry, pack_entry
from reach_core.table import Change

MOST_ENTRIES = 250
"""In one push: verifying takes 0.15 ms each, and heartbeats must not wait for it."""
MOST_STRANGERS = 16
STRANGER_S = 60.0  # how long one is shown that tells us nothing any more
ITSELF = "This address leads to this node itself. Take it out of the list of control nodes."
TWIN = "Another control node has this node's id: it runs with a copy of its state directory. Give it one of its own."


class NodeState(NamedTuple):
    """Another control node as seen from here. `behind_s`: how long it has been lacking something of ours; `differs_s`:
    how long the two tables have differed although each has told the other everything."""

    id: str
    url: str
    reachable: bool
    hash: str
    seq: int
    behind_s: float
    differs_s: float
    frozen: str
    trouble: str


class Exchange:
    """`own_id` must differ between nodes and `epoch` between starts; `own_url` is empty where others do not ask us.

    `verify` says whether a control node signed an entry. What of a push is not about the table (keys, the mesh's
    secret) is added and read by who sends and receives it. `unverified` counts entries that were not taken.
    """

    def __init__(
        self,
        registry: Registry,
        own_id: str,
        own_url: str,
        random: Random,
        *,
        epoch: str,
        verify: Callable[[Entry], bool],
    ) -> None:
        self.unverified = 0
        self._registry = registry
        self._own_id = own_id
        self._own_url = own_url
        self._random = random
        self._epoch = epoch
        self._verify = verify
        self._links: dict[str, Link] = {}
        self._strangers: dict[str, Link] = {}  # by node id: they tell us, we do not tell them

    def peers(self, urls: Iterable[str], now: Moment) -> None:
        """From now on these are told, and no others."""
        wanted = list(urls)
        self._links = {url: self._link(url, now) for url in wanted}

    def push(self, url: str, now: Moment) -> NodePush:
        """What is to be sent to that node now; `answered` or `failed` has to follow."""
        link, table = self._link(url, now), self._registry.table
        since = min(link.acked, table.seq)
        upto = min(since + MOST_ENTRIES, table.seq)
        entries = table.delta_since(since, upto)
        if entries is None:
            since = upto = table.seq
            link.take(link.received, True, now.s)  # our own past is lost: compare
        mark, renewals = self._registry.renewals(link.mark, now)
        link.push(Sent(upto, mark, now.s))
        return NodePush(
            node=self._own_id,
            url=self._own_url,
            epoch=self._epoch,
            since=since,
            seq=upto,
            hash=table.hash if upto == table.seq else "",
            agents=len(table),
            frozen=self._registry.frozen(now) or "",
            entries=[pack_entry(entry) for entry in entries or () if not link.is_echo(entry)],
            renewals=renewals,
        )

    def answered(self, url: str, answer: NodeAnswer, now: Moment) -> None:
        link, table = self._link(url, now), self._registry.table
        if answer.node == self._own_id:
            link.fail(ITSELF if answer.epoch == self._epoch else TWIN, self._random)
            return
        sent, link.sent = link.sent, None
        link.failures, link.trouble, link.is_reachable = 0, "", True
        if not link.meet(answer.node, answer.epoch, table.seq, now.s) and sent is not None:
            link.acked = max(link.acked, sent.seq)
        if sent is not None:
            link.mark = max(link.mark, sent.mark)
        if link.acked >= table.seq:
            link.level_s = now.s
        link.seq, link.agents, link.frozen = answer.seq, answer.agents, answer.frozen
        if answer.hash:
            link.hash = answer.hash
            link.see(table.hash, link.acked >= table.seq and link.received >= answer.seq, now.s)

    def failed(self, url: str, now: Moment, trouble: str = "It could not be reached.") -> None:
        """The push did not get through; `trouble` is a sentence for the operator."""
        self._link(url, now).fail(trouble, self._random)

    def receive(self, push: NodePush, now: Moment) -> tuple[NodeAnswer, list[Change]]:
        """Take in what another node tells. The answer says where our table is then."""
        table, link = self._registry.table, self._link_of(push, now)
        changes: list[Change] = []
        if push.node != self._own_id:
            entries = self._verified(push.entries)
            changes = self._registry.meet(entries, now)
            changes += self._registry.hear(push.renewals, now)
            if link is not None:
                link.meet(push.node, push.epoch, table.seq, now.s)
                for entry in entries:
                    link.heard(entry)
                link.take(push.seq, push.since > link.received, now.s)
                link.seq, link.agents, link.frozen = push.seq, push.agents, push.frozen
                if push.hash:
                    link.hash = push.hash
                    link.see(table.hash, link.acked >= table.seq, now.s)
        answer = NodeAnswer(
            node=self._own_id,
            url=self._own_url,
            epoch=self._epoch,
            seq=table.seq,
            hash=table.hash if push.hash else "",  # while more is to come, it is of no use and takes time
            agents=len(table),
            frozen=self._registry.frozen(now) or "",
        )
        return answer, changes

    def due_s(self, url: str, now: Moment) -> float:
        """Seconds until the next push to that node; ask again when something changed."""
        link, last = self._link(url, now), self._registry.table.seq
        if link.acked >= last and link.is_reachable:
            link.level_s = now.s
        return link.due_s(now.s, last, self._registry.has_renewals(link.mark), MOST_ENTRIES)

    def compare_due(self, url: str, now: Moment) -> bool:
        """Is a comparison with that node to be made now? If so, `compared` has to follow."""
        return self._link(url, now).is_compare_due(self._registry.table.seq, now.s)

    def compared(self, url: str, is_same: bool, now: Moment) -> None:
        """A comparison has ended. `is_same`: it found no difference. One that failed has found some."""
        self._link(url, now).compared(is_same, now.s)

    def nodes(self, now: Moment) -> list[NodeState]:
        """The other nodes, those in our list first."""
        self._forget_strangers(now.s)
        return [self._state(link, now.s) for link in (*self._links.values(), *self._strangers.values())]

    # -- steps

    def _link(self, url: str, now: Moment) -> Link:
        link = self._links.get(url)
        if link is None:
            link = self._links[url] = Link(url, self._registry.table.seq, now.s)
        return link

    def _link_of(self, push: NodePush, now: Moment) -> Link | None:
        """Of the node that tells: by its url if that is in our list, or by the id it answered with."""
        if push.node == self._own_id:
            return None
        link = self._links.get(push.url)
        if link is not None:
            return link
        for link in self._links.values():
            if link.node == push.node:
                return link
        self._forget_strangers(now.s)
        stranger = self._strangers.get(push.node)
        if stranger is None and len(self._strangers) < MOST_STRANGERS:
            stranger = self._strangers[push.node] = Link("", self._registry.table.seq, now.s)
            stranger.trouble = "It is not in this node's list of control nodes."
        if stranger is not None:
            stranger.level_s = now.s
        return stranger

    def _forget_strangers(self, now_s: float) -> None:
        """Those that fell silent, and those that turned out to be in our list under another name."""
        listed = {link.node for link in self._links.values()}
        self._strangers = {node: link for node, link in self._strangers.items()
                           if node not in listed and now_s - link.level_s < STRANGER_S}

    def _verified(self, packed: Iterable[bytes]) -> list[Entry]:
        entries, unreadable = unpack_entries(packed)
        self.unverified += unreadable
        verified = []
        for entry in entries:
            known = self._registry.table.get(entry.agent_id)
            if known is not None and entry.order <= known.order:
                continue
            if self._verify(entry):
                verified.append(entry)
            else:
                self.unverified += 1
        return verified

    def _state(self, link: Link, now_s: float) -> NodeState:
        is_level = link.acked >= self._registry.table.seq and link.is_reachable
        behind_s = 0.0 if is_level or not link.url else round(max(0.0, now_s - link.level_s), 3)
        trouble = link.trouble
        if not trouble and link.sent is not None and now_s - link.sent.at_s >= ANSWER_S:
            trouble = "It does not answer."
        is_different = bool(link.hash) and link.hash != self._registry.table.hash
        differs_s = round(max(0.0, now_s - link.same_s), 3) if is_different else 0.0
        return NodeState(link.node, link.url, link.is_reachable, link.hash, link.seq, behind_s, differs_s, link.frozen,
                         trouble)
