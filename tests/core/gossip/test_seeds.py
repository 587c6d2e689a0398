import random
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reach_core.gossip.datagram import MAX_DATAGRAM, Datagram, encode
from reach_core.gossip.seal import OVERHEAD
from reach_core.gossip.seeds import (
    BURST,
    MAX_BATCHES,
    MAX_LIFE_S,
    MAX_PUSHES,
    MAX_TRIED,
    MAX_WAITING,
    PUSH_TIMEOUT_S,
    RATE,
    Push,
    Seeds,
)
from reach_core.peer import Entry, Rank, unpack_entry, with_signature
from reach_core.table import PeerTable

NOW_MS = 1_700_000_000_000

Hears = Callable[[str, str], bool]
"""Does the sidecar of that agent take what comes as "udp" or "tcp"?"""


def agent(n: int, rank: Rank = Rank.UP, ver: int = 1, size: int = 0) -> Entry:
    """`size` characters of `version`."""
    made = Entry(agent_id=f"agent-{n}", gen=NOW_MS, ver=ver, rank=rank, address=f"h{n}:1", version="v" * size)
    return with_signature(made, bytes(range(72)))


def everybody(agent_id: str, how: str) -> bool:
    return True


def nobody(agent_id: str, how: str) -> bool:
    return False


def only_tcp(agent_id: str, how: str) -> bool:
    return how == "tcp"


class World:
    """Seeds in virtual time among `agents`."""

    def __init__(self, agents: Iterable[Entry], hears: Hears = everybody, seed: int = 1, fan_out: int = 4) -> None:
        self.table = PeerTable()
        self.table.merge(agents, NOW_MS)
        self.seeds = Seeds(self.table, random.Random(seed), "control", fan_out)
        self.hears = hears
        self.now_s = 1000.0
        self.sends: list[tuple[float, str, Datagram]] = []
        self.pushes: list[tuple[float, Push]] = []
        self.heard: dict[str, set[str]] = {}  # by agent that the news is about
        self._ids = {entry.address: entry.agent_id for entry in self.table}

    def tell(self, *entries: Entry) -> None:
        self.table.merge(entries, NOW_MS)
        self.seeds.add(entries, self.now_s)

    def tick(self) -> float | None:
        """One, and what comes of it; seconds until the next."""
        due = self.seeds.tick(self.now_s)
        for address, one in due.sends:
            self.sends.append((self.now_s, address, one))
            if self.hears(self._ids[address], "udp"):
                told = [unpack_entry(packed).agent_id for packed in one.entries] + [hint.agent_id for hint in one.hints]
                self._note(self._ids[address], told)
                self.seeds.acknowledged(one.number, self._ids[address])
        for push in due.pushes:
            self.pushes.append((self.now_s, push))
            if self.hears(push.agent_id, "tcp"):
                self._note(push.agent_id, [entry.agent_id for entry in push.entries])
                self.seeds.acknowledged(push.number, push.agent_id)
            else:
                self.seeds.failed(push.number, push.agent_id, self.now_s)
        return 0.0 if due.pushes else due.next_s  # whoever reports on a push asks again

    def run(self, most_s: float = 120.0) -> float:
        """Until nothing is under way; how long that took."""
        begun_s = self.now_s
        for _ in range(100_000):
            next_s = self.tick()
            if next_s is None or not (len(self.seeds) or self.seeds.waiting):
                return self.now_s - begun_s
            self.now_s += next_s
            if self.now_s - begun_s > most_s:
                break
        raise AssertionError(f"it does not come to rest: {len(self.seeds)} batches, {self.seeds.waiting} wait")

    def per_second(self) -> int:
        """Datagrams and pushes in the second that had the most."""
        at = sorted([at_s for at_s, *_ in self.sends] + [at_s for at_s, _ in self.pushes])
        most, first = 0, 0
        for last, at_s in enumerate(at):
            while at[first] <= at_s - 1.0:
                first += 1
            most = max(most, last - first + 1)
        return most

    def _note(self, who: str, about: list[str]) -> None:
        for agent_id in about:
            self.heard.setdefault(agent_id, set()).add(who)


def agents(count: int) -> list[Entry]:
    return [agent(n) for n in range(count)]


def test_a_change_goes_to_four_at_once_and_that_is_all() -> None:
    world = World(agents(20))
    world.tell(agent(3, ver=2))
    assert world.run() == 0.0
    assert len({address for _, address, _ in world.sends}) == len(world.sends) == 4
    assert {unpack_entry(one.entries[0]) for _, _, one in world.sends} == {agent(3, ver=2)}
    assert all(one.number > 0 for _, _, one in world.sends)
    assert world.seeds.tick(world.now_s).next_s is None, "whoever has nothing to say need not wake up"


