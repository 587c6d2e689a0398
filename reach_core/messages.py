"""What sidecars and control nodes say to each other, as JSON bytes with bounds (design: control plane and the
table).

Readers ignore fields they do not know, so newer and older daemons talk; `protocol` changes only when that is
not enough. `decode` raises MessageError and nothing else, whatever the bytes.
"""

from collections.abc import Iterable
from itertools import zip_longest
from typing import Annotated, ClassVar, TypeVar

import msgspec

from reach_core.peer import Capability, Count, Entry, Limits, decode_entry, unpack_entry, with_signature
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
    has it; `info` is the version of the node's MeshInfo, `hash` the root hash of its table, if it is at hand.
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
    info: Count = 0
    hash: str = ""


class HeartbeatRequest(Message, frozen=True, kw_only=True, omit_defaults=True):
    """Renews the lease. `flags` are the owner's now; `ask`: agents whose load the sidecar wants to know;
    `failures`: how many of the sidecar's calls failed in a row, by the agent called.
    """

    agent_id: Id
    instance: Instance
    gen: Count = 0
    ver: Count = 0
    flags: Flags = ()
    healthy: bool = False
    load: Load | None = None
    ask: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ASKED)] = ()
    failures: Annotated[dict[Id, Count], msgspec.Meta(max_length=MAX_ASKED)] = {}


class HeartbeatAnswer(Message, frozen=True, kw_only=True, omit_defaults=True):
    """`status` is `ok`. `loads`: of the agents asked for, as far as known; the rest as in RegisterAnswer."""

    max_bytes: ClassVar[int] = 64 * 1024
    status: str
    gen: Count
    ver: Count
    rank: str
    lease_ttl_s: float
    epoch: str = ""
    seq: Count = 0
    info: Count = 0
    hash: str = ""
    loads: dict[str, Load] = {}


class LeaveRequest(Message, frozen=True, kw_only=True, omit_defaults=True):
    """The owner goes, and its agent with it. `gen` and `ver` are those of the last answer, as in a heartbeat: a node
    that has not heard of the latest yet must not make a tombstone that looks older.
    """

    agent_id: Id
    instance: Instance
    gen: Count = 0
    ver: Count = 0


class LeaveAnswer(Message, frozen=True, kw_only=True, omit_defaults=True):
    """`status` is `left`."""

    status: str
    agent_id: str


class MeshInfo(Message, frozen=True, kw_only=True, omit_defaults=True):
    """What holds for the whole mesh besides the table, as one control node has it.

    `version` (ms) grows with each change. `aliases`: capability -> its other names. `keys`: public keys of all control
    nodes, 32 bytes each. `mesh_keys`: number -> key of 32 bytes for datagrams, `mesh_key` the one to send with.
    """

    max_bytes: ClassVar[int] = 1024 * 1024
    version: Count
    aliases: dict[str, list[str]] = {}
    keys: Annotated[list[bytes], msgspec.Meta(max_length=256)] = []
    mesh_keys: Annotated[dict[int, bytes], msgspec.Meta(max_length=16)] = {}
    mesh_key: int = 0


class Hello(Message, frozen=True, kw_only=True, omit_defaults=True):
    """Who answers at a mesh listener: the agent's id and its owner, `gen` as last told by control."""

    agent_id: Id
    owner: str = ""
    gen: Count = 0
    version: str = ""


class LookRequest(Message, frozen=True, kw_only=True, omit_defaults=True):
    """Control asks a sidecar whether it can reach the sidecar of `agent_id` at `address`."""

    agent_id: Id
    address: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]


class LookAnswer(Message, frozen=True, kw_only=True, omit_defaults=True):
    """`detail` says why not, in words."""

    alive: bool
    detail: str = ""


class ProbeAnswer(Message, frozen=True, kw_only=True, omit_defaults=True):
    """What the declared health check said just now."""

    fit: bool


class Renewal(msgspec.Struct, frozen=True, array_like=True):
    """A heartbeat that another control node took, `age_s` ago, for the agent's registration `gen`; the load with it."""

    agent_id: Id
    gen: Count
    age_s: float = 0.0
    confirmed: bool = False
    running: Count = 0
    queued: Count = 0
    limit: Count = 0


