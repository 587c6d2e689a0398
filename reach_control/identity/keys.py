"""This node's keys while it runs: whose signatures count, what is signed with, what datagrams are sealed with.

A signing key serves for KEY_LIFE_MS. Its successor is announced for ANNOUNCE_MS before anything is signed with it, so
that every sidecar knows it by then; the old one stays announced until nothing in the table is signed with it any more.
Keys of other nodes count as long as those name them, and RETIRE_MS longer.

The mesh has one secret, from which the keys of datagrams follow. Each node makes one at its first start, and of two
nodes that meet the older secret holds.
"""

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec

from reach_control.identity.keyfile import KeyFile, OtherKey, OwnKey, load, save
from reach_core.gossip.seal import MeshKeys, keys_at, number_at
from reach_core.keyring import Keyring, Signer, key_id

DAY_MS = 24 * 3600 * 1000
KEY_LIFE_MS = 30 * DAY_MS
ANNOUNCE_MS = 10 * 60 * 1000
RETIRE_MS = 7 * DAY_MS
MOST_OTHERS = 64
HEARD_EVERY_MS = 3600 * 1000  # how exactly it is noted when another node last named a key


class NodeKeys:
    """`node` is this node's id. After a change that is new, the caller saves, and tells what is told of the mesh."""

    def __init__(self, path: Path, now_ms: int) -> None:
        """Reads `path`, or makes new keys there. Raises KeyFileError."""
        self._path = path
        found = load(path)
        if found is None:
            found = KeyFile(node=f"control-{secrets.token_hex(4)}", own=(OwnKey(seed=os.urandom(32), made_ms=0),),
                            secret=os.urandom(32), made_ms=now_ms)
            save(path, found)
        self._file = found
        self._signers = {key.seed: Signer(key.seed) for key in found.own}
        self.keyring = Keyring()
        self._refresh_keyring()
        self._mesh_keys: MeshKeys | None = None
        self._mesh_keys_of = (b"", -1)

    @property
    def node(self) -> str:
        return self._file.node

    @property
    def secret(self) -> tuple[bytes, int]:
        """The mesh's, and since when it is."""
        return self._file.secret, self._file.made_ms

    @property
    def info(self) -> tuple[int, bytes]:
        """Version and digest of what was last told of the mesh."""
        return self._file.info_version, self._file.info_digest

    def signer(self, now_ms: int) -> Signer:
        """The latest key that was announced long enough."""
        able = [key for key in self._file.own if now_ms - key.made_ms >= ANNOUNCE_MS]
        return self._signers[(able or self._file.own)[-1 if able else 0].seed]

    def own_publics(self) -> list[bytes]:
        """Those that others should accept as this node's."""
        return [self._signers[key.seed].public for key in self._file.own]

    def mesh_keys(self, now_ms: int) -> tuple[dict[int, bytes], int]:
        """Keys of datagrams by number, and the number of the current one."""
        return keys_at(self._file.secret, now_ms), number_at(now_ms)

    def seal(self, now_ms: int) -> MeshKeys:
        """The same, ready for use."""
        wanted = (self._file.secret, number_at(now_ms))
        if self._mesh_keys is None or wanted != self._mesh_keys_of:
            self._mesh_keys, self._mesh_keys_of = MeshKeys(*self.mesh_keys(now_ms)), wanted
        return self._mesh_keys

    def is_older(self, secret: bytes, made_ms: int) -> bool:
        """Would that one hold instead of this node's?"""
        return len(secret) == 32 and (made_ms, secret) < (self._file.made_ms, self._file.secret)

    def good_ids(self, now_ms: int) -> frozenset[bytes]:
        """Of the keys that are to stay: what is signed with another one is to be signed anew."""
        others = (one.public for one in self._file.others if now_ms - one.heard_ms < RETIRE_MS)
        return frozenset(key_id(public) for public in (self.signer(now_ms).public, *others))

    # -- changes: each returns whether there is something new

    def learn(self, publics: Iterable[bytes], now_ms: int) -> bool:
        """Another node names its keys."""
        known = {one.public: one for one in self._file.others}
        mine = set(self.own_publics())
        is_new = False
        for public in publics:
            if len(public) != 32 or public in mine:
                continue
            before = known.get(public)
            if before is None and len(known) >= MOST_OTHERS:
                continue
            if before is None or now_ms - before.heard_ms > HEARD_EVERY_MS:
                known[public] = OtherKey(public=public, heard_ms=now_ms)
                is_new = True
        if is_new:
            self._change(others=tuple(known.values()))
        return is_new

    def adopt(self, secret: bytes, made_ms: int) -> bool:
        """Another node has this secret: of two the older holds."""
        if not self.is_older(secret, made_ms):
            return False
        self._change(secret=secret, made_ms=made_ms)
        return True

    def rotate(self, now_ms: int, after_ms: int = KEY_LIFE_MS) -> bool:
        """Announce a new signing key if the latest is older than `after_ms`."""
        latest = self._file.own[-1]
        if latest.made_ms == 0:  # the first of all is good at once; its age counts from now on
            self._change(own=(*self._file.own[:-1], OwnKey(seed=latest.seed, made_ms=now_ms - ANNOUNCE_MS)))
            return True
        if now_ms - latest.made_ms <= after_ms:
            return False
        new = OwnKey(seed=os.urandom(32), made_ms=now_ms)
        self._signers[new.seed] = Signer(new.seed)
        self._change(own=(*self._file.own, new))
        return True

    def retire(self, in_use: Iterable[bytes], now_ms: int) -> bool:
        """Drop the old keys that sign nothing of the table any more; `in_use` are ids of those that do."""
        used, current = set(in_use), self.signer(now_ms).public
        own = tuple(key for key in self._file.own
                    if (public := self._signers[key.seed].public) == current or key_id(public) in used
                    or key.made_ms >= now_ms - ANNOUNCE_MS)
        others = tuple(one for one in self._file.others
                       if now_ms - one.heard_ms < RETIRE_MS or key_id(one.public) in used)
        if (own, others) == (self._file.own, self._file.others):
            return False
        self._change(own=own, others=others)
        return True

    def told(self, version: int, digest: bytes) -> None:
        """What is told of the mesh has changed."""
        self._change(info_version=version, info_digest=digest)

    def save(self) -> None:
        """Raises KeyFileError."""
        save(self._path, self._file)

    def _change(self, **changes: object) -> None:
        self._file = msgspec.structs.replace(self._file, **changes)
        self._refresh_keyring()

    def _refresh_keyring(self) -> None:
        self.keyring.replace([*self.own_publics(), *(one.public for one in self._file.others)])
