"""What `reach run` is going to run: the agent's id, its port, the sidecar's configuration, its locked state."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from reach_cli.failure import Failed
from reach_cli.run_ports import free_port, is_free
from reach_os.ports import who_listens
from reach_os.state_dir import StateDir, StateDirError, StateDirTaken, lock_state_dir, state_home
from reach_sidecar.config import ListenConfig, SidecarConfig, complete, sidecar_from_flags

INTERPRETERS = ("python", "pypy", "node", "deno", "bun", "ruby", "perl", "bash", "sh", "java", "uv", "poetry", "npx")
# How often a locked id or a busy port is stepped over before giving up.
MAX_SLOTS = 200


@dataclass
class Plan:
    """`state` is the sidecar's directory, locked already: so no other run settles on the same id."""

    agent_id: str
    port: int
    config: SidecarConfig
    state: StateDir


def make_plan(
    base: SidecarConfig | None,
    command: Sequence[str],
    *,
    agent_id: str | None,
    port: int | None,
    capabilities: Sequence[str],
    controls: Sequence[str] = (),
    auto_ports: bool = False,
    env: Mapping[str, str] | None = None,
) -> Plan:
    """Settle id, ports and state directory, and lock it. Raises Failed, or ConfigError for wrong flags.

    Without a port the agent is offered a free one; which one is tried first depends on the directory and the
    command alone, so that an agent keeps its port, its id and its state from one run to the next.
    """
    env = os.environ if env is None else env
    given_agent = base.agent if base is not None else None
    agent_id = agent_id or (given_agent.id if given_agent else None)
    port_of_file = _port_of(given_agent.address if given_agent else None)
    port = port or port_of_file
    if port is not None and not is_free(port):
        if not auto_ports:
            who = who_listens(port)
            raise Failed(
                f"The agent's port {port} is taken{f' by {who}' if who else ''}. Stop that, choose another --port, or "
                "let --auto-ports find a free one (the agent finds it in $PORT)."
            )
        port = None
    directory, stem = os.getcwd(), command_stem(command)
    first = int.from_bytes(_digest(directory, *command)[:4], "big")
    taken: set[int] = set()
    for _ in range(MAX_SLOTS):
        chosen = port or free_port(first, frozenset(taken))
        taken.add(chosen)
        identity = agent_id or f"{stem}-{_digest(directory, str(chosen))[:2].hex()}"
        # An address in the file stays as it is written there.
        told = None if chosen == port_of_file else chosen
        config = sidecar_from_flags(base=base, agent_id=identity, port=told, capabilities=capabilities)
        state_dir = Path(config.state_dir) if config.state_dir else state_home(env) / identity
        try:
            state = lock_state_dir(state_dir)
        except StateDirTaken as locked:
            if agent_id is None and port is None and (base is None or not base.state_dir):
                continue
            holder = "another process" if locked.pid is None else f"process {locked.pid}"
            raise Failed(
                f"{identity!r} is running already: its state in {state_dir} is locked by {holder}. Stop "
                "that one, or start this one with another --id."
            ) from None
        except StateDirError as error:
            raise Failed(str(error)) from None
        # An id that was made up gives way to the one the agent registers itself with.
        made_up = agent_id is None
        config = msgspec.structs.replace(config, id=identity, provisional=made_up, state_dir=str(state.path))
        if controls:
            config = msgspec.structs.replace(config, control=list(controls))
        if auto_ports:
            config = msgspec.structs.replace(config, listen=_any_port(config))
        return Plan(identity, chosen, complete(config, env, root=False), state)
    raise Failed(f"{MAX_SLOTS} agents named {stem}-… run from {directory} already. Give this one an --id.")


def command_stem(command: Sequence[str]) -> str:
    """What an agent's id begins with: the script's name for an interpreter, else the program's.

    `python -u agents/planner.py` -> `planner`; `python -m pkg.worker` -> `worker`; `./serve.sh` -> `serve`.
    """
    program = _stem(command[0])
    if program.rstrip("0123456789.") in INTERPRETERS:
        words = iter(command[1:])
        for word in words:
            if word == "-m":
                return _plain(next(words, program).rpartition(".")[2])
            if word in ("-c", "-e"):
                break
            if word not in ("run", "exec") and not word.startswith("-"):
                return _plain(_stem(word))
    return _plain(program)


def _stem(path: str) -> str:
    name = os.path.basename(path)
    return name[: name.rindex(".")] if "." in name[1:] and not name[-1].isdigit() else name


def _plain(name: str) -> str:
    """`name` fit for an agent id."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-")[:40]
    return kept.lower() or "agent"


def _digest(*parts: str) -> bytes:
    return blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=8).digest()


def _port_of(address: str | None) -> int | None:
    return urlsplit(address).port or 80 if address else None


def _any_port(config: SidecarConfig) -> ListenConfig:
    """The same hosts, any free port each."""
    listen = config.listen
    free = {
        name: f"{getattr(listen, name).rpartition(':')[0]}:0" for name in ("outbound", "mesh", "admin", "probe")
        if getattr(listen, name, None)
    }  # fmt: skip
    return msgspec.structs.replace(listen, **free)
