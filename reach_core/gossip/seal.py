"""Only members read and write datagrams: AES-256-GCM with a key that control nodes hand out and change.

    0x01 | key number, 4 bytes | nonce, 12 bytes | ciphertext and tag

The key of each six hours follows from the mesh's secret and its number, so every control node that shares the secret
has it. Sidecars get the previous, the current and the next one and send with the one control calls current: their own
clocks take no part, and those who change over a little earlier or later understand each other.

Nonces are random, 96 bits. Ten thousand nodes that never stopped telling news, eighty datagrams a second each, would
seal 2^34 under one key: two of them have the same nonce with a chance below 2^-28 (n^2 / 2^97). What then could be
forged are datagrams; the entries in them have signatures of their own. A datagram that is sent again by a stranger does
nothing: what it tells is known.
"""

import hmac
from collections.abc import Mapping

KEY_BYTES = 32
KEY_LIFE_MS = 6 * 3600 * 1000
NONCE_BYTES = 12
TAG_BYTES = 16
_FORMAT = 1
_MAX_NUMBER = 2**32 - 1
_HEADER_BYTES = 5
_BEFORE_TEXT = _HEADER_BYTES + NONCE_BYTES
OVERHEAD = _BEFORE_TEXT + TAG_BYTES


def number_at(now_ms: int) -> int:
    """Of the key that is current at that time."""
    return now_ms // KEY_LIFE_MS


def derive(secret: bytes, number: int) -> bytes:
    """The key of that number, 32 bytes."""
    return hmac.digest(secret, b"reach datagrams %d" % number, "sha256")


def keys_at(secret: bytes, now_ms: int) -> dict[int, bytes]:
    """The previous, the current and the next key by their numbers."""
    current = number_at(now_ms)
    return {number: derive(secret, number) for number in (current - 1, current, current + 1)}


class MeshKeys:
    """`keys` of 32 bytes by number; what is sent is sealed with `current`. Any other length is left out."""

    def __init__(self, keys: Mapping[int, bytes], current: int) -> None:
        from cryptography.exceptions import InvalidTag  # late: 10 ms and 6 MiB that only gossip needs
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.current = current
        self._wrong: type[Exception] = InvalidTag
        self._by_header = {
            _header(number): AESGCM(key)
            for number, key in keys.items()
            if len(key) == KEY_BYTES and 0 <= number <= _MAX_NUMBER
        }
        self._header = _header(current) if 0 <= current <= _MAX_NUMBER else b""

    @property
    def can_seal(self) -> bool:
        """Is the current key among those given?"""
        return self._header in self._by_header

    def seal(self, plain: bytes, nonce: bytes) -> bytes:
        """`nonce`: 12 random bytes, never used before. Raises KeyError without a current key, ValueError for a nonce
        of another length."""
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
        return self._header + nonce + self._by_header[self._header].encrypt(nonce, plain, self._header)

    def open(self, data: bytes) -> bytes | None:
        """What was sealed; None if it was not sealed with one of these keys, or altered since."""
        header = data[:_HEADER_BYTES]
        key = self._by_header.get(header)
        if key is None or len(data) < OVERHEAD:
            return None
        try:
            return key.decrypt(data[_HEADER_BYTES:_BEFORE_TEXT], data[_BEFORE_TEXT:], header)
        except self._wrong:
            return None


def _header(number: int) -> bytes:
    return _FORMAT.to_bytes(1) + number.to_bytes(4)
