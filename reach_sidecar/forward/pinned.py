"""Where one key of an agent goes, shared by all calls that use the key now."""

import asyncio
import contextlib

from reach_core.problem import Problem
from reach_sidecar.journal.database import StoreUnavailable
from reach_sidecar.journal.notes import Note, Notes


class Pinned:
    """Where one key goes, noted under all `keys` that may lead to it. `agent` is empty until that is decided, and while
    it moves; `users` are the calls with it. `caller` is the name this sidecar's agent went by when it was noted.

    Once a second call has `joined`, the key stays where it is: what that one did there is nothing the first knows of.
    """

    __slots__ = ("_notes", "_waiting", "agent", "caller", "decider", "joined", "journal", "keys", "known", "users")

    def __init__(self, keys: list[bytes], notes: Notes) -> None:
        self.keys = keys
        self.agent = ""
        self.caller = ""
        self.journal = b"-"
        self.users = 0
        self.joined = False
        self.known = False  # what earlier calls left behind has been read
        self.decider: object | None = None  # the call that is about to give it an agent
        self._notes = notes
        self._waiting: list[asyncio.Future[None]] = []

    async def read(self) -> None:
        """What an earlier call left behind. Raises StoreUnavailable."""
        found = [note for key in self.keys if (note := await self._notes.get(key)) is not None]
        self.known = True
        if found:
            self.agent, self.journal, self.caller = found[0]

    async def to(self, agent: str, journal: bytes, caller: str, deadline: float, decider: object) -> None:
        """It goes to `agent` next, as the call `decider` found. Raises Problem where that cannot be noted."""
        if self.agent == agent:
            return
        self.agent, self.decider = "", decider  # who comes now waits for the news
        try:
            async with asyncio.timeout_at(deadline):
                await self._put(Note(agent, journal, caller))
        except StoreUnavailable as error:
            raise unavailable(error) from None
        except TimeoutError:
            raise Problem("deadline_exceeded", "The call's time was over before its key could be noted on disk.",
                          executed="no") from None
        self.agent, self.journal, self.caller = agent, journal, caller
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

    def set_free(self) -> bool:
        """Nothing ran: it may go to any agent again, once its note is dropped. False: another call has joined it."""
        if self.users > 1 or not self.agent or self.joined:
            return False
        self.agent, self.decider, self.known = "", self, False
        return True

    async def drop(self) -> None:
        """Where it cannot be dropped, the next one finds the note as it is."""
        with contextlib.suppress(StoreUnavailable):
            for key in self.keys:
                await self._notes.drop(key)

    async def note_again(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._put(Note(self.agent, self.journal, self.caller))

    async def _put(self, note: Note) -> None:
        for key in self.keys:
            await self._notes.put(key, note)


def unavailable(error: StoreUnavailable) -> Problem:
    return Problem("store_unavailable", f"This sidecar cannot note on disk where the call goes: {error}.")
