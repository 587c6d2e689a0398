"""The table on disk, so that a restarted sidecar routes before control answers.

Two files in the state directory. `table.json` holds the entries as the bytes they came in, with the place in
control's table they belong to; it is replaced in one step, and one that cannot be read counts as none.
`instance` holds the random name under which this sidecar registers: a sidecar that comes back after a crash
is recognised and need not wait until its own old lease has run out. It is locked, and a second sidecar in the
same directory gets a name of its own.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from reach_core.peer import Entry

MAX_AGE_MS = 12 * 3600 * 1000
"""A node that was away for longer drops its table (design, "Control plane and the table")."""
_INSTANCE = re.compile(r"[0-9a-f]{32}")


class CachedTable(msgspec.Struct, frozen=True, kw_only=True):
    """`controls`: the nodes it was learned from; `epoch` and `seq`: the place in their table; `signatures`: of the
    entries, in their order; `aliases`: the mesh-wide ones, capability -> its other names; `infos`: what each of the
    control nodes says of the mesh.
    """

    controls: tuple[str, ...]
    epoch: str
    seq: int
    saved_ms: int
    entries: list[msgspec.Raw]
    signatures: list[bytes] = []
    aliases: dict[str, list[str]] = {}
    infos: dict[str, msgspec.Raw] = {}


def pack_table(entries: Iterable[Entry], *, controls: Sequence[str], place: tuple[str, int], saved_ms: int,
               aliases: dict[str, list[str]], infos: dict[str, msgspec.Raw]) -> CachedTable:
    """What is saved of a table; `place` is `(epoch, seq)`."""
    kept = list(entries)
    return CachedTable(controls=tuple(controls), epoch=place[0], seq=place[1], saved_ms=saved_ms,
                       entries=[msgspec.Raw(entry.encoded) for entry in kept],
                       signatures=[entry.signature for entry in kept], aliases=aliases, infos=infos)


def save_table(path: Path, table: CachedTable) -> None:
    """Replace the file in one step. Raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.touch(0o600)  # the keys of the mesh are in it
        beside.write_bytes(msgspec.json.encode(table))
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def load_table(path: Path, controls: Sequence[str], now_ms: int) -> CachedTable | None:
    """What was saved, or None: there is nothing, it is broken, too old, or of other control nodes."""
    try:
        table = msgspec.json.decode(path.read_bytes(), type=CachedTable)
    except (OSError, msgspec.MsgspecError, ValueError):
        return None
    if not set(table.controls) & set(controls) or not 0 <= now_ms - table.saved_ms <= MAX_AGE_MS:
        return None
    return table


class Instance:
    """The name this process registers under; `close` gives up the lock."""

    def __init__(self, state_dir: Path) -> None:
        self.name = secrets.token_hex(16)
        self._file: int | None = None
        try:
            state_dir.mkdir(parents=True, exist_ok=True)
            self._file = os.open(state_dir / "instance", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            known = os.pread(self._file, 64, 0).decode("ascii", "replace").strip()
            if _INSTANCE.fullmatch(known):
                self.name = known
            else:
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, self.name.encode(), 0)
        except OSError:  # no state, or another process holds it: a fresh name serves, until the next start
            self.close()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
