"""Peers and this sidecar itself, as documents of the local API (design §2). The admin door shows the same."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from reach_core import __version__
from reach_core.names import normalise
from reach_core.problem import Problem
from reach_sidecar.membership.local import LocalAgent
from reach_sidecar.policy.attributes import Requirement, first_unmet, parse_requirements

Document = dict[str, Any]


class Described(Protocol):
    """One peer of the view."""

    def describe(self, now: float, capability: str = "") -> Document: ...


class View(Protocol):
    """The table as this sidecar sees it; `now` is the loop's clock."""

    def peers(self) -> Iterator[Any]: ...

    def peer(self, agent_id: str) -> Any | None: ...

    def names_meant(self, name: str) -> frozenset[str]: ...

    def near(self, name: str) -> list[str]: ...

    def near_agents(self, agent_id: str) -> list[str]: ...

    def table_info(self, now: float) -> Document: ...


class Standing(Protocol):
    """What is shown of membership."""

    @property
    def synced(self) -> asyncio.Event: ...

    @property
    def registered(self) -> asyncio.Event: ...

    @property
    def lease_ttl_s(self) -> float: ...

    @property
    def connected(self) -> bool: ...

    @property
    def control_url(self) -> str | None: ...

    @property
    def problem(self) -> str | None: ...

    @property
    def refusal(self) -> Problem | None: ...

    @property
    def address(self) -> str: ...

    def table_age_s(self, now: float) -> float | None: ...

    async def settled(self) -> None: ...


class AgentDocuments:
    def __init__(self, local: LocalAgent, view: View, membership: Standing) -> None:
        self._local = local
        self.view = view
        self._membership = membership
        self._loop = asyncio.get_running_loop()

    def listing(self, parameters: Mapping[str, str]) -> Document:
        """`GET /v1/agents?capability=&require=`. Raises Problem where `require` cannot be read.

        An agent that offers the capability without the required attributes is shown, excluded as `mismatch`.
        """
        now = self._loop.time()
        wanted = normalise(parameters.get("capability", ""))
        meant = self.view.names_meant(wanted)
        requirements = requirements_of(parameters.get("require", ""))
        agents = []
        for peer in self.view.peers():
            document = peer.describe(now)
            offers = [one for one in document["capabilities"] if not wanted or not meant.isdisjoint(names_of(one))]
            if wanted and not offers:
                continue
            if wanted:
                document = peer.describe(now, normalise(offers[0]["name"]))
            if requirements and document["excluded"] is None:
                document["excluded"] = _mismatch(requirements, offers)
            agents.append(document)
        found: Document = {"agents": agents, "table": self._table()}
        if wanted and not agents:
            found["near"] = self.view.near(wanted)
        return found

    def one(self, agent_id: str) -> Document:
        """`GET /v1/agents/{id}`. Raises Problem `no_such_agent`."""
        peer = self.view.peer(agent_id)
        if peer is None:
            near = self.view.near_agents(agent_id)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else " `reach peers` shows who is here."
            raise Problem("no_such_agent", f"No agent has the id {agent_id!r} in the table of this sidecar.{hint}",
                          extra={"near": near})
        return dict(peer.describe(self._loop.time()))

    def registered(self, agent_id: str) -> Document:
        """`GET /agents/{id}`: an agent that has just registered here is found before control has spread it."""
        local = self._local
        if agent_id == local.agent_id and not local.is_gateway and self.view.peer(agent_id) is None:
            document = self._not_spread_yet()
        else:
            document = self.one(agent_id)
        load = document["load"]
        return {**document, "current_load": load["running"] + load["queued"], "max_concurrency": load["limit"]}

    def count(self) -> int:
        return sum(1 for _ in self.view.peers())

    def about(self) -> Document:
        """`GET /v1/self`."""
        local, membership = self._local, self._membership
        return {
            "agent_id": local.agent_id,
            "version": local.version,
            "address": membership.address,
            "agent_address": local.address,
            "gateway": local.is_gateway,
            "registered": local.registered,
            "flags": list(local.flags),
            "capabilities": self._own_capabilities(),
            "load": self._own_load(),
            "lease_ttl": membership.lease_ttl_s,
            "control": {
                "url": membership.control_url,
                "connected": membership.connected,
                "problem": membership.problem,
            },
            "table": self._table(),
            "sidecar_version": __version__,
        }

    def _not_spread_yet(self) -> Document:
        local = self._local
        return {
            "agent_id": local.agent_id,
            "status": "joining",
            "version": local.version,
            "address": self._membership.address,
            "capabilities": self._own_capabilities(),
            "load": self._own_load(),
            "gen": 0,
            "ver": 0,
            "flags": list(local.flags),
            "excluded": {"reason": "agent_down", "detail": "it has registered here and control does not know it yet"},
        }

    def _table(self) -> Document:
        """`age_s`: since control last confirmed the table, null while there is none."""
        age_s = self._membership.table_age_s(time.monotonic())
        return {**self.view.table_info(self._loop.time()), "age_s": None if age_s is None else round(age_s, 3)}

    def _own_capabilities(self) -> list[Document]:
        return [
            {"name": one.name, "aliases": list(one.aliases), "attributes": one.attributes}
            for one in self._local.declared
        ]

    def _own_load(self) -> Document:
        local = self._local
        return {"running": local.running, "queued": local.queued, "limit": local.limits.max_concurrency, "age_s": 0.0}


def names_of(capability: Document) -> set[str]:
    """Every normalised name that a capability of an agent's document answers to."""
    return {normalise(capability["name"]), *map(normalise, capability["aliases"])}


def requirements_of(text: str) -> tuple[Requirement, ...]:
    try:
        return parse_requirements(text)
    except ValueError as error:
        raise Problem("bad_request", f"`require` cannot be read: {error}.") from None


def _mismatch(requirements: tuple[Requirement, ...], offers: Iterable[Document]) -> Document | None:
    """Why none of `offers` will do, or None where one does."""
    unmet = [first_unmet(requirements, one["attributes"]) for one in offers]
    if None in unmet:
        return None
    missing = str(unmet[0]) if unmet else "it offers nothing"
    return {"reason": "mismatch", "detail": f"its attributes do not meet {missing}"}
