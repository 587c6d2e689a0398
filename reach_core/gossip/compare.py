"""Two nodes find out over TCP where their tables differ, and both end up with both.

    Opening     root hash and 256 bucket hashes   ->  Differences  what the other has in buckets that differ
    Transfer    what it lacks, and what I want    ->  Transferred  what I wanted

Each step is bounded, and where more differs than fits it is drawn at random which buckets, or which part of a bucket
that is too full, are looked at. Each exchange ends either what differed in 32 buckets or moves 200 entries, so a few
comparisons mend any two tables. An entry without a signature is a note of its owner's own and never offered.

A tombstone whose time is over is not offered if its holder has dropped it (`PeerTable.expire` before comparing); one
whose clock is behind still offers it, and the other does not take it.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from reach_core.gossip.datagram import Hint, Id
from reach_core.peer import MAX_ENTRY_BYTES, SIGNATURE_BYTES, Entry, Order, pack_entry
from reach_core.table import BUCKETS, PeerTable

PROTOCOL = 1
MAX_BUCKETS = 32
MAX_HINTS = 2_000
MAX_ENTRIES = 200
MAX_ENTRIES_BYTES = 512 * 1024
MAX_BYTES = 1024 * 1024
BUCKET_HASH_BYTES = 8
_BUCKETS_BYTES = BUCKETS * BUCKET_HASH_BYTES
_PACKED_BYTES = MAX_ENTRY_BYTES + SIGNATURE_BYTES

Packed = Annotated[bytes, msgspec.Meta(max_length=_PACKED_BYTES)]
Bucket = Annotated[int, msgspec.Meta(ge=0, lt=BUCKETS)]
Bound = Annotated[str, msgspec.Meta(max_length=63)]
Hints = Annotated[tuple[Hint, ...], msgspec.Meta(max_length=MAX_HINTS)]


class CompareError(ValueError):
    """The bytes are not such a message, or it cannot be answered now; the text says why."""


class Step(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Any message of a comparison, or its answer."""

    max_bytes: ClassVar[int] = MAX_BYTES
    protocol: Annotated[int, msgspec.Meta(ge=1)] = PROTOCOL


class Opening(Step, frozen=True, kw_only=True, tag="opening"):
    """`buckets`: the first 8 bytes of each bucket's hash, one after the other."""

    sender: Id
    root: Annotated[bytes, msgspec.Meta(max_length=32)]
    buckets: Annotated[bytes, msgspec.Meta(min_length=_BUCKETS_BYTES, max_length=_BUCKETS_BYTES)]


class Differences(Step, frozen=True, kw_only=True, tag="differences"):
    """`same`: nothing differs. `orders`: all that the answering side has in some of the buckets that differ, of which
    there are `differing`; `buckets` says which those are (one without entries has no orders). With `low` or `high` it
    is all from the id `low` on, and up to the one before `high`."""

    same: bool = False
    differing: Annotated[int, msgspec.Meta(ge=0, le=BUCKETS)] = 0
    buckets: Annotated[tuple[Bucket, ...], msgspec.Meta(max_length=MAX_BUCKETS)] = ()
    orders: Hints = ()
    low: Bound = ""
    high: Bound = ""

    @property
    def is_part(self) -> bool:
        """Is that not even all of one bucket?"""
        return bool(self.low or self.high)

    def covers(self, agent_id: str) -> bool:
        """Would an agent of these buckets be among `orders`, if the answering side knew of it?"""
        return self.low <= agent_id and (not self.high or agent_id < self.high)


