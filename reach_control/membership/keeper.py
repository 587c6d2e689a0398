"""Changes to disk, then to the readers: in batches, away from the requests.

A disk that fails must not take the mesh along: the changes are shown all the same, the failure is said once
and tried again, and what is missing on disk is brought back by owners and silence after the next start.
"""

import asyncio
from collections.abc import Callable

from reach_control.journal.snapshot import Snapshot, SnapshotError
from reach_control.telemetry.log import ControlLog
from reach_core.table import PeerTable

GATHER_S = 0.02
RETRY_S = 5.0


class Keeper:
    """`on_disk`: up to which change the table is there. `note()` after each change; `problem` is why the disk cannot be
    written, if so.
    """

    def __init__(
        self,
        table: PeerTable,
        on_disk: int,
        snapshot: Snapshot,
        publish: Callable[[int], None],
        now_ms: Callable[[], int],
        log: ControlLog,
    ) -> None:
        self.problem: str | None = None
        self.batches = 0
        self._table = table
        self._snapshot = snapshot
        self._publish = publish
        self._now_ms = now_ms
        self._log = log
        self._saved = on_disk
        self._due = asyncio.Event()
        self._stopping = False
        self._is_cleared = False

    def note(self) -> None:
        self._due.set()

    def begin_anew(self) -> None:
        """The table was emptied: nothing of what is on disk may come back."""
        self._is_cleared = True
        self._due.set()

    def stop(self) -> None:
        """Make `run` end, after a last batch."""
        self._stopping = True
        self._due.set()

    async def run(self) -> None:
        while not self._stopping:
            try:
                async with asyncio.timeout(RETRY_S if self.problem else None):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            await self.flush()
            if not self._stopping:
                await asyncio.sleep(GATHER_S)
        await self.flush()

    async def flush(self) -> None:
        seq = self._table.seq
        entries = self._table.delta_since(0 if self._is_cleared else self._saved, seq) or []
        if not entries and not self._is_cleared:
            return
        try:
            if self._is_cleared:
                await self._snapshot.clear()
                self._is_cleared = False
            await self._snapshot.save(entries, self._now_ms())
        except SnapshotError as error:
            if self.problem is None:
                self._log.event("error", "snapshot", detail=str(error))
            self.problem = str(error)
        else:
            if self.problem is not None:
                self._log.event("info", "snapshot", detail="The table is written to disk again.")
            self.problem = None
            self._saved = seq
            self.batches += 1
        self._publish(seq)
