import itertools
from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from reach_core.gossip import machine
from reach_core.gossip.datagram import ACK, NEWS, Datagram, Hint, pack
from reach_core.gossip.machine import AT_ONCE_DATAGRAMS, AT_ONCE_EVERY_S, COMPARE_S, FEW, WITH_CONTROL, Gossip, How
from reach_core.gossip.rumors import PERIOD_S, rounds
from reach_core.keyring import Keyring, Signer
from reach_core.messages import unpack_entries
from reach_core.peer import SIGNATURE_BYTES, TOMBSTONE_LIFE_MS, Entry, Rank, with_signature
from reach_core.table import MAX_AHEAD_MS, Change, PeerTable

NOW_MS = 1_700_000_000_000
SIGNER, STRANGER = Signer(b"1" * 32), Signer(b"2" * 32)


class Liar(Signer):
    """Says that it is the other."""

    def sign(self, entry: Entry) -> Entry:
        return with_signature(entry, SIGNER.key_id + bytes(SIGNATURE_BYTES - len(SIGNER.key_id)))


LIAR = Liar(b"3" * 32)


def entry(agent_id: str, ver: int = 1, signer: Signer = SIGNER, **changes: object) -> Entry:
    made = Entry(agent_id=agent_id, gen=NOW_MS, ver=ver, rank=Rank.UP, address=f"{agent_id}:1")
    return signer.sign(msgspec.structs.replace(made, **changes))


class Bench:
    """One machine among `peers` others, with everything it asked for."""

    def __init__(self, peers: int = 10, seed: int = 1) -> None:
        self.table = PeerTable()
        self.table.merge([entry(f"peer-{n}") for n in range(peers)] + [entry("me")], NOW_MS)
        self.sent: list[tuple[str, Datagram]] = []
        self.pulls: list[tuple[str, list[str]]] = []
        self.comparisons: list[str | None] = []
        self.changes: list[Change] = []
        self.notices: list[int] = []
        self.forged: list[tuple[str, str, str]] = []
        self.machine = Gossip(lambda: "me", self.table, Keyring([SIGNER.public]), self, Random(seed),
                              on_changes=self.changes.extend, on_notice=self.notices.append,
                              on_forged=lambda *what: self.forged.append(what))

    def send(self, address: str, datagram: Datagram) -> None:
        self.sent.append((address, datagram))

    def pull(self, address: str, agent_ids: list[str]) -> None:
        self.pulls.append((address, agent_ids))

    def compare(self, address: str | None) -> None:
        self.comparisons.append(address)

    def hear(self, *entries: Entry, at_s: float = 1.0, source: str = "peer-1:1", number: int = 0, notice: int = 0) -> None:
        self.machine.receive(pack(entries, "peer-1", notice, number)[0], source, at_s, NOW_MS)

    def learn(self, entries: Sequence[Entry], how: How, at_s: float = 1.0, source: str = "s") -> list[Change]:
        return self.machine.learn(entries, how, source, at_s, NOW_MS)

    def watch_verified(self) -> list[Entry]:
        """What is verified from now on; all of it is believed."""
        verified: list[Entry] = []

        def verify(entry: Entry) -> bool:
            verified.append(entry)
            return True

        self.machine._keyring.verify = verify  # type: ignore[method-assign]
        return verified

    def told(self) -> dict[str, list[str]]:
        """By whom it was sent to: the agents it was about."""
        found: dict[str, list[str]] = {}
        for address, datagram in self.sent:
            found.setdefault(address, []).extend(one.agent_id for one in unpack_entries(datagram.entries)[0])
        return found

    def run(self, seconds: float, begin_s: float = 1.0) -> None:
        now_s, end_s = begin_s, begin_s + seconds
        while now_s < end_s:
            now_s += max(1e-6, self.machine.tick(now_s))


def test_news_is_taken_and_told_on_at_once_to_four_others() -> None:
    bench = Bench()
    bench.hear(entry("new"))
    assert bench.table.get("new") == entry("new")
    assert [change.after.agent_id for change in bench.changes] == ["new"]
    assert len(bench.told()) == 4
    assert set(map(tuple, bench.told().values())) == {("new",)}
    assert "me:1" not in bench.told()


def test_and_again_every_fifth_of_a_second_for_the_usual_rounds() -> None:
    bench = Bench(peers=10)
    bench.hear(entry("new"))
    bench.run(0.15)
    assert len(bench.sent) == 4
    bench.run(PERIOD_S, begin_s=1.15)
    assert len(bench.sent) == 8
    bench.run(60.0, begin_s=1.3)
    assert len(bench.sent) == 4 * rounds(12)


