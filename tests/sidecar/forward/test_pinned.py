"""Where one key goes, by itself: who decides, who waits, and what stays on disk."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reach_core.problem import Problem
from reach_sidecar.forward.pinned import Pinned
from reach_sidecar.journal.database import Journal
from reach_sidecar.journal.notes import Note, Notes

KEY, OTHER_NAME = b"key", b"the same by another name"
FIRST, SECOND = object(), object()


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = await Journal.open(tmp_path / "delivery.db")
    yield journal
    await journal.close()


@pytest.fixture
def notes(journal: Journal) -> Notes:
    return Notes(journal, keep_s=60.0)


def soon() -> float:
    return asyncio.get_running_loop().time() + 5.0


async def test_it_is_noted_before_it_goes_anywhere(notes: Notes) -> None:
    pinned = Pinned([KEY, OTHER_NAME], notes)
    await pinned.to("one", b"id1", "me", soon(), FIRST)
    assert await notes.get(KEY) == Note("one", b"id1", "me") == await notes.get(OTHER_NAME)
    assert (pinned.agent, pinned.journal, pinned.decider) == ("one", b"id1", None)
    await pinned.to("two", b"id2", "me", soon(), FIRST)
    assert await notes.get(KEY) == Note("two", b"id2", "me") == await notes.get(OTHER_NAME)


async def test_while_it_moves_others_wait(notes: Notes) -> None:
    pinned = Pinned([KEY, OTHER_NAME], notes)
    moving = asyncio.ensure_future(pinned.to("one", b"id", "me", soon(), FIRST))
    await asyncio.sleep(0)
    assert (pinned.agent, pinned.decider) == ("", FIRST)
    await pinned.wait(soon())
    assert pinned.agent == "one"
    await moving


async def test_waiting_ends_at_the_deadline(notes: Notes) -> None:
    pinned = Pinned([KEY, OTHER_NAME], notes)
    pinned.decider = FIRST
    with pytest.raises(Problem) as caught:
        await pinned.wait(asyncio.get_running_loop().time() + 0.02)
    assert (caught.value.code, caught.value.executed) == ("in_progress", "unknown")
    pinned.decided()  # whoever has given up is not in the way


async def test_what_an_earlier_life_left_is_read(notes: Notes) -> None:
    await notes.put(OTHER_NAME, Note("one", b"id", "as it was called then"))
    pinned = Pinned([KEY, OTHER_NAME], notes)
    await pinned.read()
    assert (pinned.known, pinned.agent, pinned.journal, pinned.caller) == (True, "one", b"id", "as it was called then")


@pytest.mark.parametrize(("users", "joined", "freed"), [(1, False, True), (2, False, False), (1, True, False)])
async def test_it_is_free_again_only_for_one_who_was_alone(notes: Notes, users: int, joined: bool, freed: bool) -> None:
    pinned = Pinned([KEY, OTHER_NAME], notes)
    pinned.users = users
    await pinned.to("one", b"id", "me", soon(), FIRST)
    pinned.joined = joined
    assert pinned.set_free() == freed
    assert (pinned.agent == "") == freed
    assert (pinned.decider is None) != freed, "until the note is dropped, who comes has to wait"


async def test_all_its_notes_are_dropped(notes: Notes) -> None:
    pinned = Pinned([KEY, OTHER_NAME], notes)
    await pinned.to("one", b"id", "me", soon(), FIRST)
    await pinned.drop()
    assert await notes.get(KEY) is await notes.get(OTHER_NAME) is None


async def test_a_disk_that_cannot_be_written_refuses(notes: Notes, journal: Journal) -> None:
    await journal.close()
    pinned = Pinned([KEY, OTHER_NAME], notes)
    with pytest.raises(Problem) as caught:
        await pinned.to("one", b"id", "me", soon(), FIRST)
    assert (caught.value.code, caught.value.executed) == ("store_unavailable", "no")
    assert pinned.agent == ""