def test_changes_that_come_together_go_together_in_their_order() -> None:
    world = World(agents(20))
    told = [agent(n, ver=2) for n in (5, 2, 9)]
    world.tell(*told)
    world.run()
    assert len(world.sends) == 4
    assert [unpack_entry(packed) for packed in world.sends[0][2].entries] == told


@pytest.mark.parametrize(
    ("hears", "sends_at", "pushes_at"),
    [
        (everybody, [0.0], []),
        (only_tcp, [0.0, 0.2], [0.6]),
        (nobody, [0.0, 0.2, 0.6, 0.8, 1.2, 1.4, 1.8, 2.0], [0.6, 1.2, 1.8, 2.4]),
    ],
    ids=["everybody", "no udp", "nobody"],
)
def test_when_it_is_sent(hears: Hears, sends_at: list[float], pushes_at: list[float]) -> None:
    """To one at a time here, with three more sidecars to take its place."""
    world = World(agents(5), hears, fan_out=1)
    world.tell(agent(4, ver=2))
    world.run()
    assert [round(at_s - 1000, 6) for at_s, *_ in world.sends[:8]] == sends_at
    assert [round(at_s - 1000, 6) for at_s, _ in world.pushes[:4]] == pushes_at


def test_who_does_not_take_it_is_replaced_until_eight_were_tried() -> None:
    world = World(agents(30), nobody)
    world.tell(agent(3, ver=2))
    world.run()
    tried = {address for _, address, _ in world.sends}
    assert len(tried) == MAX_TRIED == len(world.pushes)
    assert "h3:1" not in tried
    assert len(world.sends) == 2 * MAX_TRIED
    assert (world.seeds.unheard, world.seeds.dropped) == (1, 1)
    assert world.seeds.counts["replaced"] == 4


def test_a_push_of_which_nobody_says_anything_counts_as_failed() -> None:
    world = World(agents(9))
    world.tell(agent(3, ver=2))
    at_s = 0.0
    pushed = 0
    while (next_s := (due := world.seeds.tick(at_s)).next_s) is not None:
        pushed += len(due.pushes)
        at_s += next_s
    assert pushed == MAX_TRIED
    assert at_s == pytest.approx(2 * (0.6 + PUSH_TIMEOUT_S))
    assert world.seeds.unheard == 1


def test_late_double_and_foreign_acknowledgements_do_no_harm() -> None:
    world = World(agents(20), nobody)
    world.tell(agent(3, ver=2))
    world.tick()
    _, address, one = world.sends[0]
    who = f"agent-{address[1:-2]}"
    for number, sender in [(one.number, who), (one.number, who), (one.number + 1, who), (0, who), (one.number, "agent-3")]:
        world.seeds.acknowledged(number, sender)
        world.seeds.failed(number + 1, sender, world.now_s)
    assert world.seeds.counts["acknowledged"] == 1
    world.hears = everybody
    world.run()
    assert world.seeds.counts["acknowledged"] == 4
    world.seeds.acknowledged(one.number, who)
    assert world.seeds.counts["acknowledged"] == 4


def test_what_only_a_stranger_acknowledged_counts_as_unheard() -> None:
    world = World(agents(20), nobody)
    world.tell(agent(3, ver=2))
    world.tick()
    world.seeds.acknowledged(world.sends[0][2].number, "stranger")
    world.run()
    assert world.seeds.unheard == 1


def test_places_for_tcp_are_for_what_nobody_has_heard() -> None:
    """One of each four answers, the others hang: places are taken for 3 s each, and what was heard waits for none. So
    the longest that anything takes is one sidecar after the other, which is replaced four times."""
    told: set[int] = set()
    world = World(agents(300), nobody)
    world.seeds.add(STORM[:1000], world.now_s)
    begun_s = world.now_s
    while (next_s := (due := world.seeds.tick(world.now_s)).next_s) is not None:
        for address, one in due.sends:
            if one.number not in told:
                told.add(one.number)
                world.seeds.acknowledged(one.number, f"agent-{address[1:-2]}")
        world.now_s += next_s
    assert world.seeds.unheard == 0
    assert world.now_s - begun_s < 5 * (0.6 + PUSH_TIMEOUT_S) + 1


def test_numbers_of_an_earlier_process_are_not_used_again() -> None:
    first = set()
    for seed in range(20):
        world = World(agents(5), seed=seed)
        world.tell(agent(3, ver=2))
        world.run()
        first |= {one.number for _, _, one in world.sends}
    assert len(first) == 20


