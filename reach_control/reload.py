"""A changed configuration file takes effect without a restart, as far as that is possible.

Everything is checked first: a file with a mistake changes nothing. What cannot change while running is named in the
log, and takes effect with the next start.
"""

import asyncio
from pathlib import Path

from reach_control.app import Control
from reach_control.config import load_control
from reach_core.settings.change import adopt
from reach_core.settings.complaint import ConfigError

LIVE = frozenset({"aliases", "log.level"})


async def reread(control: Control, file: Path | None) -> None:
    """Read `file` again and take over what it says; the log says what came of it."""
    log = control.log
    if file is None:
        log.event("info", "reload", detail="This node was started without a file to read again.")
        return
    try:
        wanted = await asyncio.to_thread(load_control, file)
    except ConfigError as error:
        for complaint in error.complaints:
            log.event("error", "reload", detail=f"{complaint} (the old configuration stays in force)")
        return
    control.config, changed, left = adopt(control.config, wanted, LIVE)
    log.level = control.config.log.level
    if "aliases" in changed:
        control.rename(control.config.aliases)
    log.event("info", "reload", detail=f"{file}: {', '.join(changed) or 'nothing'} changed.")
    if left:
        log.event("warn", "reload", detail=f"{file}: {', '.join(left)} cannot change while running: restart the node.")
