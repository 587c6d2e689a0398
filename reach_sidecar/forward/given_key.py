"""A caller's own key, where the capability says that it stands elsewhere than in `Idempotency-Key`.

`header:X-Order`, or `json:/order_id`: a place in the JSON body (RFC 6901). Where the place is empty, or the body too
long to be looked into, the usual header counts.
"""

from hashlib import blake2b

import orjson

from reach_sidecar.forward.call import Call
from reach_sidecar.forward.whole_body import whole_body

LONG = 128  # bytes: a longer key, or one that does not fit a header field, travels as its hash


async def given_key(call: Call, place: str) -> bytes | None:
    """The key at `place` of the request, else in its `Idempotency-Key`. Raises Problem where the body breaks off."""
    kind, _, name = place.partition(":")
    request = call.request
    found: bytes | None = None
    if kind == "header":
        found = request.index.get(name.lower().encode("latin-1"))
    elif kind == "json":
        found = _at(await whole_body(call), name)
    return _fitting(found) if found else request.index.get(b"idempotency-key")


def _at(raw: bytes | None, pointer: str) -> bytes | None:
    """The text or number at a JSON pointer; None where there is none."""
    if not raw:
        return None
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return orjson.dumps(value)
    return None


def _fitting(key: bytes) -> bytes:
    if len(key) <= LONG and all(0x21 <= byte < 0x7F for byte in key):
        return key
    return b"hash-" + blake2b(key, digest_size=24).hexdigest().encode()