@pytest.mark.parametrize(
    ("mesh", "about", "told"),
    [
        ([agent(0)], [agent(0, ver=2)], {"h0:1"}),
        ([agent(0), agent(1)], [agent(0, ver=2)], {"h0:1", "h1:1"}),
        ([agent(0), agent(1)], [agent(0, Rank.DOWN)], {"h1:1"}),
        ([agent(0)], [agent(0, Rank.DOWN)], set()),
        (agents(5), [agent(0, Rank.SUSPECT)], {"h1:1", "h2:1", "h3:1", "h4:1"}),
        (agents(6), [agent(n, Rank.SUSPECT) for n in range(2)], {"h2:1", "h3:1", "h4:1", "h5:1"}),
        ([*agents(5), *(agent(n, Rank.SUSPECT) for n in range(5, 90))], [agent(0, ver=2)],
         {"h1:1", "h2:1", "h3:1", "h4:1"}),
        ([agent(0), *(agent(n, Rank.DOWN) for n in range(1, 9))], [agent(1, Rank.DOWN)], {"h0:1"}),
        ([agent(0), agent(1), agent(2, Rank.SUSPECT)], [agent(0).tombstone(NOW_MS)], {"h1:1", "h2:1"}),
    ],
    ids=["alone", "pair", "other is down", "alone and down", "suspect", "two suspects", "of many suspects", "one is left",
         "removed"],
)  # fmt: skip
def test_who_is_told(mesh: list[Entry], about: list[Entry], told: set[str]) -> None:
    """Those that are well and others than it is about first; those that are down not at all."""
    for seed in range(5):
        world = World(mesh, seed=seed)
        world.tell(*about)
        world.run()
        assert {address for _, address, _ in world.sends} == told


def test_everybody_is_told_about_as_often() -> None:
    world = World(agents(50))
    for turn in range(500):
        world.tell(agent(turn % 50, ver=2 + turn))
        world.now_s += 1 + world.run()
    told = Counter(address for _, address, _ in world.sends)
    assert len(told) == 50
    assert 20 <= min(told.values()) <= max(told.values()) <= 70  # 40 each on average


def test_of_several_changes_of_an_agent_that_wait_the_last_is_told() -> None:
    world = World(agents(20))
    world.tell(agent(3, ver=2), agent(4, ver=2), agent(3, ver=4))
    world.tell(agent(3, ver=3))
    world.run()
    told = {unpack_entry(packed) for _, _, one in world.sends for packed in one.entries}
    assert told == {agent(4, ver=2), agent(3, ver=4)}


def test_what_is_too_large_goes_as_a_hint_and_over_tcp_whole() -> None:
    world = World(agents(20), only_tcp)
    large = agent(3, ver=2, size=3000)
    world.tell(large)
    world.run()
    assert all(len(one.hints) == 1 and not one.entries for _, _, one in world.sends)
    assert {push.entries for _, push in world.pushes} == {(large,)}


def test_a_version_of_what_holds_mesh_wide_is_told_by_whatever_is_sent() -> None:
    world = World(agents(20))
    world.seeds.announce(7, world.now_s)
    world.tell(agent(3, ver=2))
    world.run()
    assert [(one.notice, len(one.entries)) for _, _, one in world.sends] == [(7, 1)] * 4
    world.seeds.announce(9, world.now_s)
    world.seeds.announce(8, world.now_s)
    world.run()
    assert [(one.notice, len(one.entries)) for _, _, one in world.sends[4:]] == [(9, 0)] * 4


def test_a_version_is_not_told_over_tcp_where_it_would_say_nothing() -> None:
    world = World(agents(20), only_tcp)
    world.seeds.announce(7, world.now_s)
    world.run()
    assert not world.pushes
    assert len({address for _, address, _ in world.sends}) == MAX_TRIED


STORM = [agent(n, ver=2) for n in range(10_000)]


@pytest.mark.parametrize("hears", [everybody, only_tcp, nobody], ids=["everybody", "no udp", "nobody"])
def test_a_storm_of_ten_thousand_changes_is_bounded(hears: Hears) -> None:
    world = World(agents(300), hears)
    world.seeds.add(STORM, world.now_s)
    assert world.seeds.waiting == MAX_WAITING
    lasted_s = world.run()
    assert world.per_second() <= RATE + BURST
    largest = max(len(encode(one)) + OVERHEAD for _, _, one in world.sends)
    assert largest <= MAX_DATAGRAM
    counts = world.seeds.counts
    assert counts["datagrams"] == len(world.sends)
    assert counts["bytes"] == sum(len(encode(one)) + OVERHEAD for _, _, one in world.sends)
    assert counts["pushes"] == len(world.pushes)
    if hears is everybody:
        assert lasted_s < 4
        assert len(world.heard) == MAX_WAITING
        assert min(map(len, world.heard.values())) == 4
        assert counts["left_to_comparison"] == len(STORM) - MAX_WAITING
        assert not counts["pushes"]
    else:
        assert len(world.heard) + counts["left_to_comparison"] == len(STORM)
        assert lasted_s < 60


