import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.peer import TOMBSTONE_LIFE_MS, Entry, Rank
from reach_core.table import BUCKETS, MAX_AHEAD_MS, Change, PeerTable, bucket_of

NOW_MS = 1_700_000_000_000
IDS = [f"agent-{n}" for n in range(6)]


def entry(agent_id: str = "a", gen: int = NOW_MS, ver: int = 1, rank: Rank = Rank.UP, address: str = "h:1") -> Entry:
    return Entry(agent_id=agent_id, gen=gen, ver=ver, rank=rank, address=address)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    live = entry(
        draw(st.sampled_from(IDS)),
        gen=NOW_MS + draw(st.integers(0, 3)),
        ver=draw(st.integers(0, 3)),
        rank=Rank(draw(st.integers(0, 3))),
        address=draw(st.sampled_from(["h:1", "h:2"])),
    )
    if draw(st.integers(0, 3)) == 0:
        return live.tombstone(NOW_MS + draw(st.integers(0, 2)), Rank(draw(st.integers(4, 5))))
    return live


def contents(table: PeerTable) -> dict[str, bytes]:
    return {e.agent_id: e.encoded for e in table.entries(tombstones=True)}


@given(st.lists(entries(), max_size=40), st.integers(0, 2**32))
def test_any_order_repetition_and_batching_gives_the_same_table_and_hash(told: list[Entry], seed: int) -> None:
    rng = random.Random(seed)
    one = PeerTable()
    one.merge(told, NOW_MS)

    other = PeerTable()
    again = told + rng.choices(told, k=len(told)) if told else []
    rng.shuffle(again)
    while again:
        size = rng.randint(1, len(again))
        other.merge(again[:size], NOW_MS)
        again = again[size:]

    assert contents(one) == contents(other)
    assert one.hash == other.hash
    assert one.buckets() == other.buckets()
    assert len(one) == len(other) == sum(1 for _ in one)
    for agent_id, encoded in contents(one).items():
        best = max((e for e in told if e.agent_id == agent_id), key=lambda e: e.order)
        assert encoded == best.encoded


@given(st.lists(entries(), max_size=20), st.lists(entries(), max_size=20), st.lists(entries(), max_size=20))
def test_tables_merge_associatively(a: list[Entry], b: list[Entry], c: list[Entry]) -> None:
    def joined(*parts: list[Entry]) -> PeerTable:
        table = PeerTable()
        for part in parts:
            table.merge(part, NOW_MS)
        return table

    def everything(table: PeerTable) -> list[Entry]:
        return list(table.entries(tombstones=True))

    left = joined(everything(joined(a, b)), c)
    right = joined(a, everything(joined(b, c)))
    assert left.hash == right.hash == joined(c, b, a).hash
    assert left.merge(everything(left), NOW_MS) == []


@given(st.lists(st.lists(entries(), max_size=8), max_size=8))
def test_a_reader_that_follows_deltas_holds_the_same_table(batches: list[list[Entry]]) -> None:
    source, reader, seen = PeerTable(), PeerTable(), 0
    for batch in batches:
        source.merge(batch, NOW_MS)
        delta = source.delta_since(seen)
        assert delta is not None
        assert len({e.agent_id for e in delta}) == len(delta)
        reader.merge(delta, NOW_MS)
        seen = source.seq
        assert source.delta_since(seen) == []
        assert reader.hash == source.hash


def test_a_tombstone_wins_over_older_live_entries_and_a_new_registration_over_it() -> None:
    table = PeerTable()
    live = entry()
    assert table.merge([live], NOW_MS) == [Change(None, live)]
    stone = live.tombstone(NOW_MS)
    assert table.merge([stone], NOW_MS) == [Change(live, stone)]
    assert table.merge([live, entry(rank=Rank.DOWN)], NOW_MS) == []
    assert list(table) == []
    assert len(table) == 0
    assert table.tombstones == 1
    assert table.get("a") == stone

    back = entry(gen=NOW_MS + 1)
    assert table.merge([back], NOW_MS) == [Change(stone, back)]
    assert list(table) == [back]
    assert table.tombstones == 0


def test_a_sequence_that_is_not_ours_gives_no_delta() -> None:
    table = PeerTable()
    table.merge([entry()], NOW_MS)
    assert table.delta_since(2) is None
    assert table.delta_since(-1) is None
    assert table.delta_since(0) == [entry()]


