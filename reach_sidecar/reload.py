"""A changed configuration file takes effect without a restart, as far as that is possible.

Everything is checked first: a file with a mistake changes nothing. What cannot change while running (ports, ids, the
state directory) is named in the log, and takes effect with the next start.
"""

import asyncio
from pathlib import Path

import msgspec

from reach_core.settings.change import adopt
from reach_core.settings.complaint import ConfigError
from reach_sidecar.app import Sidecar
from reach_sidecar.config import SidecarConfig, load_sidecar
from reach_sidecar.membership.declared import declared_agent

LIVE = frozenset({"agent.version", "agent.address", "agent.weight", "agent.max_concurrency", "agent.queue",
                  "agent.health", "agent.capabilities", "allowed_hosts", "allowed_origins", "drain", "log.level"})


async def reread(sidecar: Sidecar, file: Path | None) -> None:
    """Read `file` again and take over what it says; the log says what came of it."""
    log = sidecar.log
    if file is None:
        log.event("info", "reload", status="unchanged", detail="This sidecar was started without a file to read again.")
        return
    try:
        config = await asyncio.to_thread(load_sidecar, file)
        changed, left = take_over(sidecar, config)
    except ConfigError as error:
        for complaint in error.complaints:
            log.event("error", "reload", status="refused", detail=f"{complaint} (the old configuration stays in force)")
        return
    except ValueError as error:
        log.event("error", "reload", status="refused", detail=f"{file}: {error}. The old configuration stays in force.")
        return
    status = "changed" if changed else "unchanged"
    log.event("info", "reload", status=status, detail=f"{file}: {', '.join(changed) or 'nothing'} changed.")
    if left:
        log.event("warn", "reload", status="needs_restart",
                  detail=f"{file}: {', '.join(left)} cannot change while running: restart the sidecar.")


def take_over(sidecar: Sidecar, wanted: SidecarConfig) -> tuple[list[str], list[str]]:
    """The settings that changed, and those that need a restart. Raises ValueError; then nothing has changed."""
    gone = wanted.agent is not None and wanted.agent.address is None
    config, changed, left = adopt(sidecar.config, wanted, LIVE - {"agent.address"} if gone else LIVE)
    if any(key.startswith("agent.") for key in changed):
        _declare(sidecar, config, changed)
    sidecar.config = config
    sidecar.log.level = config.log.level
    for door in (sidecar.door, sidecar.admin):
        door.allow(config.allowed_hosts, config.allowed_origins)
    return changed, left


def _declare(sidecar: Sidecar, config: SidecarConfig, changed: list[str]) -> None:
    """Only what changed in the file: the agent may have declared the rest itself since the start."""
    agent, local = declared_agent(config), sidecar.local
    names = {"agent.max_concurrency": "max_concurrency", "agent.queue": "queue", "agent.weight": "weight"}
    limits = {name: getattr(agent.limits, name) for key, name in names.items() if key in changed}
    local.configure(
        version=agent.version if "agent.version" in changed else None,
        address=agent.address if "agent.address" in changed else None,
        health=agent.health if "agent.health" in changed else None,
        limits=msgspec.structs.replace(local.limits, **limits) if limits else None,
        capabilities=agent.declared if "agent.capabilities" in changed else None,
    )
