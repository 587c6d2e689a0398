from math import inf

import msgspec

from reach_control.registry.lease import Moment, Terms
from reach_control.registry.ledger import Ledger
from reach_core.keyring import Keyring, Signer
from reach_core.peer import Entry, Rank
from reach_core.table import PeerTable

NOW = Moment(100.0, 1_700_000_000_000)
SIGNER = Signer(b"k" * 32)


def entry(agent_id: str = "a", rank: Rank = Rank.UP) -> Entry:
    return Entry(agent_id=agent_id, gen=NOW.ms, ver=1, rank=rank)


def ledger() -> Ledger:
    return Ledger(PeerTable(), Terms(), SIGNER.sign)


def test_what_is_written_is_signed() -> None:
    book = ledger()
    outcome = book.write(entry(), NOW)
    assert outcome.changes[0].after is outcome.entry
    found = book.table.get("a")
    assert found is not None
    assert Keyring([SIGNER.public]).verify(found)
    changed = book.write(msgspec.structs.replace(found, ver=2), NOW).entry
    assert Keyring([SIGNER.public]).verify(changed)
    assert book.sign(changed).signature == changed.signature


def test_live_is_an_entry_with_its_lease() -> None:
    book = ledger()
    assert book.live("a") is None
    book.write(entry(), NOW)
    assert book.live("a") is None
    lease = book.hold(entry(), NOW.s, confirmed=True)
    assert book.live("a") == (lease, entry())
    book.write(entry().tombstone(NOW.ms), NOW)
    assert book.live("a") is None


def test_who_is_due_comes_once_and_only_so_many() -> None:
    book = ledger()
    for n in range(10):
        book.write(entry(f"agent-{n}"), NOW)
        book.hold(entry(f"agent-{n}"), NOW.s, confirmed=True)
    assert book.next_due_s() == 130.0
    assert list(book.due(129.9, 100)) == []
    assert [len(list(book.due(130.0, 4))) for _ in range(4)] == [4, 4, 2, 0]
    assert book.next_due_s() == inf


def test_the_earlier_time_holds() -> None:
    book = ledger()
    book.write(entry(), NOW)
    lease = book.hold(entry(), NOW.s, confirmed=True)
    book.wake(lease, 200.0)
    assert lease.due_s == 130.0
    lease.held_until_s = 110.0
    book.schedule(lease, Rank.SUSPECT)
    assert lease.due_s == 110.0
    assert [held[0] for held in book.due(140.0, 9)] == [lease], "the later pair is stale"


def test_heartbeats_are_numbered_so_that_each_reader_has_its_own_place() -> None:
    book = ledger()
    for agent_id in "abcab":
        book.heard(agent_id)
    assert book.heard_since(0, 10) == (5, ["c", "a", "b"])
    assert book.heard_since(0, 2) == (4, ["c", "a"])
    assert book.heard_since(4, 10) == (5, ["b"])
    assert book.heard_since(5, 10) == (5, [])
    book.drop("a")
    assert book.heard_since(0, 10) == (5, ["c", "b"])