def test_a_delta_can_stop_at_what_may_be_seen() -> None:
    table = PeerTable()
    table.merge([entry("a"), entry("b")], NOW_MS)
    seen = table.seq
    table.merge([entry("a", ver=2), entry("c")], NOW_MS)
    assert table.delta_since(0, seen) == [entry("b")]
    assert table.delta_since(seen, table.seq) == [entry("a", ver=2), entry("c")]


def test_what_comes_from_a_broken_clock_is_refused() -> None:
    table = PeerTable()
    assert table.merge([entry(gen=NOW_MS + MAX_AHEAD_MS + 1)], NOW_MS) == []
    assert table.merge([entry().tombstone(NOW_MS + MAX_AHEAD_MS + 1)], NOW_MS) == []
    assert table.refused["ahead"] == 2
    assert table.merge([entry(gen=NOW_MS + MAX_AHEAD_MS)], NOW_MS)


def test_an_entry_that_is_too_large_is_refused() -> None:
    table = PeerTable()
    assert table.merge([entry(address="h" * 4096)], NOW_MS) == []
    assert table.refused["too_large"] == 1


def test_tombstones_go_at_their_deadline() -> None:
    table = PeerTable()
    empty = table.hash
    stone, later = entry("a").tombstone(NOW_MS), entry("b").tombstone(NOW_MS + 500)
    table.merge([later, stone, entry("c")], NOW_MS)
    assert table.expire(NOW_MS) == NOW_MS + TOMBSTONE_LIFE_MS
    assert table.tombstones == 2
    assert table.expire(NOW_MS + TOMBSTONE_LIFE_MS) == NOW_MS + TOMBSTONE_LIFE_MS + 500
    assert table.get("a") is None
    assert table.merge([stone], NOW_MS + TOMBSTONE_LIFE_MS) == []
    assert table.refused["expired"] == 1
    assert table.expire(NOW_MS + TOMBSTONE_LIFE_MS + 500) is None
    assert [e.agent_id for e in table.entries(tombstones=True)] == ["c"]
    assert table.hash != empty
    table.merge([entry("c").tombstone(NOW_MS)], NOW_MS)
    table.expire(NOW_MS + TOMBSTONE_LIFE_MS)
    assert table.hash == empty


def test_a_replaced_tombstone_does_not_expire_its_successor() -> None:
    table = PeerTable()
    table.merge([entry().tombstone(NOW_MS)], NOW_MS)
    table.merge([entry(gen=NOW_MS + 1)], NOW_MS)
    assert table.expire(NOW_MS + 2 * TOMBSTONE_LIFE_MS) is None
    assert len(table) == 1


def test_bounds() -> None:
    table = PeerTable(max_entries=3, max_tombstones=2)
    table.merge([entry(f"a{n}") for n in range(5)], NOW_MS)
    assert len(table) == 3
    assert table.refused["full"] == 2
    assert table.merge([entry("a0", ver=2)], NOW_MS)  # a known agent may still change
    table.merge([entry(f"t{n}").tombstone(NOW_MS + n) for n in range(5)], NOW_MS)
    assert table.tombstones == 2
    assert {e.agent_id for e in table.entries(tombstones=True)} == {"a0", "a1", "a2", "t3", "t4"}


def test_comparison_leads_to_the_entries_that_differ() -> None:
    ours, theirs = PeerTable(), PeerTable()
    everyone = [entry(f"agent-{n}") for n in range(500)]
    ours.merge(everyone, NOW_MS)
    theirs.merge(everyone, NOW_MS)
    assert ours.hash == theirs.hash
    theirs.merge([entry("agent-7", ver=2)], NOW_MS)
    assert ours.hash != theirs.hash
    different = [n for n in range(BUCKETS) if ours.buckets()[n] != theirs.buckets()[n]]
    assert different == [bucket_of("agent-7")]
    a, b = ours.digests(different[0]), theirs.digests(different[0])
    assert [agent_id for agent_id in a if a[agent_id] != b[agent_id]] == ["agent-7"]


@pytest.mark.parametrize("rank", list(Rank)[:4])
def test_a_renewed_entry_changes_nothing(rank: Rank) -> None:
    table = PeerTable()
    table.merge([entry(rank=rank)], NOW_MS)
    before = table.seq, table.hash
    assert table.merge([entry(rank=rank)], NOW_MS + 10_000) == []
    assert (table.seq, table.hash) == before


