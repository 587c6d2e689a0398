"""What fits into one datagram: news (whole entries, or hints of those that are too large) and acknowledgements.

At most 1,200 bytes on the wire, so that no path cuts it into fragments; MessagePack, because entries are bytes already
and base64 would cost a third. Every field is bounded, and a datagram that is too long is refused before it is read: so
reading one costs little, whatever it holds. Fields of a later version are skipped, a datagram of an unknown kind is
refused.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from reach_core.gossip.seal import OVERHEAD
from reach_core.peer import DIGEST_BYTES, Count, Entry, Order, pack_entry

MAX_DATAGRAM = 1200
MAX_PLAIN = MAX_DATAGRAM - OVERHEAD
NEWS, ACK = 0, 1
MAX_NEWS = 64

_FRAME = 28  # the heads of arrays and of the sender, kind, number, notice: each at its longest
_HEAD_OF_BIN = 3
_HINT = 1 + 2 + 9 + 9 + 2 + 2 + DIGEST_BYTES  # the same, without the id's characters

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
Known = Annotated[int, msgspec.Meta(ge=NEWS, le=ACK)]
Digest = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Packed = Annotated[bytes, msgspec.Meta(max_length=MAX_PLAIN)]


class DatagramError(ValueError):
    """The bytes are no datagram of ours; the text says why."""


class Hint(msgspec.Struct, frozen=True, array_like=True):
    """There is an entry of that agent, and how new it is: who knows an older one may fetch it."""

    agent_id: Id
    gen: Count
    ver: Count
    rank: Annotated[int, msgspec.Meta(ge=0, le=255)]
    digest: Digest

    @property
    def order(self) -> Order:
        """Comparable with `Entry.order`."""
        return self.gen, self.ver, self.rank, self.digest


class Datagram(msgspec.Struct, frozen=True, array_like=True):
    """`kind` is NEWS or ACK; `sender` an agent's id or a control node's. A `number` above 0 wants an acknowledgement
    that names it. `notice` is the newest version of what holds mesh-wide (MeshInfo) that the sender knows of."""

    kind: Known
    sender: Id
    number: Count = 0
    notice: Count = 0
    entries: Annotated[tuple[Packed, ...], msgspec.Meta(max_length=MAX_NEWS)] = ()
    hints: Annotated[tuple[Hint, ...], msgspec.Meta(max_length=MAX_NEWS)] = ()


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Datagram)


def encode(datagram: Datagram) -> bytes:
    """At most MAX_PLAIN bytes where `pack` made it."""
    return _ENCODER.encode(datagram)


def decode(data: bytes) -> Datagram:
    """Raises DatagramError, and nothing else, whatever the bytes."""
    if len(data) > MAX_PLAIN:
        raise DatagramError(f"{len(data)} bytes are more than fit into a datagram")
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DatagramError(str(error)) from None


def room_for(sender: str) -> int:
    """Bytes that entries and hints may take in a datagram of `sender`."""
    return MAX_PLAIN - _FRAME - len(sender.encode())


def hint_of(entry: Entry) -> Hint:
    """What is said of an entry that does not fit."""
    return Hint(entry.agent_id, *entry.order)


def pack(entries: Sequence[Entry], sender: str, notice: int, number: int = 0) -> tuple[Datagram, int]:
    """News of as many of `entries`, from the front, as fit; how many those are (at least one, if there is any)."""
    most = room = room_for(sender)
    whole: list[bytes] = []
    hints: list[Hint] = []
    taken = 0
    for entry in entries[:MAX_NEWS]:
        packed = pack_entry(entry)
        size = len(packed) + _HEAD_OF_BIN
        fits_alone = size <= most
        if not fits_alone:
            size = _HINT + len(entry.agent_id)
        if size > room:
            break
        room -= size
        taken += 1
        if fits_alone:
            whole.append(packed)
        else:
            hints.append(hint_of(entry))
    return Datagram(NEWS, sender, number, notice, tuple(whole), tuple(hints)), taken


def acknowledgement(number: int, sender: str, notice: int) -> Datagram:
    """Of the datagram that had this number."""
    return Datagram(ACK, sender, number, notice)