def test_what_is_known_is_neither_verified_nor_told() -> None:
    bench = Bench()
    verified = bench.watch_verified()
    bench.hear(entry("peer-3"))
    bench.hear(entry("peer-3", ver=0))
    for _ in range(50):
        bench.hear(entry("new"), at_s=1.0)
    assert [one.agent_id for one in verified] == ["new"]
    assert len(bench.sent) == 4
    assert bench.machine.counts["entries_known"] == 51


def test_the_same_bytes_are_not_even_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.hear(entry("new"))
    monkeypatch.setattr(machine, "unpack_entries", None)
    bench.hear(entry("new"))
    assert bench.machine.counts["entries_known"] == 1


def test_an_older_one_under_way_cannot_undo_a_removal() -> None:
    bench = Bench()
    stone = SIGNER.sign(entry("peer-3").tombstone(NOW_MS, ver=2))
    bench.hear(stone)
    bench.hear(entry("peer-3"))
    assert bench.table.get("peer-3").is_tombstone  # type: ignore[union-attr]


def test_what_is_wrongly_signed_is_ignored_counted_and_named() -> None:
    bench = Bench()
    altered = with_signature(entry("peer-3", ver=2, address="evil:1"), entry("peer-3", ver=2).signature)
    bench.hear(altered, source="evil:1")
    assert bench.table.get("peer-3") == entry("peer-3")
    assert bench.forged == [("evil:1", "peer-1", "peer-3")]
    assert (bench.machine.counts["entries_forged"], bench.sent) == (1, [])


def test_unknown_signers_and_unsigned_entries_are_left_alone() -> None:
    bench = Bench()
    bench.hear(entry("peer-3", ver=2, signer=STRANGER), msgspec.structs.replace(entry("peer-4"), ver=2))
    assert (bench.machine.counts["entries_unknown_key"], bench.changes, bench.forged) == (2, [], [])


def test_what_became_of_entries_is_counted() -> None:
    bench = Bench()
    counts = bench.machine.counts
    ahead = entry("peer-5", gen=NOW_MS + MAX_AHEAD_MS + 1)
    few = [entry("peer-1"), ahead, entry("peer-2", ver=2, signer=STRANGER), entry("peer-3", ver=2, signer=LIAR)]
    bench.learn([*few, *(entry(f"a-{n}") for n in range(250))], "compared")
    found = {name.removeprefix("entries_"): count for name, count in counts.items() if name.startswith("entries_") and count}
    assert found == {"known": 1, "unsound": 1, "unknown_key": 1, "forged": 1, "new": 199, "unverified": 51}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MOST_SEEN", 10)
    monkeypatch.setattr(machine, "MOST_PULLED", 10)
    bench = Bench()
    for n in range(100):
        one = entry(f"a-{n}")
        bench.hear(one)
        hint = Hint(f"b-{n}", *one.order)
        bench.machine.receive(Datagram(NEWS, "peer-1", 0, 0, (), (hint,)), "peer-1:1", 1.0, NOW_MS)
        assert len(bench.machine._seen) <= 11
        assert len(bench.machine._pulled) <= 10
    assert len(bench.pulls) == 100


def test_one_source_has_so_many_verified_and_another_its_own() -> None:
    bench = Bench()
    bench.learn([entry(f"a-{n}") for n in range(300)], "compared", source="one")
    assert bench.machine.counts["entries_unverified"] == 100
    assert len(bench.learn([entry(f"b-{n}") for n in range(150)], "compared", source="two")) == 150


def test_who_floods_with_datagrams_does_not_keep_others_from_comparing() -> None:
    bench = Bench()
    for n in range(3_000):
        bench.hear(entry(f"a-{n}"), source=f"s-{n % 50}")
    assert len(bench.learn([entry(f"b-{n}") for n in range(150)], "compared", source="s-1")) == 150


@pytest.mark.parametrize("flood", ["gossip", "control", "told"])
def test_who_floods_us_unasked_does_not_keep_us_from_comparing(flood: How) -> None:
    bench = Bench()
    for number in range(20):
        bench.learn([entry(f"{number}-{n}", signer=LIAR) for n in range(200)], flood, source=f"host-{number}")
    assert bench.machine.counts["entries_unverified"] >= 2_000
    assert len(bench.learn([entry(f"a-{n}") for n in range(150)], "compared", source="peer-1:1")) == 150


