"""What a request on the outbound door is for: a capability, an agent, the local API, or a host outside.

Four ways to name a target, in this order of precedence (design §2): the `Reach-Target` header, the absolute
form of a forward proxy, the `Host`, the path `/to/…`. What named the target is cut away from the path.
"""

import functools
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote_to_bytes

SUFFIX = b".reach"
AGENT_SUFFIX = b".agent.reach"
REMEMBER_AT_MOST = 256  # bytes of a target


class Destination(NamedTuple):
    """`path` is path and query for the agent; None: the capability's own path, with `query` behind it.

    `kind` is `capability`, `agent`, `outside` (then `name` is `host[:port]`), or `here` (the local API).
    """

    kind: Literal["capability", "agent", "outside", "here"]
    name: str
    path: bytes | None
    query: bytes = b""


class NamingError(ValueError):
    """The request names its target in a way that cannot be understood; the text says what to write."""


def destination(target: bytes, host: bytes | None, reach_target: bytes | None,
                connect_host: bytes | None = None) -> Destination:
    """Whom the request is for. `target` is the request-target; `connect_host` the host of a CONNECT around it.

    The usual few are remembered; long targets are not, and no query is: it may hold what nobody should keep.
    Raises NamingError.
    """
    find = _destination if len(target) > REMEMBER_AT_MOST or b"?" in target else _remembered
    return find(target, host, reach_target, connect_host)


def _destination(target: bytes, host: bytes | None, reach_target: bytes | None,
                 connect_host: bytes | None) -> Destination:
    authority = connect_host
    path = target
    if not target.startswith(b"/") and target != b"*":
        authority, path = split_absolute(target)
    if reach_target is not None:
        return _named(reach_target, path)
    if authority is not None:
        return _by_host(authority, path) or Destination("outside", authority.decode("latin-1"), path)
    if host is not None:
        by_host = _by_host(host, path)
        if by_host is not None:
            return by_host
    if path.startswith(b"/to/"):
        return _by_path(path)
    return Destination("here", "", path)


_remembered = functools.lru_cache(maxsize=1024)(_destination)


def split_absolute(target: bytes) -> tuple[bytes, bytes]:
    """`http://host:port/path?query` as (`host:port`, `/path?query`). User info is not part of an authority here."""
    rest = target[7:]
    end = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
    authority, path = rest[:end], rest[end:]
    if b"@" in authority or not authority:
        raise NamingError("The URL must name a host, without user name or password.")
    if not path.startswith(b"/"):
        path = b"/" + path
    return authority, path


def _named(name: bytes, path: bytes) -> Destination:
    text = name.decode("utf-8", "replace").strip()
    if not text.strip("@ "):
        raise NamingError("Reach-Target is empty: name a capability, or an agent as @its-id.")
    if text.startswith("@"):
        return Destination("agent", text[1:], path)
    return Destination("capability", text, path)


def _by_host(authority: bytes, path: bytes) -> Destination | None:
    host = authority.rpartition(b":")[0] if b":" in authority else authority
    host = host.lower().rstrip(b".")
    kind: Literal["capability", "agent"] = "agent" if host.endswith(AGENT_SUFFIX) else "capability"
    suffix = AGENT_SUFFIX if kind == "agent" else SUFFIX
    if host.endswith(suffix):
        name = host[:-len(suffix)].decode("latin-1")
        if not name.strip("."):
            raise NamingError("The host names nobody: call <capability>.reach or <agent id>.agent.reach.")
        return Destination(kind, name, path)
    return None


def _by_path(path: bytes) -> Destination:
    whole, mark, query = path[4:].partition(b"?")
    name, slash, rest = whole.partition(b"/")
    text = unquote_to_bytes(name).decode("utf-8", "replace")
    kind: Literal["capability", "agent"] = "capability"
    if text.startswith("@"):
        kind, text = "agent", text[1:]
    if not text.strip():
        raise NamingError("The path must name a capability or an agent: /to/summarize/… or /to/@summarizer-01/….")
    if slash:
        return Destination(kind, text, b"/" + rest + mark + query)
    return Destination(kind, text, None, mark + query)


def own_path(path: str, query: bytes) -> bytes:
    """A capability's own path for the wire, with the caller's `query` (`?…` or nothing) behind it.

    The path comes from another agent's entry: whatever it holds, it stays one request-target.
    """
    own = quote(path, safe="/%:@!$&'()*+,;=~?").encode()
    return own + (b"&" + query[1:] if query and b"?" in own else query)
