"""`Reach-Session`: the same value goes to the same agent while that one is fit (design §3, "Picking").

A new session goes to the agent that ranks first for it by rendezvous hashing: each agent gets a number made of
session and agent, and the largest wins. So sidecars that never heard of each other's sessions mostly agree, and
an agent that joins or leaves concerns its own share only. The capability is no part of the number: a session that
asks one agent for two things finds it twice.

Hashing alone is uneven, so an agent is passed over where it would get more than 1.25 times the mean of this
capability's sessions, rounded up, and the next in the ranking takes it (Mirrokni, Thorup and Zadimoghaddam,
"Consistent Hashing with Bounded Loads"). One has always room, since not all can be above the mean.

Once placed, a session is remembered and stays, whoever joins; it moves when its agent is not among the fit ones,
and then stays at the new one. Forgotten are those that were not used for longest.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

MAX_SESSIONS = 10_000
BOUND_PER_CENT = 125  # of the mean
LONG = 64  # characters: of a longer session only a digest is remembered


class Sessions:
    """What this sidecar placed. Sessions of different capabilities are different sessions."""

    __slots__ = ("_counts", "_placed")

    def __init__(self) -> None:
        self._placed: OrderedDict[tuple[str, str], str] = OrderedDict()  # (capability, session) -> agent id
        self._counts: dict[tuple[str, str], int] = {}  # (capability, agent id) -> sessions, none of 0

    def place(self, capability: str, session: str, fit: Sequence[str]) -> int:
        """The index in `fit` of the agent that serves the session. `fit`: agent ids, at least one, none twice.

        The order of `fit` does not matter.
        """
        if len(session) > LONG:
            session = blake2b(_bytes(session), digest_size=24).hexdigest()
        key = (capability, session)
        agent = self._placed.get(key)
        if agent is not None:
            self._placed.move_to_end(key)
            if agent in fit:
                return fit.index(agent)
            self._release(capability, agent)
        index = self._choose(capability, session, fit)
        chosen = fit[index]
        self._placed[key] = chosen
        self._counts[capability, chosen] = self._counts.get((capability, chosen), 0) + 1
        if len(self._placed) > MAX_SESSIONS:
            (old_capability, _), old_agent = self._placed.popitem(last=False)
            self._release(old_capability, old_agent)
        return index

    def _choose(self, capability: str, session: str, fit: Sequence[str]) -> int:
        """The one that ranks first among those with room for one more."""
        counts = [self._counts.get((capability, agent), 0) for agent in fit]
        most = -(-BOUND_PER_CENT * (sum(counts) + 1) // (100 * len(fit)))  # rounded up
        seed = blake2b(_bytes(session), digest_size=32).digest()
        best, best_rank = -1, b""
        for index, agent in enumerate(fit):
            if counts[index] < most:
                rank = blake2b(_bytes(agent), key=seed, digest_size=8).digest()
                if best < 0 or rank > best_rank:
                    best, best_rank = index, rank
        return best

    def _release(self, capability: str, agent: str) -> None:
        left = self._counts[capability, agent] - 1
        if left:
            self._counts[capability, agent] = left
        else:
            del self._counts[capability, agent]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # whatever a header held