def test_a_whole_table_is_verified_without_an_allowance_and_not_told() -> None:
    bench = Bench()
    assert len(bench.learn([entry(f"a-{n}") for n in range(500)], "snapshot")) == 500
    bench.run(5.0)
    assert bench.sent == []


@pytest.mark.parametrize("how", ["compared", "told"])
@pytest.mark.parametrize(("new", "is_told"), [(1, True), (FEW, True), (FEW + 1, False)])
def test_what_a_comparison_brought_is_told_only_if_it_was_little(new: int, is_told: bool, how: How) -> None:
    bench = Bench()
    bench.learn([entry(f"a-{n}") for n in range(new)], how)
    bench.run(5.0)
    assert bool(bench.sent) is is_told


def test_what_asks_for_it_is_acknowledged_also_if_it_is_known() -> None:
    bench = Bench()
    for _ in range(2):
        bench.hear(entry("new"), source="control:1", number=7)
    acknowledged = [(address, one.number, one.sender) for address, one in bench.sent if one.kind == ACK]
    assert acknowledged == [("control:1", 7, "me")] * 2


def test_what_was_not_taken_is_not_acknowledged() -> None:
    bench = Bench()
    bench.hear(entry("new"), entry("other", signer=STRANGER), source="control:1", number=7)
    assert bench.table.get("new") == entry("new")
    assert [one for _, one in bench.sent if one.kind == ACK] == []


def test_an_acknowledgement_is_no_news() -> None:
    bench = Bench()
    bench.machine.receive(Datagram(ACK, "peer-1", 7), "peer-1:1", 1.0, NOW_MS)
    assert (bench.sent, bench.machine.counts["acknowledgements"]) == ([], 1)


def test_a_hint_of_something_newer_is_followed() -> None:
    bench = Bench()
    newer, older, unknown = entry("peer-2", ver=2), entry("peer-3", ver=0), entry("other")
    hints = tuple(Hint(one.agent_id, *one.order) for one in (newer, older, unknown))
    bench.machine.receive(Datagram(NEWS, "peer-1", 0, 0, (), hints), "peer-1:1", 1.0, NOW_MS)
    assert bench.pulls == [("peer-1:1", ["peer-2", "other"])]


def test_hints_of_one_entry_from_many_are_followed_once_a_second() -> None:
    bench = Bench()

    def hint(ver: int, at_s: float, source: str, gen: int = NOW_MS) -> None:
        one = entry("peer-2", ver=ver, gen=gen)
        datagram = Datagram(NEWS, "peer-1", 0, 0, (), (Hint(one.agent_id, *one.order),))
        bench.machine.receive(datagram, source, at_s, NOW_MS)

    hint(2, 1.0, "a:1")
    hint(2, 1.5, "b:1")
    hint(3, 1.6, "c:1")
    hint(3, 2.5, "d:1")
    hint(3, 2.7, "e:1")
    hint(1, 9.0, "f:1", gen=NOW_MS + MAX_AHEAD_MS + 1)
    assert [address for address, _ in bench.pulls] == ["a:1", "c:1", "e:1"]


def test_a_notice_far_ahead_is_not_taken_for_the_newest_there_will_ever_be() -> None:
    bench = Bench()
    bench.hear(notice=NOW_MS + MAX_AHEAD_MS + 1)
    bench.hear(notice=NOW_MS)
    assert (bench.notices, bench.machine.counts["notices_unsound"]) == ([NOW_MS], 1)


def test_a_notice_is_heard_once_and_passed_on() -> None:
    bench = Bench()
    for notice in (5, 5, 4, 6):
        bench.hear(notice=notice)
    assert bench.notices == [5, 6]
    bench.run(10.0)
    assert {one.notice for _, one in bench.sent} == {5, 6}


def test_a_storm_of_news_fills_datagrams_and_is_not_told_one_by_one() -> None:
    bench = Bench(peers=50)
    for n in range(500):
        bench.hear(entry(f"a-{n}"), at_s=1.0 + n / 100_000, source=f"s-{n % 5}")
    assert len(bench.sent) == 4
    bench.run(1.0)
    at_once, in_rounds = 1.0 / AT_ONCE_EVERY_S * AT_ONCE_DATAGRAMS * 4, 5 * 4 * 4
    assert len(bench.sent) <= 4 + at_once + in_rounds
    told = {name for names in bench.told().values() for name in names}
    assert told >= {f"a-{n}" for n in range(400)}


