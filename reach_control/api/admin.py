"""The operator's listener: the table as this node has it, the node's own state, metrics."""

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from reach_control.api.health import Health
from reach_control.api.rendering import json_answer
from reach_control.membership.service import Service
from reach_core.peer import Entry, Rank


class AdminApi:
    """Routes of the `admin` listener. `status` gives what `/v1/status` shows beyond the table."""

    def __init__(self, service: Service, health: Health, status: Callable[[], dict[str, Any]]) -> None:
        self._service = service
        self._health = health
        self._status = status

    def routes(self) -> list[web.RouteDef]:
        return [
            *self._health.routes(metrics=True),
            web.get("/v1/peers", self._peers),
            web.get("/v1/status", self._show_status),
        ]

    async def _peers(self, _: web.Request) -> web.Response:
        registry, now = self._service.registry, self._service.clock()
        agents = []
        for entry in sorted(registry.table, key=lambda one: one.agent_id):
            load = registry.load_of(entry.agent_id, now.s)
            shown = peer_document(entry)
            shown["load"] = msgspec.to_builtins(load) if load is not None else None
            silent_s = registry.silent_s(entry.agent_id, now.s)
            shown["heard_s"] = None if silent_s is None else round(silent_s, 1)
            agents.append(shown)
        table = {"entries": len(registry.table), "hash": registry.table.hash, "age_s": 0.0}
        return json_answer({"agents": agents, "table": table})

    async def _show_status(self, _: web.Request) -> web.Response:
        registry, feed = self._service.registry, self._service.feed
        return json_answer(
            {
                "epoch": feed.epoch,
                "seq": registry.table.seq,
                "agents": dict(registry.count_by_status()),
                "tombstones": registry.table.tombstones,
                "hash": registry.table.hash,
                "waiting": feed.waiting,
                "stalls": registry.stalls,
                **self._status(),
            }
        )


def peer_document(entry: Entry) -> dict[str, Any]:
    """An entry as `/v1/agents` of a sidecar shows it; `excluded` is what alone the table says."""
    excluded = None
    if entry.rank != Rank.UP:
        excluded = {"reason": "agent_down", "detail": f"{entry.agent_id} is {entry.rank.label}"}
    elif entry.unfit:
        excluded = {"reason": "agent_unfit", "detail": f"the health checks of {entry.agent_id} fail"}
    elif entry.draining:
        excluded = {"reason": "draining", "detail": f"{entry.agent_id} takes no new calls"}
    return {
        "agent_id": entry.agent_id,
        "status": entry.rank.label,
        "version": entry.version,
        "address": entry.address,
        "capabilities": [
            {"name": one.name, "aliases": list(one.aliases), "attributes": one.attributes} for one in entry.capabilities
        ],
        "gen": entry.gen,
        "ver": entry.ver,
        "flags": list(entry.flags),
        "excluded": excluded,
    }
