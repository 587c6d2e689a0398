"""Two tables made equal, step by step as over a network; and what a liar gets to do."""

import random
from collections.abc import Iterable

import pytest

from reach_control.nodes.tables import Tables
from reach_core.gossip.compare import CompareError, Transfer, Transferred, decode, encode
from reach_core.keyring import Keyring, Signer
from reach_core.peer import Entry, Rank, pack_entry
from reach_core.table import PeerTable

NOW_MS = 1_700_000_000_000


class Node:
    """`signer` signs what it has; `trusts` are the others."""

    def __init__(self, number: int) -> None:
        self.signer = Signer(bytes([number]) * 32)
        self.table = PeerTable()
        self.keyring = Keyring([self.signer.public])
        self.now_s = 1000.0
        self.forged: list[tuple[str, str]] = []
        self.met: list[int] = []
        self.tables = Tables(f"control-{number}", self.table, self.keyring, random.Random(number), self.meet,
                             lambda: self.now_s, lambda agent_id, source: self.forged.append((agent_id, source)))

    def meet(self, entries: list[Entry], is_hearsay: bool) -> None:
        self.hearsay = is_hearsay
        self.met.append(len(entries))
        self.table.merge(entries, NOW_MS)

    def has(self, *agent_ids: str, ver: int = 1) -> list[Entry]:
        entries = [self.signer.sign(entry(agent_id, ver)) for agent_id in agent_ids]
        self.table.merge(entries, NOW_MS)
        return entries

    async def ask(self, data: bytes) -> bytes:
        """What another node posts."""
        return self.tables.answer(data, "127.0.0.1")


def entry(agent_id: str, ver: int = 1) -> Entry:
    return Entry(agent_id=agent_id, gen=NOW_MS, ver=ver, rank=Rank.UP, address="h:1")


def tell(node: Node, entries: Iterable[Entry], want: Iterable[str] = ()) -> list[bytes]:
    packed = tuple(pack_entry(one) for one in entries)
    said = node.tables.answer(encode(Transfer(sender="me", entries=packed, want=tuple(want))), "10.0.0.1")
    return list(decode(Transferred, said).entries)


@pytest.fixture
def pair() -> tuple[Node, Node]:
    one, two = Node(1), Node(2)
    for node in (one, two):
        node.keyring.replace([one.signer.public, two.signer.public])
    return one, two


async def test_equal_tables_are_the_same(pair: tuple[Node, Node]) -> None:
    one, two = pair
    one.table.merge(two.has("a", "b"), NOW_MS)
    assert await one.tables.compare(two.ask, "two")
    assert one.tables.counts == {"asked": 1}


@pytest.mark.parametrize(("ours", "theirs"), [(0, 5), (5, 0), (3, 3), (0, 3000), (1500, 1500)])
async def test_both_end_up_with_both(pair: tuple[Node, Node], ours: int, theirs: int) -> None:
    one, two = pair
    one.has(*(f"one-{n}" for n in range(ours)))
    two.has(*(f"two-{n}" for n in range(theirs)))
    for _ in range(20):
        two.now_s += 10.0  # who is told takes in 200 entries a second
        if await one.tables.compare(two.ask, "two"):
            break
    assert one.table.hash == two.table.hash
    assert len(one.table) == ours + theirs
    assert not one.forged + two.forged


async def test_the_newer_one_stays_and_removals_travel(pair: tuple[Node, Node]) -> None:
    one, two = pair
    one.has("a", "b", ver=2)
    two.has("a", ver=3)
    gone = two.signer.sign(entry("b", 2).tombstone(NOW_MS))
    two.table.merge([gone], NOW_MS)
    assert not await one.tables.compare(two.ask, "two")
    assert await one.tables.compare(two.ask, "two")
    assert one.table.get("a") == entry("a", 3)
    assert one.table.get("b") == gone


