"""What cannot work in a sidecar's configuration although each setting alone is right."""

from collections.abc import Iterable, Sequence

import msgspec

from reach_core.address import is_loopback, split_address
from reach_core.names import normalise
from reach_core.peer import MAX_ENTRY_BYTES
from reach_core.settings.reading import Fault
from reach_core.units import format_duration
from reach_sidecar.config_agent import AgentConfig, CapabilityConfig
from reach_sidecar.config_sections import DedupConfig, SidecarConfig

_ENTRY_REST_BYTES = 512
"""Room for an entry's id, address, version, cluster, limits and flags, each at its longest."""


def check(config: SidecarConfig) -> Iterable[Fault]:
    """Every fault of `config`, each at the setting to change. Pure."""
    yield from _ports(config)
    yield from _exposure(config)
    if config.agent is not None:
        yield from _agent(config.agent)
        yield from _names(config.agent.capabilities)
        yield from _fallbacks(config.agent.capabilities)
        yield from _lifetimes(config.agent.capabilities, config.dedup)
        yield from _entry_size(config.agent.capabilities)


def _ports(config: SidecarConfig) -> Iterable[Fault]:
    taken: dict[int, str] = {}
    for name in ("outbound", "mesh", "admin", "probe"):
        address: str | None = getattr(config.listen, name)
        if address is None:
            continue
        _, port = split_address(address)
        if port and port in taken:
            other = ("listen", taken[port])
            yield Fault(("listen", name), f"port {port} is that of `listen.{taken[port]}` already", (other,))
        taken.setdefault(port, name)
        if config.agent is not None and config.agent.address == f"http://{address}" and port:
            yield Fault(
                ("agent", "address"),
                f"that is `listen.{name}`, the sidecar itself: name the address the agent listens on",
                (("listen", name),),
            )


def _exposure(config: SidecarConfig) -> Iterable[Fault]:
    """Nothing is reachable from other machines without TLS unless `insecure` says so (design: trust)."""
    for name in ("outbound", "mesh", "admin"):
        address: str = getattr(config.listen, name)
        if is_loopback(split_address(address)[0]) or config.insecure:
            continue
        yield Fault(
            ("listen", name),
            f"`{address}` is reachable from other machines without TLS: listen on 127.0.0.1, or write `insecure: true`",
            (("insecure",),),
        )
    if config.egress == "allow" and not is_loopback(split_address(config.listen.outbound)[0]):
        yield Fault(
            ("egress",),
            f"`allow` would make `listen.outbound` ({config.listen.outbound}) an open proxy: write mesh-only",
            (("listen", "outbound"),),
        )


def _agent(agent: AgentConfig) -> Iterable[Fault]:
    if agent.capabilities and agent.address is None:
        yield Fault(
            ("agent",),
            "capabilities are declared but `address` is missing: write where the agent listens",
            (("agent", "address"),),
        )
    if agent.probe is not None and agent.probe.body is not None and agent.probe.method == "GET":
        yield Fault(("agent", "probe", "method"), "GET sends no body: write POST, or take `body` out")


def _names(capabilities: Sequence[CapabilityConfig]) -> Iterable[Fault]:
    """No two capabilities answer to the same name once case and separators are out of the way."""
    root = ("agent", "capabilities")
    names: dict[str, tuple[int, str]] = {}
    for n, capability in enumerate(capabilities):
        first = names.setdefault(normalise(capability.name), (n, capability.name))
        if capability.name and first[0] != n:
            yield Fault(
                (*root, n, "name"),
                f"`{capability.name}` is the same name as `{first[1]}`, which capability {first[0] + 1} has already",
            )
    aliases: dict[str, str] = {}
    for n, capability in enumerate(capabilities):
        for m, alias in enumerate(capability.aliases):
            path, plain = (*root, n, "aliases", m), normalise(alias)
            if not alias or not capability.name:
                continue
            if plain == normalise(capability.name):
                yield Fault(path, f"`{alias}` is the capability's own name: take it out")
            elif plain in names:
                yield Fault(path, f"`{alias}` is the name of another capability here")
            elif plain in aliases:
                yield Fault(path, f"`{alias}` is an alias of `{aliases[plain]}` already")
            aliases.setdefault(plain, capability.name)


def _fallbacks(capabilities: Sequence[CapabilityConfig]) -> Iterable[Fault]:
    """No fallback leads back to its own capability."""
    known = {normalise(name): c for c in capabilities for name in (*c.aliases, c.name) if name}
    for n, capability in enumerate(capabilities):
        seen = [capability]
        step: CapabilityConfig | None = capability
        while step is not None and step.fallback is not None:
            step = known.get(normalise(step.fallback))
            if step is capability:
                way = " → ".join(c.name for c in (*seen, capability))
                yield Fault(("agent", "capabilities", n, "fallback"), f"leads back to itself: {way}")
            if step is None or step in seen:
                break
            seen.append(step)


def _lifetimes(capabilities: Sequence[CapabilityConfig], dedup: DedupConfig) -> Iterable[Fault]:
    """An answer must be remembered for longer than the call may take, or a late repeat would run it again."""
    keep_s = {"memory": ("keep", dedup.keep), "durable": ("keep_durable", dedup.keep_durable)}
    for n, capability in enumerate(capabilities):
        if capability.timeout is None or capability.dedup not in keep_s:
            continue
        name, lifetime = keep_s[capability.dedup]
        if lifetime < capability.timeout:
            path = ("agent", "capabilities", n)
            remedy = "`dedup: durable`, or " if capability.dedup == "memory" else ""
            yield Fault(
                (*path, "timeout"),
                f"{format_duration(capability.timeout)} is longer than answers are remembered with "
                f"`dedup: {capability.dedup}` ({format_duration(lifetime)}): write {remedy}a longer `dedup.{name}`",
                ((*path, "dedup"), ("dedup", name)),
            )


def _entry_size(capabilities: Sequence[CapabilityConfig]) -> Iterable[Fault]:
    """What is declared fits into the agent's entry in the table, whatever else the entry comes to hold."""
    room = MAX_ENTRY_BYTES - _ENTRY_REST_BYTES
    size = len(msgspec.json.encode([capability.declared() for capability in capabilities]))
    if size > room:
        yield Fault(
            ("agent", "capabilities"),
            f"they take {size} bytes, and every sidecar of the mesh keeps at most {room} of them for each agent: "
            "write fewer or shorter names, aliases and attributes",
        )