def test_every_other_datagram_lost_in_a_storm_and_nothing_is_unheard() -> None:
    lost = random.Random(7)
    world = World(agents(300), lambda agent_id, how: how == "tcp" or lost.random() < 0.5)
    world.seeds.add(STORM[:MAX_WAITING], world.now_s)
    world.run()
    assert world.per_second() <= RATE + BURST
    assert len(world.heard) + world.seeds.dropped == MAX_WAITING
    assert world.seeds.dropped <= MAX_WAITING * 0.1


@pytest.mark.parametrize("hears", [everybody, only_tcp, nobody], ids=["everybody", "no udp", "nobody"])
def test_one_change_does_not_wait_behind_a_storm(hears: Hears) -> None:
    world = World(agents(300), hears)
    world.seeds.add(STORM, world.now_s)
    until_s = world.now_s + 1.0
    while world.now_s < until_s:
        world.now_s += world.tick() or 0.0
    world.tell(agent(7, Rank.DOWN, ver=3))
    begun_s = world.now_s
    while world.now_s < begun_s + 0.2:
        world.now_s += world.tick() or 0.0
    told = [at_s - begun_s for at_s, _, one in world.sends
            if agent(7, Rank.DOWN, ver=3) in map(unpack_entry, one.entries)]
    assert len(told) >= 4
    assert told[3] <= 0.05


def test_no_more_batches_are_under_way_than_it_says_and_those_heard_make_room() -> None:
    """Half of the sidecars are gone: every batch has somebody who never answers."""
    world = World(agents(300), lambda agent_id, how: int(agent_id[6:]) % 2 == 0)
    world.seeds.add(STORM[:MAX_WAITING], world.now_s)
    most = 0
    while (next_s := world.tick()) is not None and len(world.seeds):
        most = max(most, len(world.seeds))
        assert len(world.seeds._pushing) <= MAX_PUSHES
        world.now_s += next_s
    assert most <= MAX_BATCHES
    assert len(world.heard) >= MAX_WAITING * 0.9
    assert len(world.heard) + world.seeds.dropped == MAX_WAITING


def test_pushes_that_hang_take_only_their_places() -> None:
    world = World(agents(300), nobody)
    world.seeds.add(STORM[:600], world.now_s)
    begun_s = world.now_s
    under_way: dict[tuple[int, str], float] = {}
    for _ in range(20_000):
        due = world.seeds.tick(world.now_s)
        under_way = {push: until_s for push, until_s in under_way.items() if until_s > world.now_s}
        under_way |= {(push.number, push.agent_id): world.now_s + PUSH_TIMEOUT_S for push in due.pushes}
        assert len(under_way) <= MAX_PUSHES
        if due.next_s is None:
            break
        world.now_s += due.next_s
    assert not len(world.seeds), "news that nobody takes is told no more after a while"
    assert world.now_s - begun_s <= MAX_LIFE_S + PUSH_TIMEOUT_S


def test_with_nobody_to_tell_nothing_waits() -> None:
    world = World([])
    world.seeds.add(STORM, world.now_s)
    world.seeds.announce(3, world.now_s)
    assert world.seeds.tick(world.now_s).sends == []
    assert world.seeds.waiting == len(world.seeds) == 0
    assert world.seeds.tick(world.now_s).next_s is None


acts = st.lists(
    st.tuples(
        st.sampled_from(["tell", "storm", "announce", "wait"]),
        st.integers(0, 29),
        st.sampled_from([Rank.UP, Rank.SUSPECT, Rank.DOWN]),
        st.floats(0, 1),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=60)
@given(acts, st.integers(0, 2**32), st.floats(0, 1), st.floats(0, 1))
def test_whatever_happens_it_comes_to_rest_within_its_bounds(
    told: list[tuple[str, int, Rank, float]], seed: int, udp: float, tcp: float
) -> None:
    chance = random.Random(seed)
    world = World(agents(30), lambda agent_id, how: chance.random() < (udp if how == "udp" else tcp), seed)
    changed: set[str] = set()
    for ver, (what, n, rank, pause_s) in enumerate(told, start=2):
        if what == "announce":
            world.seeds.announce(ver, world.now_s)
        elif what == "wait":
            world.now_s += pause_s
        else:
            news = [agent(m % 30, rank, ver) for m in range(n, n + (25 if what == "storm" else 1))]
            changed |= {entry.agent_id for entry in news}
            world.tell(*news)
        world.tick()
    world.run()
    assert len(world.seeds) == world.seeds.waiting == 0
    assert world.per_second() <= RATE + BURST
    assert set(world.heard) <= changed
    about_itself = [address for _, address, one in world.sends
                    if [f"h{unpack_entry(e).agent_id[6:]}:1" for e in one.entries] == [address]]
    if len([entry for entry in world.table if entry.rank <= Rank.SUSPECT]) > 5:
        assert not about_itself or any(rank == Rank.DOWN for _, _, rank, _ in told)
