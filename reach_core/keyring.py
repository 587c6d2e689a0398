"""Who may write entries: the control nodes' public keys, and what is signed with them (Ed25519).

A signature says which key it is of, so that several nodes' keys, and old and new ones while they change, are good at
the same time. Verifying takes about 0.15 ms: compare versions first. `cryptography` is imported at first use; a
process that only looks at a table does not need it.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

from reach_core.peer import SIGNATURE_BYTES, Entry, with_signature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

KEY_ID_BYTES = 8
PUBLIC_KEY_BYTES = 32
_PURPOSE = b"reach entry 1\0"  # what is signed is an entry and nothing else that these keys may sign one day


def key_id(public: bytes) -> bytes:
    """The first 8 bytes of each signature: which key made it."""
    return blake2b(public, digest_size=KEY_ID_BYTES).digest()


class Keyring:
    """Public keys of 32 bytes each; what is not one is left out."""

    def __init__(self, publics: Iterable[bytes] = ()) -> None:
        self.publics: frozenset[bytes] = frozenset()
        self._keys: dict[bytes, Ed25519PublicKey | None] = {}
        self._by_id: dict[bytes, bytes] = {}
        self.replace(publics)

    def replace(self, publics: Iterable[bytes]) -> None:
        """From now on these keys are good and no others."""
        self.publics = frozenset(public for public in publics if len(public) == PUBLIC_KEY_BYTES)
        self._by_id = {key_id(public): public for public in self.publics}
        self._keys = {name: self._keys.get(name) for name in self._by_id}

    def knows(self, entry: Entry) -> bool:
        """Is it signed with one of these keys, as far as it says?"""
        return entry.signature[:KEY_ID_BYTES] in self._by_id

    def verify(self, entry: Entry) -> bool:
        """Was it signed, as it is, with one of these keys?"""
        name = entry.signature[:KEY_ID_BYTES]
        public = self._by_id.get(name)
        if public is None or len(entry.signature) != SIGNATURE_BYTES:
            return False
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            key = self._keys[name] or Ed25519PublicKey.from_public_bytes(public)
            self._keys[name] = key
            key.verify(entry.signature[KEY_ID_BYTES:], _PURPOSE + entry.encoded)
        except (InvalidSignature, ValueError):
            return False
        return True


class Signer:
    """One signing key, from its seed of 32 bytes. Raises ValueError for any other."""

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._private.public_key().public_bytes_raw()
        self.key_id = key_id(self.public)

    def sign(self, entry: Entry) -> Entry:
        """The same entry with this key's signature."""
        return with_signature(entry, self.key_id + self._private.sign(_PURPOSE + entry.encoded))
