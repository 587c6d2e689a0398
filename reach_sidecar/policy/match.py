"""Which capability a call is for: exact → alias → fallback, first hit wins (design §3, "Matching").

Exact names and aliases are looked up in the table. Here is what comes after: the fallback that a capability
declares, and what a call means that names an agent only.
"""

from collections.abc import Callable, Iterator, Sequence

from reach_core.names import normalise
from reach_core.peer import Capability

MAX_FALLBACKS = 2
_DEDUP_STRENGTH = {"off": 0, "memory": 1, "durable": 2}


def fallbacks(name: str, declared: Callable[[str], str | None]) -> Iterator[str]:
    """The names to try after `name`, normalised: at most two, none twice, and never `name` itself.

    `declared` says the fallback that the capability of a normalised name declares, if any; it is asked only when
    the next name is wanted.
    """
    name = normalise(name)
    tried = [name]
    for _ in range(MAX_FALLBACKS):
        declared_one = declared(name)
        if declared_one is None:
            return
        name = normalise(declared_one)
        if name in tried:
            return
        tried.append(name)
        yield name


def asked_by_path(capabilities: Sequence[Capability], path: str) -> Capability | None:
    """Which of an agent's capabilities a call is for that names the agent only (`/to/@agent/process`).

    The one whose `path` equals `path` without its query; an agent's only one, whatever the path; else None.
    None, too, where several have that path: nothing says which of their rules hold.
    """
    if len(capabilities) == 1:
        return capabilities[0]
    plain = path.partition("?")[0]
    found = [one for one in capabilities if one.path == plain]
    return found[0] if len(found) == 1 else None


def meant_by_path(capabilities: Sequence[Capability], path: bytes) -> Capability:
    """`asked_by_path`; where that does not tell, a nameless capability with the most careful of the agent's rules."""
    found = asked_by_path(capabilities, path.decode("latin-1"))
    if found is not None:
        return found
    dedup = max((one.dedup for one in capabilities), key=_DEDUP_STRENGTH.__getitem__, default="memory")
    return Capability(name="-", dedup=dedup)
