"""Where one key of an agent goes, shared by all calls that use the key now."""

import asyncio
import contextlib

from reach_core.problem import Problem
from reach_sidecar.journal.database import StoreUnavailable
from reach_sidecar.journal.notes import Note, Notes


class Pinned:
    """Where one key goes. `agent` is empty until that is decided, and while it moves; `users` are the calls with it.

    Once a second call has `joined`, the key stays where it is: what that one did there is nothing the first knows of.
    """

    __slots__ = ("_notes", "_waiting", "agent", "decider", "joined", "journal", "key", "known", "users")

    def __init__(self, key: bytes, notes: Notes) -> None:
        self.key = key
        self.agent = ""
        self.journal = b"-"
        self.users = 0
        self.joined = False
        self.known = False  # what earlier calls left behind has been read
        self.decider: object | None = None  # the call that is about to give it an agent
        self._notes = notes
        self._waiting: list[asyncio.Future[None]] = []

    async def read(self) -> None:
        """What an earlier call left behind. Raises StoreUnavailable."""
        note = await self._notes.get(self.key)
        self.known = True
        if note is not None:
            self.agent, self.journal = note.agent, note.journal

    async def to(self, agent: str, journal: bytes, deadline: float, decider: object) -> None:
        """It goes to `agent` next, as the call `decider` found. Raises Problem where that cannot be noted."""
        if self.agent == agent:
            return
        self.agent, self.decider = "", decider  # who comes now waits for the news
        try:
            async with asyncio.timeout_at(deadline):
                await self._notes.put(self.key, Note(agent, journal))
        except StoreUnavailable as error:
            raise unavailable(error) from None
        except TimeoutError:
            raise Problem("deadline_exceeded", "The call's time was over before its key could be noted on disk.",
                          executed="no") from None
        self.agent, self.journal = agent, journal
        self.decided()

    def decided(self) -> None:
        """Wake who waits: there is an agent, or the one who was to find one has given up."""
        self.decider = None
        waiting, self._waiting = self._waiting, []
        for place in waiting:
            if not place.done():
                place.set_result(None)

    async def wait(self, deadline: float) -> None:
        """Until it is decided. Raises Problem at the deadline."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout_at(deadline):
                await place
        except TimeoutError:
            raise Problem("in_progress", "Another call with the same Idempotency-Key is under way here, and no agent "
                          "was found for it within this call's time.") from None

    async def free(self, decider: object) -> None:
        """Nothing ran: it may go to any agent again. Where that cannot be noted the next one finds the note as it is.

        Seen to its end whatever becomes of the call: a note that is dropped late would be that of the next call.
        """
        if self.users == 1 and self.agent and not self.joined:
            self.agent, self.decider, self.known = "", decider, False
            dropping = asyncio.ensure_future(self._notes.drop(self.key))
            try:
                await asyncio.shield(dropping)
            except asyncio.CancelledError:
                await asyncio.wait([dropping])
                raise
            except StoreUnavailable:
                pass

    async def note_again(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._notes.put(self.key, Note(self.agent, self.journal))


def unavailable(error: StoreUnavailable) -> Problem:
    return Problem("store_unavailable", f"This sidecar cannot note on disk where the call goes: {error}.")
