"""Where one key goes, by itself: who decides, who waits, and what stays on disk."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reach_core.problem import Problem
from reach_sidecar.forward.pinned import UNKNOWN, Pinned
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


@pytest.mark.parametrize(("joined", "freed"), [(False, True), (True, False)])
async def test_it_is_free_again_only_for_one_who_was_alone(notes: Notes, joined: bool, freed: bool) -> None:
    pinned = Pinned([KEY, OTHER_NAME], notes)
    await pinned.to("one", b"id", "me", soon(), FIRST)
    pinned.joined = joined
    assert pinned.set_free() == freed
    assert (pinned.agent == "") == freed
    assert (pinned.decider is None) != freed, "until the note is dropped, who comes has to wait"


async def test_what_was_never_noted_is_not_dropped(notes: Notes) -> None:
    assert not Pinned([KEY, OTHER_NAME], notes).set_free()


@pytest.mark.parametrize(("leads", "joined", "noted"), [(True, False, b"id2"), (False, False, b"id1"),
                                                        (True, True, b"id1")])
async def test_the_leader_goes_by_the_id_of_its_last_send(notes: Notes, leads: bool, joined: bool,
                                                          noted: bytes) -> None:
    """Its agent may have moved to another store, and not everybody's sends are known not to have run."""
    pinned = Pinned([KEY, OTHER_NAME], notes)
    await pinned.to("one", b"id1", "me", soon(), FIRST)
    pinned.leader, pinned.joined = FIRST, joined
    await pinned.to("one", b"id2", "me", soon(), FIRST if leads else SECOND)
    assert pinned.journal == noted
    assert await notes.get(KEY) == Note("one", noted, "me") == await notes.get(OTHER_NAME)


@pytest.mark.parametrize(("leads", "store_id", "opens"), [
    (True, b"id", True),
    (True, UNKNOWN, False),  # its answer tells the id
    (False, UNKNOWN, True),  # nobody will tell it
])
async def test_who_may_join(notes: Notes, leads: bool, store_id: bytes, opens: bool) -> None:
    pinned = Pinned([KEY, OTHER_NAME], notes)
    pinned.leader = FIRST if leads else None
    await pinned.to("one", store_id, "me", soon(), FIRST)
    assert pinned.open == opens


@pytest.mark.parametrize("news", ["the id", "it leads no more"])
async def test_who_waits_for_the_first_hears_of_it(notes: Notes, news: str) -> None:
    pinned = Pinned([KEY, OTHER_NAME], notes)
    pinned.leader = FIRST
    await pinned.to("one", UNKNOWN, "me", soon(), FIRST)
    waiting = asyncio.ensure_future(pinned.wait(soon()))
    await asyncio.sleep(0)
    if news == "the id":
        await pinned.learn("one", b"id", soon())
    else:
        pinned.leads_no_more()
    await waiting
    assert pinned.open


async def test_waiting_for_the_first_ends_at_the_deadline(notes: Notes) -> None:
    pinned = Pinned([KEY, OTHER_NAME], notes)
    pinned.leader = FIRST
    with pytest.raises(Problem) as caught:
        await pinned.wait(asyncio.get_running_loop().time() + 0.02)
    assert (caught.value.code, caught.value.executed) == ("deadline_exceeded", "unknown")


@pytest.mark.parametrize(("known", "agent", "told", "kept"), [
    (UNKNOWN, "one", b"id", b"id"),
    (b"id", "one", b"id2", b"id"),  # what may have run meanwhile ran there
    (UNKNOWN, "two", b"id", UNKNOWN),
    (UNKNOWN, "one", UNKNOWN, UNKNOWN),
])
async def test_an_id_is_learnt_once(notes: Notes, known: bytes, agent: str, told: bytes, kept: bytes) -> None:
    pinned = Pinned([KEY, OTHER_NAME], notes)
    await pinned.to("one", known, "me", soon(), FIRST)
    await pinned.learn(agent, told, soon())
    assert pinned.journal == kept
    assert await notes.get(KEY) == Note("one", kept, "me") == await notes.get(OTHER_NAME)


async def test_an_id_that_cannot_be_noted_counts_for_now(notes: Notes, journal: Journal) -> None:
    pinned = Pinned([KEY, OTHER_NAME], notes)
    await pinned.to("one", UNKNOWN, "me", soon(), FIRST)
    await journal.close()
    await pinned.learn("one", b"id", soon())
    assert pinned.journal == b"id"


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