class NodePush(Message, frozen=True, kw_only=True, omit_defaults=True):
    """What one control node tells another: what changed in its table, and whom it heard of.

    `epoch` is new with each start of the sender; `entries` (packed, as `reach_core.peer.pack_entry`) are what changed
    after `since` up to `seq`, `hash` is the root hash at `seq`, empty where the table has gone on. `keys`: the public
    keys it knows of; `secret` and `made_ms`: the mesh's secret and since when it is; of two nodes' the older holds.
    """

    max_bytes: ClassVar[int] = 8 * 1024 * 1024
    node: Id
    url: Annotated[str, msgspec.Meta(max_length=300)] = ""
    epoch: Annotated[str, msgspec.Meta(max_length=64)] = ""
    since: Count = 0
    seq: Count = 0
    hash: str = ""
    agents: Count = 0
    frozen: str = ""
    entries: Annotated[list[bytes], msgspec.Meta(max_length=1000)] = []
    renewals: Annotated[list[Renewal], msgspec.Meta(max_length=MAX_ENTRIES)] = []
    keys: Annotated[list[bytes], msgspec.Meta(max_length=256)] = []
    secret: bytes = b""
    made_ms: Count = 0


class NodeAnswer(Message, frozen=True, kw_only=True, omit_defaults=True):
    """The answer: who it is from, and its own table as it is after taking in what was told."""

    max_bytes: ClassVar[int] = 64 * 1024
    node: Id
    url: Annotated[str, msgspec.Meta(max_length=300)] = ""
    epoch: Annotated[str, msgspec.Meta(max_length=64)] = ""
    seq: Count = 0
    hash: str = ""
    agents: Count = 0
    frozen: str = ""


class TableAnswer(Message, frozen=True, kw_only=True, omit_defaults=True):
    """What changed after the `since` that was asked for; the whole table if `full`.

    Ask next with this `epoch` and `seq`. `hash` is the root hash of the sender's table at `seq`, empty where
    the table has gone on meanwhile. `aliases` (capability -> its other names, mesh-wide) come with a new
    epoch only; None means unchanged. `signatures` are those of the entries, in their order; `info` is the version of
    the node's MeshInfo.
    """

    max_bytes: ClassVar[int] = 96 * 1024 * 1024  # 20,000 entries of 4 KiB and 50,000 tombstones
    epoch: Annotated[str, msgspec.Meta(max_length=64)]
    seq: Count
    full: bool = False
    hash: str = ""
    aliases: dict[str, list[str]] | None = None
    entries: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_ENTRIES + MAX_TOMBSTONES)] = []
    signatures: Annotated[list[bytes], msgspec.Meta(max_length=MAX_ENTRIES + MAX_TOMBSTONES)] = []
    info: Count = 0


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
    info: int = 0,
) -> bytes:
    """A TableAnswer that carries each entry as the bytes it came in."""
    raw = [msgspec.Raw(entry.encoded) for entry in entries]
    signatures = [entry.signature for entry in entries]
    return encode(TableAnswer(epoch=epoch, seq=seq, full=full, hash=root, aliases=aliases, entries=raw,
                              signatures=signatures, info=info))


def read_entries(encoded: Iterable[msgspec.Raw], signatures: Iterable[bytes] = ()) -> tuple[list[Entry], int]:
    """The entries, and how many could not be read: one bad entry must not cost the whole table.

    Nothing is verified; an entry without a signature has none.
    """
    entries, unreadable = [], 0
    for raw, signature in zip_longest(encoded, signatures, fillvalue=b""):
        try:
            entry = decode_entry(bytes(raw))
        except ValueError:
            unreadable += 1
            continue
        entries.append(with_signature(entry, signature) if signature else entry)
    return entries, unreadable


def unpack_entries(packed: Iterable[bytes]) -> tuple[list[Entry], int]:
    """The same of entries as gossip and control nodes carry them."""
    entries, unreadable = [], 0
    for one in packed:
        try:
            entries.append(unpack_entry(one))
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
