"""What sidecars and control nodes say to each other, as JSON bytes with bounds (design: control plane and the
table).

Readers ignore fields they do not know, so newer and older daemons talk; `protocol` changes only when that is
not enough. `decode` raises MessageError and nothing else, whatever the bytes.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar, TypeVar

import msgspec

from reach_core.peer import Capability, Count, Entry, Limits, decode_entry
from reach_core.table import MAX_ENTRIES, MAX_TOMBSTONES

PROTOCOL = 1
MAX_ASKED = 256

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
Instance = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Flags = tuple[str, ...]


class MessageError(ValueError):
    """The bytes are not such a message; the text says why, for the log and the answer."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Any message. `max_bytes` bounds what is read at all."""

    max_bytes: ClassVar[int] = 16 * 1024
    protocol: Annotated[int, msgspec.Meta(ge=1)] = PROTOCOL


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Calls an agent has now; `limit` is its max_concurrency. `age_s` only where it is passed on."""

    running: Count = 0
    queued: Count = 0
    limit: Count = 0
    age_s: float = 0.0


class RegisterRequest(Message, frozen=True, kw_only=True, omit_defaults=True):
    """Also how an owner changes what it declared: same `instance`, the `gen` it has, new content.

    `instance` is random per state directory and tells a second process from the same one asking again.
    `gen` and `ver` are those of the last answer: a `gen` that is still current keeps it and only `ver` grows,
    any other (0 for a process that has just started) gets a new one. `ver` lets a control node that lost its
    latest notes go on above what others have seen.
    `healthy`: the agent's health was confirmed; until it was, the agent is `joining`.
    `takeover`: replace a live process with this id.
    """

    agent_id: Id
    instance: Instance
    gen: Count = 0
    ver: Count = 0
    address: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    version: Annotated[str, msgspec.Meta(max_length=100)] = ""
    capabilities: tuple[Capability, ...] = ()
    limits: Limits = Limits()
    flags: Flags = ()
    healthy: bool = False
    takeover: bool = False
    load: Load | None = None


class RegisterAnswer(Message, frozen=True, kw_only=True, omit_defaults=True):
    """`status` is `registered`. `rank` is the label of the entry's rank; `seq` in `epoch` is where the table
    has it.
    """

    status: str
    agent_id: str
    gen: Count
    ver: Count
    rank: str
    lease_ttl_s: float
    heartbeat_s: float
    epoch: str = ""
    seq: Count = 0


class HeartbeatRequest(Message, frozen=True, kw_only=True, omit_defaults=True):
    """Renews the lease. `flags` are the owner's now; `ask`: agents whose load the sidecar wants to know."""

    agent_id: Id
    instance: Instance
    gen: Count = 0
    ver: Count = 0
    flags: Flags = ()
    healthy: bool = False
    load: Load | None = None
    ask: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ASKED)] = ()


class HeartbeatAnswer(Message, frozen=True, kw_only=True, omit_defaults=True):
    """`status` is `ok`. `loads`: of the agents asked for, as far as known."""

    max_bytes: ClassVar[int] = 64 * 1024
    status: str
    gen: Count
    ver: Count
    rank: str
    lease_ttl_s: float
    epoch: str = ""
    seq: Count = 0
    loads: dict[str, Load] = {}


class LeaveRequest(Message, frozen=True, kw_only=True, omit_defaults=True):
    """The owner goes, and its agent with it."""

    agent_id: Id
    instance: Instance


class LeaveAnswer(Message, frozen=True, kw_only=True, omit_defaults=True):
    """`status` is `left`."""

    status: str
    agent_id: str


class TableAnswer(Message, frozen=True, kw_only=True, omit_defaults=True):
    """What changed after the `since` that was asked for; the whole table if `full`.

    Ask next with this `epoch` and `seq`. `hash` is the root hash of the sender's table at `seq`, empty where
    the table has gone on meanwhile. `aliases` (capability -> its other names, mesh-wide) come with a new
    epoch only; None means unchanged.
    """

    max_bytes: ClassVar[int] = 96 * 1024 * 1024  # 20,000 entries of 4 KiB and 50,000 tombstones
    epoch: Annotated[str, msgspec.Meta(max_length=64)]
    seq: Count
    full: bool = False
    hash: str = ""
    aliases: dict[str, list[str]] | None = None
    entries: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_ENTRIES + MAX_TOMBSTONES)] = []


M = TypeVar("M", bound=Message)
_DECODERS: dict[type[Message], msgspec.json.Decoder[Message]] = {}
_ENCODER = msgspec.json.Encoder()


def encode(message: Message) -> bytes:
    """JSON of the message; what equals its default is left out."""
    return _ENCODER.encode(message)


def encode_table(
    epoch: str,
    seq: int,
    full: bool,
    root: str,
    entries: list[Entry],
    aliases: dict[str, list[str]] | None = None,
) -> bytes:
    """A TableAnswer that carries each entry as the bytes it came in."""
    raw = [msgspec.Raw(entry.encoded) for entry in entries]
    return encode(TableAnswer(epoch=epoch, seq=seq, full=full, hash=root, aliases=aliases, entries=raw))


def read_entries(encoded: Iterable[msgspec.Raw]) -> tuple[list[Entry], int]:
    """The entries, and how many could not be read: one bad entry must not cost the whole table."""
    entries, unreadable = [], 0
    for raw in encoded:
        try:
            entries.append(decode_entry(bytes(raw)))
        except ValueError:
            unreadable += 1
    return entries, unreadable


def decode(kind: type[M], data: bytes) -> M:
    """The message of that kind in `data`. Raises MessageError."""
    if len(data) > kind.max_bytes:
        raise MessageError(f"the message has {len(data)} bytes, {kind.max_bytes} are allowed")
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        message = decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MessageError(str(error)) from None
    if message.protocol != PROTOCOL:
        raise MessageError(f"this is protocol {message.protocol}, not {PROTOCOL}: upgrade the older side")
    return message  # type: ignore[return-value]
