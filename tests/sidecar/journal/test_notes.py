"""Notes of where keys went."""

import asyncio
from pathlib import Path

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
