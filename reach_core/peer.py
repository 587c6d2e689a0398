"""The entry: what the mesh knows about one agent, and the order that decides between two entries of the same
agent.

An entry travels and is hashed as the very bytes its maker wrote (`encoded`): a relay passes them on
untouched, so a signature over them stays valid and a reader that knows fewer fields still gets the same
digest. The bytes are a JSON array, which keeps tombstones within 128 bytes; readers ignore elements they do
not know and default those they miss.

A control node's signature goes beside the bytes and is no part of them: two nodes that decide the same write the
same entry, whoever of them signed it.
"""

import re
from enum import IntEnum
from functools import cached_property
from hashlib import blake2b
from typing import Annotated

import msgspec

MAX_ENTRY_BYTES = 4096
MAX_TOMBSTONE_BYTES = 128
TOMBSTONE_LIFE_MS = 24 * 3600 * 1000
DIGEST_BYTES = 16
SIGNATURE_BYTES = 72
"""Eight bytes of the signing key's id, then the Ed25519 signature."""
OWNER_BYTES = 8
AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~:-]{0,62}", re.ASCII)
"""At most 63 characters: an id is also a DNS label (`<id>.agent.reach`), and must fit a tombstone."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]

Order = tuple[int, int, int, bytes]
"""Of two entries of one agent the one with the larger `(gen, ver, rank, digest)` is true."""

DRAINING = "draining"
UNFIT = "unfit"


class Rank(IntEnum):
    """What is known about an agent; within one `ver` the larger wins, so bad news needs no new version."""

    JOINING = 0
    UP = 1
    SUSPECT = 2
    DOWN = 3
    LEFT = 4
    REVOKED = 5

    @property
    def label(self) -> str:
        return self.name.lower()


class Capability(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing an agent can do, as declared by it (design: capability YAML). `timeout_s` in seconds."""

    name: str
    aliases: tuple[str, ...] = ()
    attributes: dict[str, list[str]] = {}
    path: str = "/process"
    timeout_s: Positive | None = None
    adaptive: bool = False
    idempotent: bool = False
    dedup: str = "memory"
    fallback: str | None = None
    mode: str = "sync"
    key: str | None = None
    outcome: str = "header"


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much an agent takes at once, and its share when agents are drawn."""

    max_concurrency: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 64
    queue: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 64
    weight: Positive = 1.0


class Entry(msgspec.Struct, frozen=True, kw_only=True, array_like=True, dict=True):
    """One agent. `gen`: issued at registration, ms; `expires_ms`: only in tombstones; `address`: `host:port`
    of the owner's mesh listener; `flags`: sorted; `owner`: the process that has the agent, as `owner_of` names it.
    Raises ValueError when the parts do not fit together.
    """

    agent_id: str
    gen: Count
    ver: Count
    rank: Rank
    expires_ms: Count | None = None
    cluster: str = ""
    address: str = ""
    version: str = ""
    capabilities: tuple[Capability, ...] = ()
    limits: Limits = Limits()
    flags: tuple[str, ...] = ()
    owner: str = ""

    def __post_init__(self) -> None:
        check_agent_id(self.agent_id)
        if (self.expires_ms is not None) != (self.rank >= Rank.LEFT):
            raise ValueError("an entry has a deadline if, and only if, it is a tombstone (left or revoked)")
        if any(a >= b for a, b in zip(self.flags, self.flags[1:], strict=False)):
            raise ValueError("flags must be sorted and each given once")

    @cached_property
    def encoded(self) -> bytes:
        """The bytes that travel and that are hashed; those it was read from, if it was read."""
        if self.is_tombstone:
            return _ENCODER.encode((self.agent_id, self.gen, self.ver, self.rank, self.expires_ms))
        return _ENCODER.encode(self)

    @cached_property
    def digest(self) -> bytes:
        return blake2b(self.encoded, digest_size=DIGEST_BYTES).digest()

    @property
    def signature(self) -> bytes:
        """`SIGNATURE_BYTES` of them, or none: nobody has signed this entry."""
        return self.__dict__.get("signature", b"")  # type: ignore[no-any-return]

    @cached_property
    def order(self) -> Order:
        return self.gen, self.ver, int(self.rank), self.digest

    @property
    def is_tombstone(self) -> bool:
        return self.rank >= Rank.LEFT

    @property
    def draining(self) -> bool:
        return DRAINING in self.flags

    @property
    def unfit(self) -> bool:
        return UNFIT in self.flags

    def tombstone(self, now_ms: int, rank: Rank = Rank.LEFT, ver: int | None = None) -> "Entry":
        """What is left of this entry for 24 h after removal: it wins over it and over everything older.

        Without `ver` it has that of the entry: removed because nobody heard of it any more. Who leaves has a new one.
        """
        expires_ms = now_ms + TOMBSTONE_LIFE_MS
        ver = self.ver if ver is None else ver
        return Entry(agent_id=self.agent_id, gen=self.gen, ver=ver, rank=rank, expires_ms=expires_ms)


_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(Entry)
_UNSIGNED = bytes(SIGNATURE_BYTES)


def owner_of(instance: str) -> str:
    """How the table names a process, so that nobody who reads the table can pass for it."""
    return blake2b(instance.encode(), digest_size=OWNER_BYTES).hexdigest()


def with_signature(entry: Entry, signature: bytes) -> Entry:
    """The same entry, carrying `signature` (`SIGNATURE_BYTES`) from now on."""
    entry.__dict__["signature"] = signature
    return entry


def pack_entry(entry: Entry) -> bytes:
    """Signature and bytes in one, as gossip carries them."""
    return (entry.signature or _UNSIGNED) + entry.encoded


def unpack_entry(packed: bytes) -> Entry:
    """What `pack_entry` made; nothing is verified. Raises ValueError."""
    entry = decode_entry(packed[SIGNATURE_BYTES:])
    signature = packed[:SIGNATURE_BYTES]
    return entry if signature == _UNSIGNED else with_signature(entry, signature)


def check_agent_id(agent_id: str) -> None:
    """Raises ValueError, saying what an id must look like."""
    if AGENT_ID.fullmatch(agent_id) is None:
        raise ValueError(
            f"{agent_id[:80]!r} is not an agent id: use 1 to 63 letters, digits, '.', '_', '-', '~' or ':', "
            "beginning with a letter or digit"
        )


def decode_entry(encoded: bytes) -> Entry:
    """The entry in `encoded`, which it keeps as its bytes. Raises ValueError, and nothing else, on anything
    else.
    """
    if len(encoded) > MAX_ENTRY_BYTES:
        raise ValueError(f"an entry may have {MAX_ENTRY_BYTES} bytes, this one has {len(encoded)}")
    try:
        entry = _DECODER.decode(encoded)
        entry.agent_id.encode()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"not an entry: {error}") from None
    if entry.is_tombstone and len(encoded) > MAX_TOMBSTONE_BYTES:
        raise ValueError(f"a tombstone may have {MAX_TOMBSTONE_BYTES} bytes, this one has {len(encoded)}")
    entry.__dict__["encoded"] = encoded
    return entry