class Transfer(Step, frozen=True, kw_only=True, tag="transfer"):
    """`entries` for the answering side, and the ids of those the asking side wants from it."""

    sender: Id
    entries: Annotated[tuple[Packed, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()
    want: Annotated[tuple[Id, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()


class Transferred(Step, frozen=True, kw_only=True, tag="transferred"):
    """What was wanted, as far as it is there and fits."""

    entries: Annotated[tuple[Packed, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()


S = TypeVar("S", bound=Step)
_ENCODER = msgspec.msgpack.Encoder()
_QUESTIONS = msgspec.msgpack.Decoder(Opening | Transfer)
_DECODERS: dict[type[Step], msgspec.msgpack.Decoder[Any]] = {}


def encode(step: Step) -> bytes:
    """MessagePack, at most MAX_BYTES."""
    return _ENCODER.encode(step)


def decode(kind: type[S], data: bytes) -> S:
    """The message of that kind. Raises CompareError, and nothing else."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.msgpack.Decoder(kind)
    step: S = _read(decoder, data)
    return step


def decode_question(data: bytes) -> Opening | Transfer:
    """What another node asks. Raises CompareError, and nothing else."""
    step: Opening | Transfer = _read(_QUESTIONS, data)
    return step


def _read(decoder: "msgspec.msgpack.Decoder[Any]", data: bytes) -> Any:
    if len(data) > MAX_BYTES:
        raise CompareError(f"the message has {len(data)} bytes, {MAX_BYTES} are allowed")
    try:
        step = decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CompareError(str(error)) from None
    if step.protocol != PROTOCOL:
        raise CompareError(f"this is protocol {step.protocol}, not {PROTOCOL}: upgrade the older side")
    return step


def opening(table: PeerTable, sender: str) -> Opening:
    """The first question."""
    buckets = b"".join(bucket[:BUCKET_HASH_BYTES] for bucket in table.buckets())
    return Opening(sender=sender, root=bytes.fromhex(table.hash), buckets=buckets)


def differences(table: PeerTable, asked: Opening, random: Random) -> Differences:
    """The answer to it."""
    if asked.root == bytes.fromhex(table.hash):
        return Differences(same=True)
    size = BUCKET_HASH_BYTES
    differing = [number for number, bucket in enumerate(table.buckets())
                 if asked.buckets[number * size : (number + 1) * size] != bucket[:size]]
    chosen: list[int] = []
    hints: list[Hint] = []
    for number in random.sample(differing, min(MAX_BUCKETS, len(differing))):
        ours = _offered(table, number)
        if not chosen and len(ours) > MAX_HINTS:
            low, high = _some(sorted(ours), random)
            part = Differences(differing=len(differing), buckets=(number,), low=low, high=high)
            return msgspec.structs.replace(part, orders=tuple(_hints(ours, part)))
        if len(hints) + len(ours) > MAX_HINTS:
            break
        chosen.append(number)
        hints += _hints(ours)
    return Differences(differing=len(differing), buckets=tuple(chosen), orders=tuple(hints))


def transfer(table: PeerTable, found: Differences, sender: str, random: Random) -> Transfer:
    """The second question: what the answering side lacks, and what this one wants."""
    theirs = {hint.agent_id: hint.order for hint in found.orders}
    ours = {agent_id: order for number in found.buckets for agent_id, order in table.orders(number).items()
            if found.covers(agent_id)}
    want = [agent_id for agent_id, order in theirs.items() if agent_id not in ours or order > ours[agent_id]]
    newer = [agent_id for agent_id, order in ours.items() if agent_id not in theirs or order > theirs[agent_id]]
    random.shuffle(want)
    random.shuffle(newer)
    return Transfer(sender=sender, entries=_packed(table, newer), want=tuple(want[:MAX_ENTRIES]))


def transferred(table: PeerTable, asked: Transfer) -> Transferred:
    """The answer to it; `asked.entries` are for the caller to take in."""
    return Transferred(entries=_packed(table, asked.want))


def is_all(found: Differences, given: Transfer, got: Transferred) -> bool:
    """Did one exchange mend all that differed, as far as each side takes what it was given?"""
    everything_seen = found.differing <= len(found.buckets) and not found.is_part
    had_room = len(given.entries) < MAX_ENTRIES and sum(map(len, given.entries)) <= MAX_ENTRIES_BYTES - _PACKED_BYTES
    return everything_seen and had_room and len(given.want) < MAX_ENTRIES and len(got.entries) == len(given.want)


def push(entries: Sequence[Entry], sender: str) -> Transfer:
    """News over TCP, for one who does not get datagrams."""
    return Transfer(sender=sender, entries=tuple(pack_entry(entry) for entry in entries[:MAX_ENTRIES]))


def _offered(table: PeerTable, number: int) -> dict[str, Order]:
    """What of a bucket others may have."""
    offered = {}
    for agent_id, order in table.orders(number).items():
        entry = table.get(agent_id)
        if entry is not None and entry.signature:
            offered[agent_id] = order
    return offered


def _hints(orders: dict[str, Order], part: Differences | None = None) -> list[Hint]:
    return [Hint(agent_id, *order) for agent_id, order in orders.items() if part is None or part.covers(agent_id)]


def _some(agent_ids: list[str], random: Random) -> tuple[str, str]:
    """Bounds of MAX_HINTS neighbours among these, more of them, sorted; those at the ends are as likely as others."""
    last = len(agent_ids) - MAX_HINTS
    start = min(max(0, random.randrange(1 - MAX_HINTS, len(agent_ids))), last)
    return agent_ids[start] if start else "", agent_ids[start + MAX_HINTS] if start < last else ""


def _packed(table: PeerTable, agent_ids: Sequence[str]) -> tuple[bytes, ...]:
    made: list[bytes] = []
    size = 0
    for agent_id in agent_ids:
        entry = table.get(agent_id)
        if entry is None or not entry.signature:
            continue
        packed = pack_entry(entry)
        size += len(packed)
        if size > MAX_ENTRIES_BYTES or len(made) == MAX_ENTRIES:
            break
        made.append(packed)
    return tuple(made)
