"""Keys change with time: new ones are announced, what is signed with old ones is signed anew, then those are dropped.

The table is signed anew a little at a time, because each entry so changed goes through the whole mesh. Whatever keys
there are, they are told in the node's document on the mesh, and written down.
"""

import asyncio
from collections.abc import Callable

from reach_control.identity.keyfile import KeyFileError
from reach_control.identity.keys import NodeKeys
from reach_control.membership.info import Info
from reach_control.registry.lease import Moment
from reach_control.registry.registry import Registry
from reach_control.telemetry.log import ControlLog
from reach_core.keyring import KEY_ID_BYTES
from reach_core.peer import Entry
from reach_core.table import Change

EVERY_S = 30.0
MOST_SIGNED_ANEW = 5  # in a second: what gossip carries without leaving some of it to comparison


class Tending:
    """`apply` is told what changed in the table."""

    def __init__(self, keys: NodeKeys, info: Info, registry: Registry, clock: Callable[[], Moment],
                 apply: Callable[[list[Change]], None], log: ControlLog) -> None:
        self._keys = keys
        self._info = info
        self._registry = registry
        self._clock = clock
        self._apply = apply
        self._log = log

    def changed(self) -> None:
        """There are other keys, or another secret: tell and save them."""
        self._info.refresh(self._clock().ms)
        self.save()

    def save(self) -> None:
        """Keys that cannot be written are used all the same; the log says so."""
        try:
            self._keys.save()
        except KeyFileError as error:
            self._log.event("error", "identity", detail=str(error))

    async def run(self) -> None:
        """For as long as the node runs."""
        while True:
            is_done = self.tend(self._clock())
            await asyncio.sleep(EVERY_S if is_done else 1.0)

    def tend(self, now: Moment) -> bool:
        """Do what is due now; False if more is due soon."""
        keys, table = self._keys, self._registry.table
        is_new = keys.rotate(now.ms)
        good = keys.good_ids(now.ms)

        def is_old(entry: Entry) -> bool:
            return entry.signature[:KEY_ID_BYTES] not in good

        changes = self._registry.resign(is_old, MOST_SIGNED_ANEW, now)
        self._apply(changes)
        if not changes:
            in_use = {entry.signature[:KEY_ID_BYTES] for entry in table.entries(tombstones=True)}
            is_new = keys.retire(in_use, now.ms) or is_new
        if self._info.refresh(now.ms) or is_new:
            self.save()
        return not changes