def many(count: int) -> list[Entry]:
    return [entry(f"agent-{n}") for n in range(count)]


def test_a_fork_goes_its_own_way() -> None:
    base = PeerTable()
    base.merge([*many(500), entry("gone").tombstone(NOW_MS)], NOW_MS)
    fork = base.fork()
    assert (fork.hash, fork.buckets(), len(fork), fork.tombstones) == (base.hash, base.buckets(), 500, 1)

    fork.merge([entry("agent-7", ver=2), entry("new")], NOW_MS)
    base.merge([entry("agent-8", ver=2)], NOW_MS)

    assert contents(base) != contents(fork)
    assert base.get("new") is None
    assert [fork.get(name).ver for name in ("agent-7", "agent-8")] == [2, 1]  # type: ignore[union-attr]
    assert [base.get(name).ver for name in ("agent-7", "agent-8")] == [1, 2]  # type: ignore[union-attr]
    fork.merge(base.entries(tombstones=True), NOW_MS)
    base.merge(fork.entries(tombstones=True), NOW_MS)
    assert base.hash == fork.hash
    assert fork.expire(NOW_MS + TOMBSTONE_LIFE_MS) is None
    assert (fork.tombstones, base.tombstones) == (0, 1)


def test_a_fork_knows_what_changed_since_it_was_made() -> None:
    base = PeerTable()
    base.merge(many(10), NOW_MS)
    fork = base.fork()
    made = fork.seq
    fork.merge([entry("agent-3", ver=2)], NOW_MS)
    assert [one.agent_id for one in fork.delta_since(made) or []] == ["agent-3"]
    assert {one.agent_id for one in fork.delta_since(0) or []} == {one.agent_id for one in many(10)}
    assert fork.delta_since(made - 1) is None


def test_a_cleared_table_is_empty_and_says_what_went() -> None:
    table = PeerTable()
    table.merge([*many(3), entry("gone").tombstone(NOW_MS)], NOW_MS)
    seq = table.seq
    gone = table.clear()
    assert [(change.before.rank, change.after.is_tombstone) for change in gone if change.before] == [(Rank.UP, True)] * 3
    assert (len(table), table.tombstones, table.hash) == (0, 0, PeerTable().hash)
    assert table.delta_since(seq) is None
    table.merge(many(2), NOW_MS)
    assert len(table.delta_since(0) or []) == 2


@pytest.mark.parametrize("count", [1, 3, 20, 64, 65, 300, 5_000])
def test_agents_are_drawn_alike_and_none_twice(count: int) -> None:
    table, random_ = PeerTable(), random.Random(count)
    table.merge(many(count), NOW_MS)
    table.merge([entry("down", rank=Rank.DOWN), entry("gone").tombstone(NOW_MS)], NOW_MS)
    drawn: dict[str, int] = {}
    draws = 20 * count
    for _ in range(draws):
        found = [one.agent_id for one in table.random_entries(4, random_, exclude=("agent-0",))]
        assert len(set(found)) == len(found) == min(4, count - 1)
        for name in found:
            drawn[name] = drawn.get(name, 0) + 1
    assert not drawn.keys() & {"agent-0", "down", "gone"}
    if count > 4:
        expected = draws * 4 / (count - 1)
        assert all(0.4 * expected < drawn.get(f"agent-{n}", 0) < 1.7 * expected for n in range(1, count))


def test_orders_tell_which_side_of_a_comparison_is_newer() -> None:
    table = PeerTable()
    table.merge([entry("a"), entry("a", ver=2)], NOW_MS)
    order = table.orders(bucket_of("a"))["a"]
    assert order[:3] == (NOW_MS, 2, Rank.UP)
    assert order > entry("a").order


def test_an_entry_that_was_forgotten_may_come_back_as_it_was() -> None:
    table = PeerTable()
    table.merge([entry(), entry("b").tombstone(NOW_MS)], NOW_MS)
    change = table.forget("a")
    assert change is not None
    assert change.before == entry()
    assert change.after.is_tombstone
    assert (table.forget("b"), table.forget("unknown")) == (None, None)
    assert (len(table), table.tombstones, table.hash) == (0, 0, PeerTable().hash)
    assert table.merge([entry()], NOW_MS)
    assert table.expire(NOW_MS + 2 * TOMBSTONE_LIFE_MS) is None
