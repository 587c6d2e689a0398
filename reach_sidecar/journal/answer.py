"""An agent's answer as it is kept: the head packed into one column, the body beside it."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

Headers = tuple[tuple[bytes, bytes, bytes], ...]  # as http1's messages have them: three forms of bytes for each line


class Answer(NamedTuple):
    status: int
    reason: bytes
    headers: Headers
    body: bytes


_Head = tuple[int, bytes, Headers]
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Head)


def encode_head(status: int, reason: bytes, headers: Sequence[tuple[bytes, bytes, bytes]]) -> bytes:
    return _encoder.encode((status, reason, headers))


def decode_answer(head: bytes, body: bytes) -> Answer:
    """Raises ValueError for a head that `encode_head` did not make."""
    return Answer(*_decoder.decode(head), body)
