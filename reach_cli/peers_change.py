"""What changed about an agent, in words, and who is known so far. Nothing here reads a clock or a socket.

A watch begins with every agent, and does so again after a gap that cannot be resumed. So what an event says counts less
than how it differs from what was known: whoever is told twice has not changed, and whoever is missing once everybody
has been told is gone.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from reach_cli.agents import load_text

Agent = Mapping[str, Any]
AT_FIRST = "known when the watch began"


class Change(NamedTuple):
    """`event` is `up` (can be called from now on), `down` (no longer) or `changed`; `agent` as it is now."""

    event: str
    agent_id: str
    why: str
    agent: Agent


class Board:
    """The agents as last told."""

    def __init__(self) -> None:
        self._agents: dict[str, Agent] = {}
        self._told: set[str] = set()  # since the stream began
        self._is_first = True

    @property
    def agents(self) -> list[Agent]:
        return [self._agents[agent_id] for agent_id in sorted(self._agents)]

    def begin(self) -> None:
        """A stream begins: who is not told before `complete` is gone."""
        self._told.clear()

    def learn(self, agent: Agent) -> Change | None:
        """The agent as it is now; None if that is no news."""
        agent_id = str(agent.get("agent_id", "?"))
        before = self._agents.get(agent_id)
        self._told.add(agent_id)
        if agent.get("status") == "left":
            self._agents.pop(agent_id, None)
            return Change("down", agent_id, "it left, or was removed", agent) if before is not None else None
        self._agents[agent_id] = agent
        if before is None:
            why = AT_FIRST if self._is_first else "new"
            return Change("up" if is_available(agent) else "down", agent_id, _join(why, _excluded(agent)), agent)
        reasons = differences(before, agent)
        if not reasons:
            return None
        event = "changed"
        if is_available(before) != is_available(agent):
            event = "up" if is_available(agent) else "down"
        return Change(event, agent_id, "; ".join(reasons), agent)

    def complete(self) -> list[Change]:
        """Everybody has been told. Returns those who went while nothing was heard."""
        self._is_first = False
        gone = sorted(self._agents.keys() - self._told)
        changes = []
        for agent_id in gone:
            agent = {**self._agents.pop(agent_id), "status": "left"}
            changes.append(Change("down", agent_id, "gone while nothing was heard from the sidecar", agent))
        return changes


def is_available(agent: Agent) -> bool:
    return not agent.get("excluded")


def differences(before: Agent, after: Agent) -> list[str]:
    """Each in a few words, the most important first; none if only ages differ."""
    found = []
    if before.get("status") != after.get("status"):
        found.append(f"{before.get('status')} -> {after.get('status')}")
    was, is_now = _reason(before), _reason(after)
    if was != is_now and not (found and {was, is_now} <= {"agent_down", ""}):
        found.append(_excluded(after) or f"no longer {was}")
    elif flags := _names_changed(before.get("flags") or (), after.get("flags") or ()):
        found.append(flags)
    if before.get("gen") != after.get("gen"):
        found.append("registered anew")
    found += [
        f"{name} {before.get(name) or '-'} -> {after.get(name) or '-'}"
        for name in ("version", "address")
        if before.get(name) != after.get(name)
    ]
    if offers := _offers_changed(before, after):
        found.append(offers)
    loads = load_text(before.get("load")), load_text(after.get("load"))
    if loads[0] != loads[1]:
        found.append(f"load {loads[0]} -> {loads[1]}")
    if not found and before.get("ver") != after.get("ver"):
        found.append("declared again")
    return found


def _reason(agent: Agent) -> str:
    return str((agent.get("excluded") or {}).get("reason") or "")


def _excluded(agent: Agent) -> str:
    """Why it is not called: `agent_unfit: the health checks of b fail`."""
    excluded = agent.get("excluded") or {}
    parts = [str(excluded[key]) for key in ("reason", "detail") if excluded.get(key)]
    return ": ".join(parts)


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _names_changed(before: Any, after: Any) -> str:
    added, removed = sorted(set(after) - set(before)), sorted(set(before) - set(after))
    return " ".join([*(f"+{name}" for name in added), *(f"-{name}" for name in removed)])


def _offers_changed(before: Agent, after: Agent) -> str:
    """Capabilities that came or went, or those whose aliases or attributes are others."""
    was, is_now = _offers(before), _offers(after)
    if names := _names_changed(was, is_now):
        return f"capabilities {names}"
    others = sorted(name for name in is_now if is_now[name] != was[name])
    return f"attributes of {', '.join(others)}" if others else ""


def _offers(agent: Agent) -> dict[str, Any]:
    return {str(one.get("name")): one for one in agent.get("capabilities") or ()}
