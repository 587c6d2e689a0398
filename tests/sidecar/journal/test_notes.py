"""Notes of where keys went."""

import asyncio
from pathlib import Path

import pytest

from reach_sidecar.journal.database import Journal
from reach_sidecar.journal.notes import EXPIRE_AT_ONCE, Note, Notes

NOW = 1_900_000_000_000


async def test_put_get_drop(journal: Journal) -> None:
    notes = Notes(journal, keep_s=60)
    assert await notes.get(b"k") is None
    await notes.put(b"k", Note("a-01", b"-"))
    assert await notes.get(b"k") == Note("a-01", b"-")
    await notes.put(b"k", Note("a-01", b"0123456789abcdef"))
    assert await notes.get(b"k") == Note("a-01", b"0123456789abcdef")
    await notes.drop(b"k")
    await notes.drop(b"k")
    assert await notes.get(b"k") is None


async def test_they_outlive_the_process(path: Path) -> None:
    journal = await Journal.open(path)
    await Notes(journal, keep_s=60).put(b"k", Note("ä", b"-"))
    await journal.close()
    journal = await Journal.open(path)
    assert await Notes(journal, keep_s=60).get(b"k") == Note("ä", b"-")
    await journal.close()


async def test_they_expire_after_they_were_last_put(path: Path) -> None:
    seconds = [0.0]
    journal = await Journal.open(path, now_ms=NOW, monotonic=lambda: seconds[0])
    notes = Notes(journal, keep_s=60)
    await asyncio.gather(*[notes.put(b"%d" % n, Note("a", b"-")) for n in range(3 * EXPIRE_AT_ONCE)])
    seconds[0] = 30.0
    await notes.put(b"0", Note("b", b"-"))
    seconds[0] = 59.0
    assert await notes.expire(NOW - 86_400_000) == 0
    seconds[0] = 60.0
    assert await notes.expire(NOW + 86_400_000) == 3 * EXPIRE_AT_ONCE - 1
    assert await notes.get(b"0") == Note("b", b"-")
    assert await notes.get(b"1") is None
    await journal.close()


async def test_keys_that_have_no_note_are_told_without_the_disk(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(journal, keep_s=60)
    await notes.put(b"earlier", Note("a", b"-"))
    await notes.learn()
    await notes.put(b"later", Note("b", b"-"))
    asked: list[object] = []
    read = journal.read

    async def counted(question: object) -> object:
        asked.append(question)
        return await read(question)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "read", counted)
    assert await notes.get(b"new") is None
    assert asked == []
    assert (await notes.get(b"earlier"), await notes.get(b"later")) == (Note("a", b"-"), Note("b", b"-"))
    assert len(asked) == 2


async def test_what_is_put_while_keys_are_read_is_known(journal: Journal) -> None:
    notes = Notes(journal, keep_s=60)
    await notes.learn()
    putting = [asyncio.ensure_future(notes.put(b"%d" % n, Note("a", b"-"))) for n in range(50)]
    await asyncio.sleep(0)
    learning = asyncio.ensure_future(notes.learn())
    await asyncio.sleep(0)
    putting += [asyncio.ensure_future(notes.put(b"%d" % n, Note("a", b"-"))) for n in range(50, 100)]
    await asyncio.gather(learning, *putting)
    for n in range(100):
        assert await notes.get(b"%d" % n) == Note("a", b"-")


async def test_too_many_to_hold_are_asked_for_on_disk(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reach_sidecar.journal.notes.MOST_KNOWN", 3)
    notes = Notes(journal, keep_s=60)
    await notes.learn()
    for n in range(6):
        await notes.put(b"%d" % n, Note("a", b"-"))
        assert await notes.get(b"%d" % n) is not None
    assert await notes.get(b"0") == Note("a", b"-")
    await notes.learn()
    assert await notes.get(b"5") == Note("a", b"-")
