"""What an owner says about its agent -> the entry it becomes, refused with a sentence where it cannot become
one.
"""

from reach_core.address import split_address
from reach_core.messages import RegisterRequest
from reach_core.peer import DRAINING, MAX_ENTRY_BYTES, UNFIT, Entry, Rank, owner_of
from reach_core.problem import Problem

_FLAGS = frozenset({DRAINING, UNFIT})


def known_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Those this version knows, sorted."""
    return tuple(sorted(_FLAGS.intersection(flags)))


def entry_of(request: RegisterRequest, cluster: str, gen: int, ver: int, rank: Rank) -> Entry:
    """The entry. Raises Problem `bad_request` when the id is malformed or the declaration too large."""
    if not _can_be_called(request.address):
        raise Problem(
            "bad_request",
            f"The address {request.address[:80]!r} is not host:port. Give the one peers reach the sidecar's mesh "
            "listener at, such as 10.0.3.7:7071.",
        )
    try:
        entry = Entry(
            agent_id=request.agent_id,
            gen=gen,
            ver=ver,
            rank=rank,
            cluster=cluster,
            address=request.address,
            version=request.version,
            capabilities=request.capabilities,
            limits=request.limits,
            flags=known_flags(request.flags),
            owner=owner_of(request.instance),
        )
    except ValueError as error:
        raise Problem("bad_request", f"The agent cannot be registered: {error}.") from None
    if len(entry.encoded) > MAX_ENTRY_BYTES:
        raise Problem(
            "bad_request",
            f"What {request.agent_id} declares takes {len(entry.encoded)} bytes, {MAX_ENTRY_BYTES} are allowed. "
            "Declare fewer capabilities, aliases or attributes.",
        )
    return entry


def _can_be_called(address: str) -> bool:
    try:
        return split_address(address)[1] > 0
    except ValueError:
        return False
