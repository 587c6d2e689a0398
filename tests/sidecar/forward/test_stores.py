"""Both stores of a sidecar: opened when first asked for, expired together, closed once all ends are noted."""

import asyncio
from pathlib import Path

import pytest

from reach_sidecar.config import DedupConfig
from reach_sidecar.forward.failure import Refusal
from reach_sidecar.forward.stores import Stores
from reach_sidecar.journal.database import JournalError


async def test_the_one_on_disk_is_opened_when_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "state" / "delivery.db"
    stores = Stores(path, DedupConfig())
    assert not stores.is_open
    assert not path.exists()
    both = await asyncio.gather(*[stores.durable() for _ in range(10)])
    assert all(store is both[0] for store in both)
    assert stores.is_open
    assert await stores.notes() is await stores.notes()
    assert both[0].id != stores.memory.id
    await stores.close()
    again = Stores(path, DedupConfig())
    assert again.is_open  # there may be notes of its earlier life
    assert (await again.durable()).id == both[0].id
    assert again.memory.id != stores.memory.id  # what was in memory is gone
    await again.close()


async def test_one_that_cannot_be_opened_refuses_and_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("a file where a folder should be")
    stores = Stores(path / "delivery.db", DedupConfig())
    for ask in (stores.durable, stores.notes):
        with pytest.raises(Refusal) as caught:
            await ask()
        assert (caught.value.reason, caught.value.executed) == ("store_unavailable", "no")
    with pytest.raises(JournalError):
        await stores.open()
    path.unlink()
    assert (await stores.durable()).durable
    await stores.close()


async def test_what_is_in_memory_goes_although_no_call_comes(tmp_path: Path) -> None:
    stores = Stores(tmp_path / "delivery.db", DedupConfig())
    memory = stores.memory.memory
    assert memory is not None
    now = asyncio.get_running_loop().time()
    for number in range(1_000):
        memory.mark(b"old%d" % number, b"f", "unknown", True, now - 31.0)
    memory.mark(b"young", b"f", "unknown", True, now)
    assert stores.memory_bytes > 0
    await stores.expire()
    assert len(memory) == 1
    assert stores.memory_bytes == memory.bytes
    await stores.close()


async def test_expiry_of_a_closed_store_is_no_error(tmp_path: Path) -> None:
    stores = Stores(tmp_path / "delivery.db", DedupConfig())
    await stores.open()
    await stores.expire()
    await stores.close()
    await stores.expire()
    await stores.close()


async def test_ends_are_noted_before_it_closes(tmp_path: Path) -> None:
    path = tmp_path / "delivery.db"
    stores = Stores(path, DedupConfig())
    store = await stores.durable()
    assert store.runs is not None
    await store.runs.begin(b"k", b"f")
    store.later(store.note_end(b"k", "unknown"))
    await stores.close()
    again = Stores(path, DedupConfig())
    row = await (await again.durable()).look(b"k", asyncio.get_running_loop().time() + 5.0)
    assert row is not None
    assert row.state == "unknown"
    await again.close()
