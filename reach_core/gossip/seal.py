"""Only members read and write datagrams: AES-256-GCM with a key that control nodes hand out and change.

    0x01 | key number, 4 bytes | nonce, 12 bytes | ciphertext and tag

The key of each six hours follows from the mesh's secret and its number, so every control node that shares the secret
has it. Sidecars get the previous, the current and the next one and send with the one control calls current: their own
clocks take no part, and those who change over a little earlier or later understand each other. Ten thousand nodes
that send twenty datagrams a second each stay under the 2^32 that are safe with random nonces under one key.
"""

import hmac
from collections.abc import Mapping

KEY_BYTES = 32
KEY_LIFE_MS = 6 * 3600 * 1000
NONCE_BYTES = 12
TAG_BYTES = 16
_FORMAT = 1
_HEADER = 5
OVERHEAD = _HEADER + NONCE_BYTES + TAG_BYTES


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
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # late: 10 MiB that only gossip needs

        self.current = current
        self._sealing = {
            _FORMAT.to_bytes(1) + number.to_bytes(4): AESGCM(key)
            for number, key in keys.items()
            if len(key) == KEY_BYTES and 0 <= number < 2**32
        }
        self._header = _FORMAT.to_bytes(1) + (current & 0xFFFFFFFF).to_bytes(4)

    @property
    def can_seal(self) -> bool:
        """Is the current key among those given?"""
        return self._header in self._sealing

    def seal(self, plain: bytes, nonce: bytes) -> bytes:
        """`nonce`: 12 random bytes, never used before. Raises KeyError without a current key."""
        return self._header + nonce + self._sealing[self._header].encrypt(nonce, plain, self._header)

    def open(self, data: bytes) -> bytes | None:
        """What was sealed; None if it was not sealed with one of these keys, or altered since."""
        from cryptography.exceptions import InvalidTag

        header = data[:_HEADER]
        key = self._sealing.get(header)
        if key is None or len(data) < OVERHEAD:
            return None
        nonce = data[_HEADER : _HEADER + NONCE_BYTES]
        try:
            return key.decrypt(nonce, data[_HEADER + NONCE_BYTES :], header)
        except InvalidTag:
            return None