def test_news_that_follows_soon_is_told_a_moment_later_and_not_only_with_the_next_round() -> None:
    bench = Bench()
    bench.hear(entry("first"), at_s=1.0)
    bench.hear(entry("second"), at_s=1.0 + AT_ONCE_EVERY_S / 5)
    assert len(bench.sent) == 4
    wait_s = bench.machine.tick(1.0 + AT_ONCE_EVERY_S / 5)
    assert wait_s == pytest.approx(AT_ONCE_EVERY_S * 4 / 5)
    bench.machine.tick(1.0 + AT_ONCE_EVERY_S)
    assert [one.agent_id for _, datagram in bench.sent[4:] for one in unpack_entries(datagram.entries)[0]] == ["second"] * 4


@pytest.mark.parametrize("how", ["gossip", "compared", "control", "snapshot"])
def test_what_no_table_would_take_is_not_even_verified(how: How) -> None:
    bench = Bench()
    verified = bench.watch_verified()
    stone = SIGNER.sign(entry("peer-3").tombstone(NOW_MS - TOMBSTONE_LIFE_MS, ver=2))
    ahead = entry("peer-4", gen=NOW_MS + MAX_AHEAD_MS + 1)
    assert bench.learn([stone, ahead], how) == []
    assert (verified, bench.machine.counts["entries_unsound"]) == ([], 2)


@pytest.mark.parametrize("how", ["snapshot", "compared"])
def test_what_was_told_until_now_is_told_no_more_when_something_newer_came_that_is_not_told(how: How) -> None:
    bench = Bench()
    bench.hear(entry("peer-3", ver=2))
    bench.sent.clear()
    bench.learn([entry("peer-3", ver=3), *(entry(f"a-{n}") for n in range(FEW))], how, at_s=1.1)
    bench.run(5.0, begin_s=1.1)
    assert bench.sent == []


def test_who_forgets_an_agent_does_not_tell_of_it_either() -> None:
    """Who slept for a day must not bring back the dead by what he was about to tell."""
    bench = Bench()
    bench.hear(entry("peer-3", ver=2), entry("peer-4", ver=2))
    bench.sent.clear()
    bench.table.forget("peer-3")
    bench.machine.forget_what_was_seen()
    bench.run(0.3, begin_s=1.1)
    assert {name for names in bench.told().values() for name in names} == {"peer-4"}


def test_tables_are_compared_about_every_ten_seconds_every_thirtieth_time_with_control() -> None:
    bench = Bench()
    bench.run(100 * COMPARE_S)
    assert 95 <= len(bench.comparisons) <= 105
    with_control = [n for n, address in enumerate(bench.comparisons) if address is None]
    assert [b - a for a, b in itertools.pairwise(with_control)] == [WITH_CONTROL] * (len(with_control) - 1)
    assert len(with_control) >= 3
    assert "me:1" not in bench.comparisons
    assert len({address for address in bench.comparisons if address}) == 10


def test_who_begin_at_the_same_time_compare_at_different_times() -> None:
    first = sorted(Bench(seed=seed).machine.tick(50.0) for seed in range(40))
    assert 0 <= first[0] < COMPARE_S / 4
    assert COMPARE_S * 3 / 4 < first[-1] <= COMPARE_S


def test_who_knows_nobody_else_compares_with_control() -> None:
    bench = Bench(peers=0)
    bench.run(50.0)
    assert set(bench.comparisons) == {None}


def test_after_the_table_was_emptied_the_same_bytes_are_news_again() -> None:
    bench = Bench()
    hint = Datagram(NEWS, "peer-1", 0, 0, (), (Hint("large", *entry("large").order),))
    for _ in range(2):
        bench.hear(entry("new"))
        bench.machine.receive(hint, "peer-1:1", 1.0, NOW_MS)
    bench.table.clear()
    bench.machine.forget_what_was_seen()
    bench.hear(entry("new"))
    bench.machine.receive(hint, "peer-1:1", 1.0, NOW_MS)
    assert bench.table.get("new") == entry("new")
    assert len(bench.pulls) == 2


def test_the_same_seed_does_the_same() -> None:
    def life() -> list[tuple[str, Datagram]]:
        bench = Bench(seed=9)
        bench.hear(entry("new"))
        bench.run(30.0)
        return bench.sent

    assert life() == life()