def test_an_unknown_key_an_altered_entry_and_none_at_all_are_refused_and_counted() -> None:
    node, stranger = Node(1), Node(9)
    real = node.has("a")[0]
    altered = entry("a", 7)
    altered.__dict__["signature"] = real.signature
    tell(node, [stranger.signer.sign(entry("x")), altered, entry("unsigned")])
    assert node.met == []
    assert node.forged == [("a", "me")]
    assert node.tables.counts["entries_unknown_key"] == 2
    assert node.tables.counts["entries_forged"] == 1
    node.tables.answer(encode(Transfer(sender="me", entries=(b"", b"x" * 100))), "10.0.0.1")
    assert node.tables.counts["entries_unreadable"] == 2


def test_who_sends_too_much_is_not_verified_and_does_not_keep_others_out() -> None:
    node, other = Node(1), Node(2)
    node.keyring.replace([node.signer.public, other.signer.public])
    entries = [other.signer.sign(entry(f"a-{n}")) for n in range(600)]
    for start in range(0, 600, 200):
        tell(node, entries[start : start + 200])
    assert sum(node.met) == 200
    assert node.tables.counts["entries_unverified"] == 400
    packed = tuple(pack_entry(one) for one in entries[200:300])
    node.tables.answer(encode(Transfer(sender="else", entries=packed)), "10.0.0.2")
    assert sum(node.met) == 300
    node.now_s += 1.0
    tell(node, entries[300:500])
    assert sum(node.met) == 500


def test_a_liar_is_named_now_and_then_and_not_for_each_lie() -> None:
    node = Node(1)
    real = node.has("a")[0]
    for ver in range(2, 150):
        altered = entry("a", ver)
        altered.__dict__["signature"] = real.signature
        tell(node, [altered])
    assert node.tables.counts["entries_forged"] == 148
    assert node.forged == [("a", "me")]
    node.now_s += 10.0
    tell(node, [altered])
    assert len(node.forged) == 2


def test_what_cannot_be_verified_costs_its_sender_no_allowance() -> None:
    """Or else a node that lacks a key would take in nothing."""
    node, other = Node(1), Node(2)
    tell(node, [other.signer.sign(entry(f"x-{n}")) for n in range(200)])
    assert node.tables.counts["entries_unknown_key"] == 200
    mine = [node.signer.sign(entry(f"a-{n}")) for n in range(100)]
    tell(node, mine)
    assert node.met == [100]


def test_what_is_known_is_neither_verified_nor_met() -> None:
    node = Node(1)
    known = node.has("a", "b")
    assert tell(node, known) == []
    assert node.met == []
    assert not node.tables.counts["entries_unverified"]


def test_what_is_wanted_is_given_as_far_as_it_is_there() -> None:
    node = Node(1)
    (known,) = node.has("a")
    assert tell(node, [], want=["a", "nobody"]) == [pack_entry(known)]


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90", bytes(100)])
def test_nonsense_is_a_compare_error(data: bytes) -> None:
    with pytest.raises(CompareError):
        Node(1).tables.answer(data, "10.0.0.1")


@pytest.mark.parametrize("said", [b"", b"\x90", encode(Transferred())])
async def test_an_answer_that_is_none_is_one_too(said: bytes) -> None:
    async def post(_: bytes) -> bytes:
        return said

    with pytest.raises(CompareError):
        await Node(1).tables.compare(post, "two")


async def test_a_node_that_lies_about_its_table_ends_the_comparison_in_bounded_steps() -> None:
    """It says that everything differs and never gives anything."""
    one, liar = Node(1), Node(2)
    one.has(*(f"a-{n}" for n in range(50)))
    liar.has(*(f"b-{n}" for n in range(50)))
    asked = 0

    async def post(data: bytes) -> bytes:
        nonlocal asked
        asked += 1
        said = liar.tables.answer(data, "127.0.0.1")
        return said if asked % 2 else encode(Transferred())

    assert not await one.tables.compare(post, "liar")
    assert asked <= 40
