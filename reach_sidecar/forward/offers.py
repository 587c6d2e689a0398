"""Who offers what a call asks for: by name, by alias, or one agent by its id; with the attributes it requires."""

from reach_core.names import normalise
from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.membership.view import Offer, PeerView
from reach_sidecar.policy.attributes import first_unmet, parse_requirements

REASONS_SHOWN = 10


class FindOffers:
    """Reads the table as it is now: asked again after a wait, it may say something else."""

    def __init__(self, view: PeerView) -> None:
        self._view = view

    def __call__(self, call: Call) -> list[Offer]:
        """At least one, whatever their state. Raises Problem, with near names."""
        destination = call.destination
        assert destination is not None
        if destination.kind == "agent":
            return self._agent(destination.name, destination.path)
        offers = self._view.offers(call.capability)
        if not offers:
            offers = next(self._view.fallback_offers(call.capability), [])
        if not offers:
            near = self._view.near(destination.name)
            raise Problem("no_such_capability", f"No agent declares the capability {destination.name!r}."
                          + (_suggest(near) or " `reach peers` shows what is declared.")
                          + _same_words(destination.name, near), extra={"near": near})
        if b"reach-require" not in call.request.index:
            return offers
        required = [value for lower, _, value in call.request.headers if lower == b"reach-require"]
        return _meeting(call, offers, b",".join(required), destination.name)

    def _agent(self, name: str, path: bytes | None) -> list[Offer]:
        peer = self._view.peer(name) or self._view.peer_folded(name)
        if peer is None:
            raise Problem("no_such_agent", f"No agent has the id {name!r} in the table of this sidecar."
                          + _suggest(self._view.near_agents(name)))
        return [self._view.offer_of(peer, path)]


def _meeting(call: Call, offers: list[Offer], require: bytes, name: str) -> list[Offer]:
    """The offers whose attributes meet `Reach-Require`. Raises Problem, saying what each one lacks."""
    try:
        wanted = parse_requirements(require.decode("latin-1"))
    except ValueError as error:
        raise Problem("bad_request", f"Reach-Require: {error}.") from None
    unmet = [(offer, first_unmet(wanted, offer.capability.attributes)) for offer in offers]
    fitting = [offer for offer, missing in unmet if missing is None]
    call.mismatched = [f"{offer.peer.agent_id}: {missing} is not met" for offer, missing in unmet if missing]
    if not fitting:
        reasons = "; ".join(call.mismatched[:REASONS_SHOWN])
        raise Problem("no_agent_available", f"No agent that offers {name!r} has the required attributes: {reasons}.")
    return fitting


def _same_words(name: str, near: list[str]) -> str:
    """`push.message` may or may not be `message.push`: only who declares it can say so."""
    words = sorted(normalise(name).split("."))
    other = next((one for one in near if sorted(normalise(one).split(".")) == words), None)
    if other is None:
        return ""
    return f" If it means the same, declare it so: `aliases: [{normalise(name)}]` at the capability {other!r}."


def _suggest(near: list[str]) -> str:
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
