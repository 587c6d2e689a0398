"""The agent beside this sidecar: what it declared, whether it is fit, how much it is doing.

One instance per sidecar, changed on the event loop only. The configuration declares the agent, and so may the
agent itself while it runs (`POST /agents/register`). Whoever has to tell others subscribes to `changed`:
membership sends the new state to control at once. `running` and `queued` are plain ints that the mesh side
moves for every call; they travel with heartbeats and never count as a change.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import msgspec

from reach_core.names import normalise
from reach_core.peer import MAX_ENTRY_BYTES, Capability, Entry, Limits, Rank, check_agent_id, decode_entry

REST_OF_ENTRY = 512
"""Bytes of an entry that are not the agent's own: cluster, address, limits, numbers, flags."""

_ADDRESS = re.compile(
    r"(?:http://)?(?:(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,250}[A-Za-z0-9])?)|\[(?P<v6>[0-9A-Fa-f:.]{2,45})\])"
    r"(?::(?P<port>[0-9]{1,5}))?/?", re.ASCII | re.IGNORECASE)


class AgentIdConflict(Exception):
    """Another agent is already declared here: one sidecar serves one agent (design, local API)."""

    def __init__(self, declared: str, wanted: str) -> None:
        super().__init__(
            f"This sidecar already serves the agent {declared!r} and cannot serve {wanted!r} as well. "
            f"Register as {declared!r}, or start a second sidecar for {wanted!r}."
        )
        self.declared = declared
        self.wanted = wanted


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """How the agent's health is asked for. `path` None means a TCP connect; times are seconds."""

    path: str | None = None
    interval_s: float = 10.0
    timeout_s: float = 2.0
    fail: int = 3


