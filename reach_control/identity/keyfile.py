"""`identity.json` in the state directory: secrets, so only its owner may read it. Replaced in one step."""

import os
from pathlib import Path

import msgspec


class KeyFileError(Exception):
    """The file cannot be read or written; the text says why and what to do."""


class OwnKey(msgspec.Struct, frozen=True, kw_only=True):
    """`seed` of 32 bytes makes the signing key; `made_ms` is since when it is announced."""

    seed: bytes
    made_ms: int


class OtherKey(msgspec.Struct, frozen=True, kw_only=True):
    """A public key of another control node, and when that last named it."""

    public: bytes
    heard_ms: int


class KeyFile(msgspec.Struct, frozen=True, kw_only=True):
    """`own`: this node's keys, oldest first. `secret` and `made_ms`: the mesh's. `info_version` and `info_digest`: of
    what was last told of the mesh."""

    node: str
    own: tuple[OwnKey, ...]
    secret: bytes
    made_ms: int
    others: tuple[OtherKey, ...] = ()
    info_version: int = 0
    info_digest: bytes = b""


def load(path: Path) -> KeyFile | None:
    """What is there; None if nothing is. Raises KeyFileError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeyFileError(f"Cannot read {path}: {error.strerror}. See that this user may read it.") from None
    try:
        found = msgspec.json.decode(data, type=KeyFile)
    except (msgspec.MsgspecError, ValueError) as error:
        raise KeyFileError(
            f"{path} is damaged ({error}). Restore it from a backup; without one move it away and start again: this "
            "node then makes new keys, and all agents register anew within one heartbeat."
        ) from None
    if not found.own or any(len(key.seed) != 32 for key in found.own) or len(found.secret) != 32:
        raise KeyFileError(f"{path} holds no usable keys. Restore it from a backup, or move it away.")
    return found


def save(path: Path, keys: KeyFile) -> None:
    """Write it, so that a crash at any moment leaves the old or the new one. Raises KeyFileError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(keys)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise KeyFileError(
            f"Cannot write {path}: {error.strerror}. See that the disk has space and this user may write there."
        ) from None
