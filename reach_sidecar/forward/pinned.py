"""Where one key of an agent goes, shared by all calls that use the key now."""

import asyncio
import contextlib

from reach_core.problem import Problem
from reach_sidecar.journal.database import StoreUnavailable
from reach_sidecar.journal.notes import Note, Notes

UNKNOWN = b"-"  # nobody's id: a call that carries it is never the one that starts a run


class Pinned:
    """Where one key goes, noted under all `keys` that may lead to it. `agent` is empty until that is decided, and while
    it moves; `users` are the calls with it. `caller` is the name this sidecar's agent went by when it was noted.

    `journal` is the id of the store that will know what ran, and all sends go by it. While it is UNKNOWN, only the
    `leader` can start a run: the call that came first, as long as it knows that nothing ran.

    Once a second call has `joined`, the key stays where it is, and so does an id that is known: what that one did there
    is nothing the first knows of.
    """

    __slots__ = ("_noted", "_notes", "_waiting", "agent", "caller", "decider", "joined", "journal", "keys", "known",
                 "leader", "users")

    def __init__(self, keys: list[bytes], notes: Notes) -> None:
        self.keys = keys
        self.agent = ""
        self.caller = ""
        self.journal = UNKNOWN
        self.users = 0
        self.joined = False
        self.known = False  # what earlier calls left behind has been read
        self.decider: object | None = None  # the call that is about to give it an agent
        self.leader: object | None = None
        self._noted = False  # there is a note on disk, or may be
        self._notes = notes
        self._waiting: list[asyncio.Future[None]] = []

    async def read(self) -> None:
        """What an earlier call left behind. Raises StoreUnavailable."""
        found = [note for key in self.keys if (note := await self._notes.get(key)) is not None]
        self.known = True
        if found:
            self._noted = True
            self.agent, self.journal, self.caller = found[0]

    async def to(self, agent: str, journal: bytes, caller: str, deadline: float, decider: object) -> None:
        """It goes to `agent` next, as the call `decider` found. Raises Problem where that cannot be noted.

        `journal`: the id as known now. Where nothing has run, it may be another one by the next send, and then that is
        where it will run."""
        if self.agent == agent and (self.journal == journal or self.leader is not decider or self.joined):
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

    async def learn(self, agent: str, journal: bytes, deadline: float) -> None:
        """The id is known now, and so is that nothing has run: from here on it is as if it had been known at the first
        send. Until that is on disk, the note there only allows less."""
        if self.journal != UNKNOWN or journal == UNKNOWN or agent != self.agent:
            return
        self.journal = journal
        self._wake()
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._put(Note(agent, journal, self.caller))

    def leads_no_more(self) -> None:
        """The leader is in doubt itself, or has ended: the others may join."""
        self.leader = None
        self._wake()

    @property
    def open(self) -> bool:
        """May another call join, or find an agent? Not while it is decided where the key goes. And not while the first
        call's answer is still to tell the id: who asks without an id, before that call is there or after its agent has
        said that nothing was done, would be told that the key may have run."""
        return self.decider is None and (self.leader is None or self.journal != UNKNOWN)

    def decided(self) -> None:
        """There is an agent, or the one who was to find one has given up."""
        self.decider = None
        self._wake()

    def _wake(self) -> None:
        """Who waits looks again."""
        waiting, self._waiting = self._waiting, []
        for place in waiting:
            if not place.done():
                place.set_result(None)

    async def wait(self, deadline: float) -> None:
        """Until there is news. Raises Problem at the deadline."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout_at(deadline):
                await place
        except TimeoutError:
            if self.decider is None:
                raise Problem("deadline_exceeded", "The call's time was over before the first one with the same "
                              "Idempotency-Key was answered.") from None
            raise Problem("in_progress", "Another call with the same Idempotency-Key is under way here, and no agent "
                          "was found for it within this call's time.") from None

    def set_free(self) -> bool:
        """Nothing ran: it may go to any agent again, once its note is dropped. False: there is none, or another call
        has joined it."""
        if not self._noted or self.joined:
            return False
        self.agent, self.decider, self.known, self._noted = "", self, False, False
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
        self._noted = True
        for key in self.keys:
            await self._notes.put(key, note)


def unavailable(error: StoreUnavailable) -> Problem:
    return Problem("store_unavailable", f"This sidecar cannot note on disk where the call goes: {error}.")