@dataclass(slots=True)
class LocalAgent:
    """`address` is the agent's `http://host:port`, None for a gateway (it serves no agent).

    `provisional` says that `agent_id` was made up (from the host name) and gives way to the one the agent
    registers itself with. `capabilities` maps every normalised name and alias to what was declared; a name
    wins over another capability's alias. `declared` lists them in the order they were given. `confirmed`
    becomes true when the agent's health was seen for the first time: until then its entry is `joining`.
    `draining` asks others to call it no more; once it is `closing`, calls that still come are refused.
    """

    agent_id: str
    version: str = ""
    address: str | None = None
    health: HealthCheck = HealthCheck()
    declared: tuple[Capability, ...] = ()
    limits: Limits = field(default_factory=Limits)
    provisional: bool = False

    running: int = 0
    queued: int = 0
    unfit: bool = False
    draining: bool = False
    closing: bool = False
    registered: bool = False
    confirmed: bool = False
    capabilities: dict[str, Capability] = field(default_factory=dict)
    changed: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.address is not None:
            self.address = agent_address(self.address)
        self._index(self.declared)

    @property
    def is_gateway(self) -> bool:
        return self.address is None

    @property
    def room(self) -> int:
        """Calls it takes at once, as its sidecar's answers say it; 0 while it drains: a table may not tell callers."""
        return 0 if self.draining else self.limits.max_concurrency

    @property
    def flags(self) -> tuple[str, ...]:
        """Sorted, as the table's entry has them."""
        return tuple(name for name, is_set in (("draining", self.draining), ("unfit", self.unfit)) if is_set)

    def declare(
        self,
        agent_id: str,
        address: str | None = None,
        health_path: str | None = None,
        max_concurrency: int | None = None,
        capabilities: Iterable[Capability | str] | None = None,
        version: str | None = None,
    ) -> None:
        """Declare or change the agent while running; what is None stays as it is.

        A plain name keeps the details that are already declared under that name, so that an agent which only
        knows its names does not undo what the configuration says about them. Raises AgentIdConflict, or
        ValueError with a sentence; then nothing has changed.
        """
        if agent_id != self.agent_id and not (self.is_gateway or self.provisional):
            raise AgentIdConflict(self.agent_id, agent_id)
        check_agent_id(agent_id)
        new_address = self.address if address is None else agent_address(address)
        if new_address is None:
            raise ValueError("address is missing: say where the agent listens, such as http://127.0.0.1:9001")
        if health_path is not None and not health_path.startswith("/"):
            raise ValueError(f"health_path is {health_path!r}: it must begin with a slash, such as /healthz")
        if max_concurrency is not None and max_concurrency < 1:
            raise ValueError(f"max_concurrency is {max_concurrency}: it must be at least 1")
        before, was = self._told(), self.declared
        if capabilities is not None:
            self._index(self._with_details(one) for one in capabilities)
        try:
            _check_entry(agent_id, self.version if version is None else version, self.declared)
        except ValueError:
            self._index(was)
            raise
        self.agent_id, self.provisional = agent_id, False
        self.address = new_address
        if health_path is not None:
            self.health = replace(self.health, path=health_path)
        if max_concurrency is not None:
            self.limits = msgspec.structs.replace(self.limits, max_concurrency=max_concurrency)
        if version is not None:
            self.version = version
        if self._told() != before:
            self._fire()

    def configure(
        self,
        *,
        version: str | None = None,
        address: str | None = None,
        health: HealthCheck | None = None,
        limits: Limits | None = None,
        capabilities: Iterable[Capability] | None = None,
    ) -> None:
        """What the configuration says now; what is None stays. Raises ValueError; then nothing has changed."""
        new_address = self.address if address is None else agent_address(address)
        before, was = self._told(), self.declared
        if capabilities is not None:
            self._index(capabilities)
        try:
            _check_entry(self.agent_id, self.version if version is None else version, self.declared)
        except ValueError:
            self._index(was)
            raise
        self.address = new_address
        self.version = self.version if version is None else version
        self.health = self.health if health is None else health
        self.limits = self.limits if limits is None else limits
        if self._told() != before:
            self._fire()

    def set_unfit(self, unfit: bool) -> None:
        if unfit != self.unfit:
            self.unfit = unfit
            self._fire()

    def confirm(self) -> None:
        """The agent answered a health check: from now on it may be called."""
        if not self.confirmed:
            self.confirmed = True
            self._fire()

    def set_draining(self, draining: bool) -> None:
        if draining != self.draining:
            self.draining = draining
            self._fire()

    def _told(self) -> tuple[object, ...]:
        return self.agent_id, self.version, self.address, self.health, self.declared, self.limits

    def _fire(self) -> None:
        for notify in list(self.changed):
            notify()

    def _with_details(self, one: Capability | str) -> Capability:
        if isinstance(one, Capability):
            return one
        name = normalise(one)
        known = self.capabilities.get(name)
        return known if known is not None and known.name == name else Capability(name=name)

    def _index(self, capabilities: Iterable[Capability]) -> None:
        by_name: dict[str, Capability] = {}
        for one in capabilities:
            name = normalise(one.name)
            if not name:
                raise ValueError(f"{one.name!r} is not a capability's name: it needs a letter or a digit")
            if name not in by_name:
                aliases = tuple(dict.fromkeys(normalise(alias) for alias in one.aliases))
                by_name[name] = msgspec.structs.replace(one, name=name, aliases=aliases)
        self.declared = tuple(by_name.values())
        for one in self.declared:
            for alias in one.aliases:
                by_name.setdefault(alias, one)
        self.capabilities = by_name


def _check_entry(agent_id: str, version: str, declared: tuple[Capability, ...]) -> None:
    """Control would refuse what cannot become an entry, and the agent would be out of the mesh."""
    entry = Entry(agent_id=agent_id, gen=0, ver=0, rank=Rank.UP, version=version, capabilities=declared)
    room = MAX_ENTRY_BYTES - REST_OF_ENTRY
    if len(entry.encoded) > room:
        raise ValueError(f"what it declares takes {len(entry.encoded)} bytes and {room} are allowed: declare fewer "
                         "capabilities, aliases or attributes")
    decode_entry(entry.encoded)


def agent_address(text: str) -> str:
    """`http://host:port`, where an agent listens. Raises ValueError with what was expected."""
    match = _ADDRESS.fullmatch(text)
    port = int(match["port"] or 80) if match else 0
    if match is None or not 0 < port < 65536 or (match["v6"] and not _is_address(match["v6"])):
        raise ValueError(
            f"address is {text[:100]!r}: write where the agent listens, without a path, such as http://127.0.0.1:9001"
        )
    host = f"[{match['v6']}]" if match["v6"] else match["name"]
    return f"http://{host}:{port}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def host_and_port(address: str) -> tuple[str, int]:
    """Of an address that `agent_address` accepted: `http://[::1]:9001` -> ("::1", 9001)."""
    parts = urlsplit(address)
    return parts.hostname or "", parts.port or 80
